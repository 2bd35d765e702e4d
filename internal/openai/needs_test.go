package openai

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefusalNamesTheFirstFieldAndItsOrigin(t *testing.T) { // cases 51, 52
	adopted := Gate{HasTokenizer: true, Defaults: Sampling{RepetitionPenalty: []byte("1.05")}}
	for _, tc := range []struct {
		name, members string
		gate          *Gate
		have          Needs
		field         string
		says          string
	}{
		{"51: an adopted default, the client sends nothing", ``, &adopted, 0, "repetition_penalty", "repetition_penalty=1.05"},
		{"51: a null is nothing", `"repetition_penalty":null`, &adopted, 0, "repetition_penalty", "deployment"},
		{"an adopted default comes before the client's own", `"presence_penalty":0.5`, &adopted, 0, "repetition_penalty", "deployment"},
		{"52: the client's own", `"repetition_penalty":1.2`, &adopted, 0, "repetition_penalty", "from the request"},
		{"the client takes an adopted default back", `"repetition_penalty":1.0`, &adopted, 0, "", ""},
		{"an adopted default on a node that can", ``, &adopted, NeedPenalties, "", ""},
		{"nothing is needed", ``, &full, 0, "", ""},
		{"penalties come before ignore_eos", `"ignore_eos":true,"presence_penalty":0.5,"regex":"a","logprobs":true`, &full, 0, "presence_penalty", "from the request"},
		{"of two fields the first in the gate's order", `"presence_penalty":0.5,"repetition_penalty":1.2`, &full, 0, "repetition_penalty", "repetition_penalty=1.2"},
		{"then ignore_eos", `"ignore_eos":true,"presence_penalty":0.5,"logprobs":true`, &full, NeedPenalties, "ignore_eos", "ignore_eos"},
		{"then logprobs", `"ignore_eos":true,"regex":"a","logprobs":true`, &full, NeedPenalties | NeedIgnoreEOS, "logprobs", "the capability logprobs"},
		{"then grammars", `"ignore_eos":true,"regex":"a","logprobs":true`, &full, allNeeds &^ NeedGrammar, "regex", "constrained output"},
		{"the response_format is named where it won", `"response_format":{"type":"json_object"},"regex":"a"`, &full, 0, "response_format", "response_format="},
		{"all is there", `"ignore_eos":true,"presence_penalty":0.5,"regex":"a","logprobs":true`, &full, allNeeds, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := check(t, tc.gate, Chat, tc.have, tc.members)
			if tc.field == "" {
				require.Nil(t, err)
				return
			}
			require.NotNil(t, err)
			require.Equal(t, 501, err.Status)
			require.Equal(t, TypeCapabilityUnavailable, err.Type)
			require.Equal(t, tc.field, err.Param)
			require.Contains(t, err.Message, tc.says)
		})
	}
}

func TestNeedsHaveNames(t *testing.T) {
	require.Equal(t, "penalties,ignore_eos,logprobs,grammar", allNeeds.String())
	require.Equal(t, "", Needs(0).String())
	require.Equal(t, "ignore_eos", NeedIgnoreEOS.String())
	require.Equal(t, Needs(1)<<numNeeds-1, allNeeds, "a need without a row in lacks")
}
