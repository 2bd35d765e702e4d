package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"pd-router/internal/config"
)

func TestAFolderWithoutATokenizerIsBadUsage(t *testing.T) {
	_, err := loadTokenizer(config.Config{ModelPath: t.TempDir()})
	var bad *config.Error
	require.ErrorAs(t, err, &bad)
	require.ErrorContains(t, err, "no tokenizer.json in this folder")
}

func TestThinkingFollowsTheRequestOverTheDeployment(t *testing.T) {
	for _, tc := range []struct {
		name, deployment, request string
		want                      bool
	}{
		{"by default glm thinks", ``, ``, true},
		{"the request turns it off", ``, `{"enable_thinking":false}`, false},
		{"the deployment turns it off", `{"enable_thinking":false}`, ``, false},
		{"the request wins", `{"enable_thinking":false}`, `{"enable_thinking":true}`, true},
		{"other arguments change nothing", `{"enable_thinking":false}`, `{"x":1}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := thinking(config.Config{Parser: "glm47", DefaultChatTemplateKwargs: json.RawMessage(tc.deployment)})
			require.Equal(t, tc.want, f(json.RawMessage(tc.request)))
		})
	}
}
