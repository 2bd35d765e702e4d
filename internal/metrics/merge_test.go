package metrics

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

const vllmPage = `# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="stub"} 3
# HELP vllm:prompt_tokens_total Prefilled tokens.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0"} 4
# HELP vllm:generation_tokens_total Generated.
# TYPE vllm:generation_tokens_total gauge
vllm:generation_tokens_total{engine="0"} 9
# HELP dynamo_frontend_x Not ours.
# TYPE dynamo_frontend_x gauge
dynamo_frontend_x 1
`

func merged(t *testing.T, page string) string {
	m := New(prometheus.NewRegistry(), Options{Nodes: []string{"d:1:2"}, State: func(*State) {}})
	var out bytes.Buffer
	_, err := m.WriteMerged(&out, "", []byte(page))
	require.NoError(t, err)
	return out.String()
}

func TestAnotherPageIsMergedByFamily(t *testing.T) {
	page := merged(t, vllmPage)
	require.Contains(t, page, `vllm:prompt_tokens_total{engine="0"} 4`, "a family of its own is added")
	require.Equal(t, 1, strings.Count(page, "# TYPE vllm:num_requests_running "), "a shared family is one block")
	require.Contains(t, page, `vllm:num_requests_running{engine="0",model_name="stub"} 3`)
	require.Contains(t, page, `vllm:num_requests_running{component="decode"`)
	require.NotContains(t, page, `vllm:generation_tokens_total{engine="0"}`, "a family of another type is left out")
	require.NotContains(t, page, "dynamo_")
}

func TestASeriesOfOursIsNotRepeated(t *testing.T) {
	own := merged(t, "")
	var line string
	for _, l := range strings.Split(own, "\n") {
		if strings.HasPrefix(l, "vllm:num_requests_running{") {
			line = l
			break
		}
	}
	require.NotEmpty(t, line)
	page := merged(t, "# TYPE vllm:num_requests_running gauge\n"+line+"\n")
	require.Equal(t, 1, strings.Count(page, line))
}

func TestAPageThatIsNoneIsAnError(t *testing.T) {
	m := New(prometheus.NewRegistry(), Options{State: func(*State) {}})
	_, err := m.WriteMerged(&bytes.Buffer{}, "", []byte("<html>"))
	require.Error(t, err)
}
