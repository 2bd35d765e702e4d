package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// clientsAndTokens shows what clients get: how soon, how fast, how much, and what the prefix cache saved.
func clientsAndTokens() *dashboard.DashboardBuilder {
	ttft, itl := "pd_router_ttft_seconds", "pd_router_inter_token_seconds"
	prompt, cached, completion := `kind="prompt"`, `kind="cached"`, `kind="completion"`
	d := frame("pd-router-clients", "Clients and tokens", "What clients get: time to the first token, time between tokens, tokens per second, interactivity, and what the cache of the prefill node saves.").
		WithVariable(nodes()).WithVariable(model())

	d.WithRow(row("Now")).
		WithPanel(number("TTFT p95", "95th percentile of the time to the first token, waiting included. When it rises, Where the time goes below says in which phase.",
			units.Seconds, 4, plain(), now("p95", quantile(0.95, step, "", ttft)))).
		WithPanel(number("TPOT mean", "Mean time between two tokens of a reply. Rising: slower nodes, or clients that read slower than nodes write.",
			units.Seconds, 4, plain(), now("mean", mean(step, itl)))).
		WithPanel(number("Interactivity", "Tokens per second that one client sees while its reply streams: one over the mean time between tokens.",
			tokensPerSecond, 4, plain(), now("tok/s", "1 / ("+mean(step, itl)+")"))).
		WithPanel(number("Output", "Tokens of replies per second, all clients together, first tokens included.",
			tokensPerSecond, 4, plain(), now("output", sum("", rate("pd_router_tokens_total", completion))))).
		WithPanel(number("Input", "Tokens of prompts per second, cached ones included.",
			tokensPerSecond, 4, plain(), now("input", sum("", rate("pd_router_tokens_total", prompt))))).
		WithPanel(number("Cache hits", "Share of the prompt tokens that the prefill node found in its cache. Falling: its cache is too small for the sessions, or prompts no longer begin alike. Zero all the time: start vLLM with --enable-prompt-tokens-details.",
			units.PercentUnit, 4, plain(), now("hits", part(sum("", rate("pd_router_tokens_total", cached)), sum("", rate("pd_router_tokens_total", prompt))))))

	d.WithRow(row("How soon?")).
		WithPanel(graph("TTFT", "From the head of a request to the first byte of content, waiting for a slot included. p99 far above p50: a line forms now and then.",
			units.Seconds, 8, append(quantiles(ttft), q("mean", mean(step, ttft)))...)).
		WithPanel(density("TTFT, all requests", "How many requests had which time to the first token. Two bands are usual: with and without waiting, or with and without cache hits.",
			8, ttft)).
		WithPanel(byPhase(stacked("Where the time to the first token goes", "Mean of the phases before the first token, which add up to the mean TTFT. The widest band is the one to work on.",
			units.Seconds, 8, q("{{phase}}", sum("phase", rate("pd_router_phase_seconds_sum", `phase=~"read_body|queue|prefill|kv_wait"`))+
				" / on() group_left() clamp_min("+sum("", rate("pd_router_phase_seconds_count", `phase="decode"`))+", 1e-9)"))))

	d.WithRow(row("How fast?")).
		WithPanel(graph("ITL", "Time between tokens, one mean for each reply. A rise at p99 only: single clients that read slowly. A rise of all: the nodes.",
			units.Seconds, 8, append(quantiles(itl), q("mean", mean(step, itl)))...)).
		WithPanel(graph("Interactivity over time", "Tokens per second that a client sees: of the mean reply, of the slowest tenth (one over p90 of the time between tokens, as benchmarks publish it), and with all waiting included (tokens over the whole time of requests).",
			tokensPerSecond, 8, q("mean", "1 / ("+mean(step, itl)+")"), q("slowest tenth", "1 / "+quantile(0.9, step, "", itl)),
			q("end to end", part(sum("", rate("pd_router_tokens_total", completion)), sum("", rate("pd_router_phase_seconds_sum", `phase="total"`)))))).
		WithPanel(graph("Whole requests", "From the head of a request to the end of its reply, failed ones included. Long replies make it long; compare with TTFT.",
			units.Seconds, 8, quantiles("pd_router_phase_seconds", `phase="total"`)...))

	d.WithRow(row("How much?")).
		WithPanel(graph("Prompt tokens", "Prompt tokens per second, and those of them that were cached. The distance between the lines is what prefill computes.",
			tokensPerSecond, 8, q("{{kind}}", sum("kind", rate("pd_router_tokens_total", `kind=~"prompt|cached"`))))).
		WithPanel(graph("Output tokens", "Tokens of replies per second, as clients are told in usage, and those that the decode nodes generated. The latter lack the first token of each reply and hold what was generated for clients that had left.",
			tokensPerSecond, 8, q("replies", sum("", rate("pd_router_tokens_total", completion))), q("decode nodes", sum("", rate("vllm:generation_tokens_total", onWorker))))).
		WithPanel(graph("Cache hits over time", "Share of prompt tokens that the prefill node found in its cache. A fall after a restart of the prefill node is usual; one under load means that sessions push each other out.",
			units.PercentUnit, 8, q("hits", part(sum("", rate("pd_router_tokens_total", cached)), sum("", rate("pd_router_tokens_total", prompt))))).Max(1))

	return d.WithRow(row("What do they send?")).
		WithPanel(graph("Requests by endpoint", "Requests that ended per second, by what was asked for. other holds paths and methods that do not generate.",
			units.RequestsPerSecond, 6, q("{{endpoint}}", sum("endpoint", rate("pd_router_requests_total"))))).
		WithPanel(graph("Tokens per request", "Mean length of prompts and of replies. Longer prompts cost prefill and KV time, longer replies slot time.",
			units.Short, 6,
			q("prompt", part(sum("", rate("pd_router_tokens_total", prompt)), sum("", rate("pd_router_phase_seconds_count", `phase="prefill"`)))),
			q("reply", part(sum("", rate("pd_router_tokens_total", completion)), sum("", rate("pd_router_phase_seconds_count", `phase="decode"`)))))).
		WithPanel(graph("Body size", "Size of request bodies. When it nears --max-body (64 MiB unless set), requests will get 413: raise it, and --queue-max-bytes with it.",
			units.BytesIEC, 6, quantiles("pd_router_body_bytes")...)).
		WithPanel(graph("Connections", "Open connections of clients, and clients that left before the end, per second. Many connections with few requests: clients keep idle ones, which cost a little memory each.",
			units.Short, 6, q("open", "sum("+sel("pd_router_connections")+")"), q("left in {{phase}}", sum("phase", rate("pd_router_client_gone_total")))).
			OverrideByRegexp("/^left/", []dashboard.DynamicConfigValue{{Id: "unit", Value: units.CountsPerSecond}, {Id: "custom.axisPlacement", Value: string(common.AxisPlacementRight)}}))
}
