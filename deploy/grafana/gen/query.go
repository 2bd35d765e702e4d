package main

import (
	"fmt"
	"strings"
)

// All selectors are made here, so that each one has the job of the router: other programs have families of these names
// too, vLLM those that begin with vllm: and everything those of the process.

// sel is a selector of the router's job, with further matchers.
func sel(metric string, matchers ...string) string {
	return metric + "{" + strings.Join(append([]string{`job=~"$job"`}, matchers...), ",") + "}"
}

// Matchers of the variables node and model.
const (
	onNode   = `node=~"$node"`
	onWorker = `component="decode",worker_id=~"$node",model_name=~"$model"`
)

// Windows of rates: that of the panel's resolution, and the whole time range of the dashboard.
const (
	step  = "$__rate_interval"
	whole = "$__range"
)

// rate is the growth of a counter per second.
func rate(metric string, matchers ...string) string {
	return "rate(" + sel(metric, matchers...) + "[" + step + "])"
}

// sum adds up an expression, by some labels ("" for none).
func sum(by, expr string) string {
	if by == "" {
		return "sum(" + expr + ")"
	}
	return "sum by (" + by + ") (" + expr + ")"
}

// part is num as a share of den; 0 and not "no number" while den is 0.
func part(num, den string) string { return num + " / clamp_min(" + den + ", 1e-9)" }

// quantile is one of a histogram, over a window, by further labels ("" for none).
func quantile(p float64, window, by, histogram string, matchers ...string) string {
	return fmt.Sprintf("histogram_quantile(%g, %s)", p, sum(strings.TrimSuffix("le, "+by, ", "), "rate("+sel(histogram+"_bucket", matchers...)+"["+window+"])"))
}

// mean of a histogram's observations over a window.
func mean(window, histogram string, matchers ...string) string {
	return sum("", "rate("+sel(histogram+"_sum", matchers...)+"["+window+"])") + " / " + sum("", "rate("+sel(histogram+"_count", matchers...)+"["+window+"])")
}

// quantiles are the queries of p50, p95 and p99.
func quantiles(histogram string, matchers ...string) []query {
	var qs []query
	for _, p := range []float64{0.5, 0.95, 0.99} {
		qs = append(qs, query{legend: fmt.Sprintf("p%g", p*100), expr: quantile(p, step, "", histogram, matchers...)})
	}
	return qs
}

// overRange is how much a counter grew in the dashboard's time range, per second.
func overRange(metric string, matchers ...string) string {
	return sum("", "increase("+sel(metric, matchers...)+"["+whole+"])") + " / $__range_s"
}

// concurrencies is one series with value 1 for the concurrency of the moment, which its label names. Concurrency is what the
// router sees: requests that wait or hold a slot, averaged over a moment and rounded; a moment without any has none.
func concurrencies() string {
	mean := func(metric string) string { return "sum(avg_over_time(" + sel(metric) + "[" + step + "]))" }
	return `count_values("concurrency", round(` + mean("pd_router_queue_depth") + " + " + mean("pd_router_slots_busy") + ") > 0)"
}

// atEach splits an expression without labels by the concurrency of each moment and averages each part over the
// dashboard's time range: one series for each concurrency that occurred.
func atEach(expr string) string {
	return "avg_over_time((" + expr + " * on() group_right() " + concurrencies() + ")[" + whole + ":$__interval])"
}

// ratioAtEach is a ratio of two such averages, so that every request weighs the same.
func ratioAtEach(num, den string) string { return atEach(num) + " / " + atEach(den) }
