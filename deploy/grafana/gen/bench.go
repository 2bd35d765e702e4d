package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// gpus is the number that per-GPU figures divide by: those of the prefill node and of all decode nodes.
func gpus() *dashboard.TextBoxVariableBuilder {
	const usual = "16" // one prefill and one decode node of 8
	return dashboard.NewTextBoxVariableBuilder("gpus").Label("GPUs").Description("GPUs of the prefill node and of all decode nodes together.").
		DefaultValue(dashboard.StringOrMap{String: cog.ToPtr(usual)}).Current(dashboard.VariableOption{Text: text(usual), Value: text(usual)})
}

// benchmarkRun shows a run in the figures that benchmarks publish. Numbers and table are over the dashboard's time range.
func benchmarkRun() *dashboard.DashboardBuilder {
	var (
		both       = `kind=~"prompt|completion"` // prompt holds the cached tokens too
		completion = `kind="completion"`
		ttft, itl  = "pd_router_ttft_seconds", "pd_router_inter_token_seconds"
		load       = "(sum(" + sel("pd_router_queue_depth") + ") + sum(" + sel("pd_router_slots_busy") + "))"
	)
	d := frame("pd-router-bench", "Benchmark run", "A run in the figures that benchmarks publish, as the router measures them. Set the time range to the run: the numbers and the table are over all of it, warm-up included.").
		WithVariable(nodes()).WithVariable(model()).WithVariable(gpus()).
		Annotation(event("Load", purple, load+" > bool 0", "load")).
		Annotation(noted("Points of the benchmark", green, "pd-router-bench"))

	d.WithRow(row("The run")).
		WithPanel(number("Total", "Prompt and reply tokens per second over the time range. Prompt tokens count whether cached or not, as benchmarks count them.",
			tokensPerSecond, 3, plain(), now("total", overRange("pd_router_tokens_total", both)))).
		WithPanel(number("Total per GPU", "Total divided by the variable GPUs. Set it to the GPUs of the prefill node and all decode nodes.",
			tokensPerSecond, 3, plain(), now("per GPU", overRange("pd_router_tokens_total", both)+" / $gpus"))).
		WithPanel(number("Output of the run", "Reply tokens per second over the time range.",
			tokensPerSecond, 3, plain(), now("output", overRange("pd_router_tokens_total", completion)))).
		WithPanel(number("Whole replies", "Requests per hour that ended well. A figure that does not depend on the length of prompts; falling with a growing total of tokens, prompts have become longer.",
			requestsPerHour, 3, plain(), now("ok", overRange("pd_router_requests_total", `outcome="ok"`)+" * 3600"))).
		WithPanel(number("TTFT mean", "Mean time to the first token over the time range. Far above the prefill time: requests wait, and the run is past saturation.",
			units.Seconds, 3, plain(), now("mean", mean(whole, ttft)))).
		WithPanel(number("TTFT p95 of the run", "95th percentile of the time to the first token over the time range.",
			units.Seconds, 3, plain(), now("p95", quantile(0.95, whole, "", ttft)))).
		WithPanel(number("TPOT of the run", "Mean time per output token after the first, over the time range.",
			units.Seconds, 3, plain(), now("mean", mean(whole, itl)))).
		WithPanel(number("Failed", "Share of the requests of the time range that did not end well, clients that left included. AIPerf aborts a run at 10 %, and a warm-up at the first one.",
			units.PercentUnit, 3, steps(0.001, orange, 0.1, red),
			now("failed", part(sum("", "increase("+sel("pd_router_requests_total", `outcome!="ok"`)+"["+whole+"])"), sum("", "increase("+sel("pd_router_requests_total")+"["+whole+"])")))))

	d.WithRow(row("Over time")).
		WithPanel(graph("Tokens", "Prompt and reply tokens per second, together and per GPU. A total that no longer grows with concurrency is saturation.",
			tokensPerSecond, 8, q("total", sum("", rate("pd_router_tokens_total", both))), q("per GPU", sum("", rate("pd_router_tokens_total", both))+" / $gpus"))).
		WithPanel(graph("Output", "Reply tokens per second, and those that decode nodes generated.",
			tokensPerSecond, 8, q("replies", sum("", rate("pd_router_tokens_total", completion))), q("decode nodes", sum("", rate("vllm:generation_tokens_total", onWorker))))).
		WithPanel(graph("Concurrency", "Requests in the router, and those of them that wait. Concurrency of the client counts sessions: sub-agents add requests, pauses between turns take some away.",
			units.Short, 8, q("in the router", load), q("waiting", "sum("+sel("pd_router_queue_depth")+")"))).
		WithPanel(graph("Time to the first token", "Mean and 95th percentile. The step up marks saturation: from there on concurrency buys waiting and not tokens.",
			units.Seconds, 8, q("mean", mean(step, ttft)), q("p95", quantile(0.95, step, "", ttft)))).
		WithPanel(graph("Time per output token", "Mean and 90th percentile of the time per output token of each reply; one over the latter is the published interactivity.",
			units.Seconds, 8, q("mean", mean(step, itl)), q("p90", quantile(0.9, step, "", itl)))).
		WithPanel(byPhase(stacked("Slot time of the run", "What the decode slots were held for. A run that waits with little decode is limited by prefill or KV, not by decode nodes.",
			units.PercentUnit, 8, q("{{phase}}", sum("phase", rate("pd_router_slot_seconds_total", onNode))+" / on() group_left() count("+sel("pd_router_slots_busy", onNode)+")")).Max(1)))

	return d.WithRow(row("By concurrency")).
		WithPanel(byConcurrency(both, completion, ttft, itl))
}

