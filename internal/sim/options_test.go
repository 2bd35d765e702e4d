package sim

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The help of a flag is the comment of its field, and each field has a flag.
func TestFlagsSayWhatTheFieldsSay(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "options.go", nil, parser.ParseComments)
	require.NoError(t, err)
	docs := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			docs[spec.Name.Name] = append(docs[spec.Name.Name], strings.Join(strings.Fields(f.Doc.Text()), " "))
		}
		return false
	})
	po, do := DefaultPrefillOptions(), DefaultDecodeOptions()
	prefill, decode := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	po.AddFlags(prefill)
	do.AddFlags(decode)
	for name, fs := range map[string]*pflag.FlagSet{"PrefillOptions": prefill, "DecodeOptions": decode} {
		var usages []string
		fs.VisitAll(func(f *pflag.Flag) { usages = append(usages, f.Usage) })
		assert.ElementsMatch(t, docs[name], usages)
	}
	require.NoError(t, prefill.Parse([]string{"--model", "tiny", "--fault", "reset=0.1,kv-flip=1/7", "--fault", "slow", "--served-model-name", "a", "--served-model-name", "b", "--latency", "5ms"}))
	assert.Equal(t, []any{"tiny", []string{"reset=0.1", "kv-flip=1/7", "slow"}, []string{"a", "b"}, 5 * time.Millisecond}, []any{po.Profile, po.Faults, po.Models, po.Latency})
}

func TestDefaultsOfTheZeroValue(t *testing.T) {
	d, err := DecodeOptions{}.withDefaults()
	require.NoError(t, err)
	assert.Equal(t, []any{"127.0.0.1:0", 8, KVCheck, EngineText, 200 * time.Millisecond}, []any{d.HTTP, d.Senders, d.KV, d.Engine, d.Poll})
	assert.Zero(t, d.TokensPerSecond)
	d, err = DecodeOptions{Generation: "V5", Engine: EngineStub}.withDefaults()
	require.NoError(t, err)
	assert.Equal(t, []any{1, KVTrust, 5 * time.Millisecond}, []any{d.Senders, d.KV, d.Poll})
	p, err := PrefillOptions{}.withDefaults()
	require.NoError(t, err)
	assert.Equal(t, []any{[]string{"glm5"}, KVWrite, 202752}, []any{p.Models, p.KV, p.MaxModelLen})
}

func TestOptionsThatCannotBe(t *testing.T) {
	for want, o := range map[string]PrefillOptions{
		"--kv=check": {KV: KVCheck}, "--senders=9": {Senders: 9}, "--jitter=2": {Jitter: 2}, "--generation=V6": {Generation: "V6"},
		"unknown model profile": {Profile: "glm4"}, "--fault=busy": {Faults: []string{"busy"}}, "--fault=reset=2": {Faults: []string{"reset=2"}},
		"--fault=reset=1/0": {Faults: []string{"reset=1/0"}}, "--fault=reset=x": {Faults: []string{"reset=x"}},
	} {
		_, err := NewPrefill(o)
		assert.ErrorContains(t, err, want)
	}
	for want, o := range map[string]DecodeOptions{
		"--kv=write": {KV: KVWrite}, "--engine=x": {Engine: "x"}, "--shards=9": {Shards: 9}, "--max-seq-len=-1": {MaxSeqLen: -1},
		"--capabilities=x": {Capabilities: []string{"x"}}, "unknown cache type": {KVDType: "fp4"}, "--fault=kv-flip": {Faults: []string{"kv-flip"}},
	} {
		_, err := NewDecode(o)
		assert.ErrorContains(t, err, want)
	}
	p, err := NewPrefill(PrefillOptions{Listen: "127.0.0.1:99999"})
	require.NoError(t, err)
	assert.Error(t, p.Listen())
	d, err := NewDecode(DecodeOptions{Ctrl: "127.0.0.1:99999"})
	require.NoError(t, err)
	assert.Error(t, d.Listen())
}

func TestFaultsAreDrawn(t *testing.T) {
	fs, err := parseFaults([]string{"reset=1/3", "hang=0", "slow"}, prefillFaults)
	require.NoError(t, err)
	var got, told []string
	tell := func(line string) { told = append(told, line) }
	for i := range 6 {
		got = append(got, fs.draw(strconv.Itoa(i), tell))
	}
	assert.Equal(t, []string{"slow", "slow", "reset", "slow", "slow", "reset"}, got)
	assert.Equal(t, []string{"fault slow for 0", "fault slow for 1", "fault reset for 2", "fault slow for 3", "fault slow for 4", "fault reset for 5"}, told)
	fs, err = parseFaults([]string{"reset=0.3"}, prefillFaults)
	require.NoError(t, err)
	n := 0
	for range 10000 {
		if fs.draw("", tell) != "" {
			n++
		}
	}
	assert.InDelta(t, 3000, n, 300)
	assert.Empty(t, faults(nil).draw("", nil))
}
