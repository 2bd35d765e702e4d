package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The list in docs/metrics.md is what is exported: go test ./internal/metrics -update writes it.
func TestDocsAreWhatIsExported(t *testing.T) {
	golden(t, "../../docs/metrics.md", markdown(t))
}

func markdown(t *testing.T) string {
	reg := prometheus.NewRegistry()
	o := example()
	o.ModelName = "m"
	New(reg, o)
	families, err := reg.Gather()
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString(`# Metrics

Written by ` + "`go test ./internal/metrics -update`" + `; do not edit.

All label values are closed sets that exist from the start, at zero; what is in none of them counts as ` + "`other`" + `. Histograms have classic
buckets in text form and are native histograms for a Prometheus that asks for protobuf. Beside these there are the usual ` + "`go_*` and `process_*`" + `.

The ` + "`vllm:`" + ` families describe what vLLM cannot see: ` + "`component=\"decode\"`" + ` with ` + "`worker_id`" + ` naming the decode node, and
` + "`component=\"router\"`" + ` for the line. Their sums add up with those of vLLM's own page. ` + "`model_name`" + ` is there when a name is configured.

| metric | type | labels | meaning, and what to do |
|---|---|---|---|
`)
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "pd_router_") && !strings.HasPrefix(name, "vllm:") {
			continue
		}
		var labels []string
		for _, m := range f.GetMetric() {
			for _, l := range labelNames(m) {
				if !slices.Contains(labels, l) {
					labels = append(labels, l)
				}
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())

		assert.Regexp(t, `\. .*\S|: `, f.GetHelp(), "%s: the help says what it is and what to do", name)
		assert.True(t, strings.HasSuffix(f.GetHelp(), "."), name)
		assert.NotContains(t, f.GetHelp(), "|", name)
		assert.NotContains(t, f.GetHelp(), "\n", name)
	}
	return b.String()
}