// column is one of the table by concurrency: a value for each concurrency that occurred in the time range.
type column struct {
	title, unit, expr string
}

func byConcurrency(both, completion, ttft, itl string) *table.PanelBuilder {
	per := func(histogram string, matchers ...string) string {
		return ratioAtEach(sum("", rate(histogram+"_sum", matchers...)), sum("", rate(histogram+"_count", matchers...)))
	}
	total := atEach(sum("", rate("pd_router_tokens_total", both)))
	list := []column{
		{"Time", units.Seconds, "count_over_time(" + concurrencies() + "[" + whole + ":$__interval]) * $__interval_ms / 1000"},
		{"Total", tokensPerSecond, total},
		{"Total per GPU", tokensPerSecond, total + " / $gpus"},
		{"Output", tokensPerSecond, atEach(sum("", rate("pd_router_tokens_total", completion)))},
		{"TTFT mean", units.Seconds, per(ttft)},
		{"TPOT mean", units.Seconds, per(itl)},
		{"Request mean", units.Seconds, per("pd_router_phase_seconds", `phase="total"`)},
		{"Cache hits", units.PercentUnit, ratioAtEach(sum("", rate("pd_router_tokens_total", `kind="cached"`)), sum("", rate("pd_router_tokens_total", `kind="prompt"`)))},
	}
	p := table.NewPanelBuilder().Title("Points by concurrency").
		Description("The run by the number of requests in the router, as averages of the moments with that number. Rows with little time are passages between points. " +
			"The row with the highest total is the point of most throughput; the last one before TTFT steps up, that of good latency.").
		Unit(units.Short).Datasource(source).Span(columns).Height(12).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{"mean"}))
	names := map[string]any{"concurrency": "Concurrency"}
	order := map[string]any{"concurrency": 0}
	for i, c := range list {
		x := now("", c.expr)
		x.format = prometheus.PromQueryFormatTable
		p.WithTarget(x.target(i))
		field := fmt.Sprintf("Value #%c", 'A'+i)
		names[field], order[field] = c.title, i+1
		p.OverrideByName(c.title, []dashboard.DynamicConfigValue{{Id: "unit", Value: c.unit}})
	}
	return p.
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "convertFieldType", Options: map[string]any{
			"fields": map[string]any{}, "conversions": []any{map[string]any{"targetField": "concurrency", "destinationType": "number"}}}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]any{"Time": true}, "renameByName": names, "indexByName": order}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "sortBy", Options: map[string]any{
			"fields": map[string]any{}, "sort": []any{map[string]any{"field": "Concurrency"}}}})
}
