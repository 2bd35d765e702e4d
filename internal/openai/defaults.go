package openai

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultsOptions say where a deployment's sampling defaults come from: the model's generation_config.json and flags over it.
type DefaultsOptions struct {
	// ModelPath is the model's folder (--model-path). Empty: there is no generation_config.json to read.
	ModelPath string
	// GenerationConfig is "auto" (also when empty): take the defaults of generation_config.json in ModelPath, as vLLM does; or
	// "vllm": neutral defaults, whatever the file says (--generation-config).
	GenerationConfig string
	// Model names the nodes' profile (--model): glm5, glm5_2, dsv32 or an alias of theirs. It says which abilities a default may
	// rely on. Empty or unknown: none.
	Model string
	// The texts of --default-temperature, --default-top-p, --default-top-k and --default-repetition-penalty. Each wins over the
	// file; empty: not given.
	Temperature, TopP, TopK, RepetitionPenalty string
}

// profile is what is known of a model's decode engine before any node was asked.
type profile struct {
	name      string
	aliases   []string
	penalties bool // the engine can apply repetition_penalty
}

// profiles are the models that TileRT serves. No public engine has penalties.
var profiles = []profile{
	{name: "glm5", aliases: []string{"glm_5", "glm-5"}},
	{name: "glm5_2", aliases: []string{
		"glm5_3", "glm-5.2", "glm5.2", "glm52", "glm_5_2", "glm-5.3", "glm5.3", "glm53", "glm_5_3",
	}},
	{name: "dsv32", aliases: []string{"deepseek_v3_2", "deepseek-v3.2", "dsv3.2", "v32"}},
}

// ResolveDefaults fixes the sampling defaults at start-up (spec 4.3). It fails when a source cannot be read, when a value is no
// such value, and when a default would change each request in a way that the decode nodes cannot follow: min_p on any model,
// repetition_penalty on one without penalties. The error names the field and the way out.
func ResolveDefaults(o DefaultsOptions) (Sampling, error) {
	return resolveDefaults(o, profiles)
}

func resolveDefaults(o DefaultsOptions, known []profile) (Sampling, error) {
	var fromFile Sampling
	switch o.GenerationConfig {
	case "", "auto":
		if o.ModelPath != "" {
			var err error
			if fromFile, err = readGenerationConfig(filepath.Join(o.ModelPath, "generation_config.json")); err != nil {
				return Sampling{}, err
			}
		}
	case "vllm":
	default:
		return Sampling{}, fmt.Errorf("--generation-config=%s: want auto or vllm", o.GenerationConfig)
	}
	fromFlags, err := o.flags()
	if err != nil {
		return Sampling{}, err
	}
	out := fromFlags.over(fromFile).over(neutral)
	if f, _ := finite(out.RepetitionPenalty); f == 1 {
		return out, nil
	}
	if declaresPenalties(o.Model, known) {
		return out, nil
	}
	return Sampling{}, penaltyRefused(o, out.RepetitionPenalty, len(fromFlags.RepetitionPenalty) > 0)
}

// penaltyRefused says why a default repetition_penalty cannot be adopted, and what to do about it.
func penaltyRefused(o DefaultsOptions, value []byte, flag bool) error {
	why := fmt.Sprintf("the decode engine of --model %s applies no penalties", o.Model)
	if o.Model == "" {
		why = "without --model it is not known whether the decode nodes apply penalties"
	}
	if flag {
		return fmt.Errorf("--default-repetition-penalty=%s: %s, so repetition_penalty must stay 1.0; "+
			"command-line overrides are checked as generation_config.json is: remove the flag or set it to 1.0", value, why)
	}
	return fmt.Errorf("generation_config.json: repetition_penalty is %s, but %s; start with `--generation-config vllm` to use "+
		"neutral defaults instead of the file", value, why)
}

func declaresPenalties(model string, known []profile) bool {
	model = strings.ToLower(model)
	for _, p := range known {
		if p.name == model || slices.Contains(p.aliases, model) {
			return p.penalties
		}
	}
	return false
}

// flags reads the four flags.
func (o DefaultsOptions) flags() (s Sampling, err error) {
	for _, f := range []struct {
		name, text string
		value      *[]byte
		read       func([]byte) ([]byte, string)
	}{
		{"--default-temperature", o.Temperature, &s.Temperature, readNonNegative},
		{"--default-top-p", o.TopP, &s.TopP, readNonNegative},
		{"--default-top-k", o.TopK, &s.TopK, readTopK},
		{"--default-repetition-penalty", o.RepetitionPenalty, &s.RepetitionPenalty, readNonNegative},
	} {
		if f.text == "" {
			continue
		}
		value, want := f.read(AppendString(nil, f.text))
		if want != "" {
			return Sampling{}, fmt.Errorf("%s=%s: want %s", f.name, f.text, want)
		}
		*f.value = value
	}
	return s, nil
}

// readGenerationConfig takes the four defaults that vLLM also takes from the file. No file is no defaults.
func readGenerationConfig(path string) (s Sampling, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Sampling{}, nil
	}
	if err != nil {
		return Sampling{}, fmt.Errorf("sampling defaults: %w", err)
	}
	file, bad := parse(text)
	if bad != nil {
		return Sampling{}, fmt.Errorf("%s: %w; `--generation-config vllm` ignores the file", path, bad)
	}
	for _, f := range []struct {
		name  string
		value *[]byte
		read  func([]byte) ([]byte, string)
	}{
		{"temperature", &s.Temperature, readNonNegative},
		{"top_p", &s.TopP, readNonNegative},
		{"top_k", &s.TopK, readTopK},
		{"repetition_penalty", &s.RepetitionPenalty, readNonNegative},
	} {
		raw, ok := file.Get(f.name)
		if !ok || kindOf(raw) == kindNull {
			continue
		}
		value, want := f.read(raw)
		if want != "" {
			return Sampling{}, fmt.Errorf("%s: %s is %s: want %s; `--generation-config vllm` ignores the file",
				path, f.name, clip(raw), want)
		}
		*f.value = value
	}
	if raw, ok := file.Get("min_p"); ok && !falsy(raw) {
		return Sampling{}, fmt.Errorf("%s: min_p is %s, but decode nodes have no min_p; start with `--generation-config vllm` "+
			"to use neutral defaults instead of the file", path, clip(raw))
	}
	return s, nil
}

// readNonNegative reads temperature, top_p and the like: a number, or a string that spells one, of 0 or more. It returns the
// number as it goes on the wire, or what it wanted.
func readNonNegative(raw []byte) (number []byte, want string) {
	number, f, ok := numeric(raw)
	if !ok || f < 0 {
		return nil, "a finite number, 0 or more"
	}
	return number, ""
}

// readTopK reads an integer, or a string that spells one. It returns the number as it goes on the wire, without fraction or
// exponent: nodes index with it.
func readTopK(raw []byte) (number []byte, want string) {
	n, ok := laxInt(raw)
	if !ok || kindOf(raw) == kindBool || n != int64(int32(n)) {
		return nil, "an integer of 32 bits"
	}
	if _, plain := strictInt(raw); plain {
		return raw, ""
	}
	return appendInt(nil, n), ""
}
