package openai

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const fileG = `{"temperature": 0.6, "top_p": 0.95, "top_k": 20, "do_sample": true, "bos_token_id": 0, "eos_token_id": [0]}`

// modelWith is a model folder with that generation_config.json; "" is none.
func modelWith(t *testing.T, config string) string {
	dir := t.TempDir()
	if config != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(config), 0o600))
	}
	return dir
}

func withMore(members string) string { return fileG[:len(fileG)-1] + ", " + members + "}" }

func TestResolveDefaults(t *testing.T) { // cases 38 to 49
	for _, tc := range []struct {
		name, config, want string
		o                  DefaultsOptions
	}{
		{"38: auto takes the file", fileG, `"temperature":0.6,"top_p":0.95,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{GenerationConfig: "auto"}},
		{"39: vllm ignores the file", fileG, `"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{GenerationConfig: "vllm"}},
		{"40: no file is neutral", "", `"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{}},
		{"42: --default-top-p wins over the file", fileG, `"temperature":0.6,"top_p":0.5,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{TopP: "0.5"}},
		{"42: --default-temperature", fileG, `"temperature":0.9,"top_p":0.95,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{Temperature: "0.9"}},
		{"42: --default-top-k", fileG, `"temperature":0.6,"top_p":0.95,"top_k":40,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{TopK: "40"}},
		{"a flag of 0 is a value", fileG, `"temperature":0,"top_p":0.95,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{Temperature: "0", TopK: "0"}},
		{"43: what the file does not state is neutral", `{"top_p":0.8}`, `"temperature":1.0,"top_p":0.8,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{}},
		{"null states nothing", `{"top_p":null,"min_p":null}`, `"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{}},
		{"48: neutral penalties start", withMore(`"repetition_penalty": 1.0, "min_p": 0.0`), `"temperature":0.6,"top_p":0.95,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{Model: "glm5"}},
		{"49: --default-repetition-penalty 1.0 starts", fileG, `"temperature":0.6,"top_p":0.95,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{RepetitionPenalty: "1.0"}},
		{"a flag of 1.0 takes back the file's penalty", withMore(`"repetition_penalty": 1.05`), `"temperature":0.6,"top_p":0.95,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{RepetitionPenalty: "1.0"}},
		{"47: vllm starts in spite of the file", withMore(`"min_p": 0.05, "repetition_penalty": 1.05`), `"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{GenerationConfig: "vllm"}},
		{"vllm starts with a file that cannot be read", `{`, `"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{GenerationConfig: "vllm"}},
		{"top_k as a float is an integer", `{"top_k":50.0}`, `"temperature":1.0,"top_p":1.0,"top_k":50,"repetition_penalty":1.0,"min_p":0.0`, DefaultsOptions{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.ModelPath = modelWith(t, tc.config)
			s, err := ResolveDefaults(tc.o)
			require.NoError(t, err)
			require.Equal(t, tc.want, string(s.AppendMembers(nil)))
		})
	}
	t.Run("40: no model path is neutral", func(t *testing.T) {
		s, err := ResolveDefaults(DefaultsOptions{})
		require.NoError(t, err)
		require.Equal(t, Neutral(), s)
	})
	t.Run("46: a profile that declares penalties adopts them", func(t *testing.T) {
		able := []profile{{name: "able", aliases: []string{"able-1"}, penalties: true}}
		for _, o := range []DefaultsOptions{
			{ModelPath: modelWith(t, withMore(`"repetition_penalty": 1.05`)), Model: "able"},
			{Model: "Able-1", RepetitionPenalty: "1.05"},
		} {
			s, err := resolveDefaults(o, able)
			require.NoError(t, err)
			require.Equal(t, "1.05", string(s.RepetitionPenalty))
		}
	})
}

func TestResolveDefaultsRefuses(t *testing.T) { // cases 41, 44, 45, 47, 49
	penalty, minP := withMore(`"repetition_penalty": 1.05`), withMore(`"min_p": 0.05`)
	for _, tc := range []struct {
		name, config string
		o            DefaultsOptions
		says         []string
	}{
		{"41: a file that is no object", `[1,2,3]`, DefaultsOptions{}, []string{"generation_config.json", "object", "--generation-config vllm"}},
		{"broken JSON", `{"a":`, DefaultsOptions{}, []string{"generation_config.json", "at byte 5"}},
		{"44: glm5", penalty, DefaultsOptions{Model: "glm5"}, []string{"repetition_penalty", "1.05", "--generation-config vllm", "glm5"}},
		{"44: glm5_2", penalty, DefaultsOptions{Model: "glm5_2"}, []string{"repetition_penalty", "--generation-config vllm"}},
		{"44: dsv32", penalty, DefaultsOptions{Model: "dsv32"}, []string{"repetition_penalty", "--generation-config vllm"}},
		{"44: an alias", penalty, DefaultsOptions{Model: "GLM-5.2"}, []string{"repetition_penalty", "--generation-config vllm"}},
		{"45: without --model", penalty, DefaultsOptions{}, []string{"repetition_penalty", "--model", "--generation-config vllm"}},
		{"47: min_p", minP, DefaultsOptions{}, []string{"min_p", "0.05", "--generation-config vllm"}},
		{"47: min_p on glm5", minP, DefaultsOptions{Model: "glm5"}, []string{"min_p", "--generation-config vllm"}},
		{"49: the flag on glm5", "", DefaultsOptions{Model: "glm5", RepetitionPenalty: "1.2"}, []string{"--default-repetition-penalty=1.2", "repetition_penalty", "command-line overrides"}},
		{"49: the flag on an unknown model", "", DefaultsOptions{Model: "x", RepetitionPenalty: "1.2"}, []string{"command-line overrides"}},
		{"49: the flag without --model", "", DefaultsOptions{RepetitionPenalty: "1.2"}, []string{"command-line overrides", "--model"}},
		{"the flag with vllm", fileG, DefaultsOptions{GenerationConfig: "vllm", RepetitionPenalty: "1.2"}, []string{"command-line overrides"}},
		{"a value that is no number", `{"temperature":"hot"}`, DefaultsOptions{}, []string{"generation_config.json", `temperature is "hot"`}},
		{"a boolean", `{"top_k":true}`, DefaultsOptions{}, []string{"top_k is true"}},
		{"a negative top_p", `{"top_p":-1}`, DefaultsOptions{}, []string{"top_p is -1"}},
		{"an infinite temperature", `{"temperature":1e999}`, DefaultsOptions{}, []string{"temperature is 1e999"}},
		{"a flag that is no number", "", DefaultsOptions{TopP: "abc"}, []string{"--default-top-p=abc: want a finite number, 0 or more"}},
		{"a flag that is NaN", "", DefaultsOptions{Temperature: "nan"}, []string{"--default-temperature=nan"}},
		{"a flag that is no integer", "", DefaultsOptions{TopK: "1.5"}, []string{"--default-top-k=1.5: want an integer"}},
		{"an unknown source", "", DefaultsOptions{GenerationConfig: "file"}, []string{"--generation-config=file: want auto or vllm"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.ModelPath = modelWith(t, tc.config)
			s, err := ResolveDefaults(tc.o)
			require.Error(t, err)
			require.Zero(t, s)
			for _, text := range tc.says {
				require.Contains(t, err.Error(), text)
			}
		})
	}
	t.Run("a file that cannot be read", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "generation_config.json"), 0o700))
		_, err := ResolveDefaults(DefaultsOptions{ModelPath: dir})
		require.ErrorContains(t, err, "generation_config.json")
	})
}

func TestNoPublicProfileDeclaresPenalties(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range profiles {
		require.False(t, p.penalties, p.name)
		for _, name := range slices.Concat([]string{p.name}, p.aliases) {
			require.False(t, seen[name], name)
			require.Equal(t, strings.ToLower(name), name)
			seen[name] = true
		}
	}
}
