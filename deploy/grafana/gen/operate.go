package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// Outcomes that are the fault of the router, its nodes or their number, and not of the request or its client.
const lost = `outcome=~"queue_full|queue_timeout|draining|prefill_failed|decode_busy|decode_refused|decode_failed|stream_failed|internal"`

// operate answers the three questions of somebody who was woken up: is it healthy, who waits, and why.
func operate() *dashboard.DashboardBuilder {
	d := frame("pd-router-operate", "Operate", "Is it healthy, who waits, and why. Begin here; docs/runbook.md says what to do about each alert.").
		WithVariable(nodes())

	d.WithRow(row("Is it healthy?")).
		WithPanel(number("Prefill node", "Whether the vLLM prefill node answers. Down: every request waits, none is lost before --queue-timeout. Look at vLLM's log and at the network.",
			units.NoUnit, 3, steps(), now("prefill", "min("+sel("pd_router_prefill_up")+")")).Mappings(mapped(upOrDown))).
		WithPanel(number("Decode nodes down", "Decode nodes that do not answer. They get no requests until they do; the others carry on. Look at the log of the node that the panel Nodes names.",
			units.Short, 3, steps(1.0, red), now("down", "count("+sel("pd_router_node_up", onNode)+") - sum("+sel("pd_router_node_up", onNode)+")"))).
		WithPanel(number("Slots in use", "Share of the decode slots that requests hold now. At 100 % with a line waiting the nodes are fully used: add decode nodes, or look at Slots and KV for time that is held and not decoded.",
			units.PercentUnit, 3, plain(), now("in use", "avg("+sel("pd_router_slots_busy", onNode)+")"))).
		WithPanel(number("Waiting", "Requests that wait for a decode slot now. Above zero for long: add decode nodes or lower the concurrency of the clients.",
			units.Short, 3, plain(), now("waiting", "sum("+sel("pd_router_queue_depth")+")"))).
		WithPanel(number("Longest wait", "How long the request that came first has waited. When it nears --queue-timeout (1800 s unless set), requests are about to be refused.",
			units.Seconds, 3, steps(900.0, orange, 1500.0, red), now("oldest", "max("+sel("pd_router_queue_oldest_seconds")+")"))).
		WithPanel(number("Lost requests", "Share of requests that failed for want of a slot or by a node's fault; bad requests and clients that left do not count. Above 1 %: the row What goes wrong tells which. A benchmark client gives up at 10 %.",
			units.PercentUnit, 3, steps(0.01, orange, 0.05, red),
			now("lost", part(sum("", rate("pd_router_requests_total", lost)), sum("", rate("pd_router_requests_total")))))).
		WithPanel(number("Requests", "Requests that end per second, however they end. None while clients run: look whether they reach the router at all (Connections).",
			units.RequestsPerSecond, 3, plain(), now("requests", sum("", rate("pd_router_requests_total"))))).
		WithPanel(number("Build", "Version of the router and the engine pair that it speaks to. Two versions at once: an update is under way, or stuck.",
			units.NoUnit, 3, plain(),
			now("{{version}} {{dialect}}", sum("version, dialect", sel("pd_router_build_info")+" * on (job, instance) group_left (dialect) "+sel("pd_router_config_info")))).TextMode(common.BigValueTextModeName))

	d.WithRow(row("Who waits?")).
		WithPanel(byPhase(stacked("Requests in the router", "Requests that wait, and those that hold a slot by what the slot is held for. A growing line above full slots is load; a growing line above empty slots is a fault: see Nodes.",
			units.Short, 12, q("waiting", "sum("+sel("pd_router_queue_depth")+")"),
			q("{{state}}", sum("state", sel("pd_router_slot_state", onNode, `state=~"prefill|kv_wait|decode|settle"`)))))).
		WithPanel(graph("Wait for a slot", "How long requests that got a slot had waited for it. Rising: more load than slots, or replies became longer. Add decode nodes or lower the concurrency of the clients.",
			units.Seconds, 12, quantiles("pd_router_queue_wait_seconds", `outcome="granted"`)...)).
		WithPanel(graph("How waits end", "Waits that ended per second, by how. Only granted is good: full and expired want more nodes, a longer --queue-timeout or higher limits, client_gone a longer time-out in the client.",
			units.RequestsPerSecond, 8, q("{{outcome}}", sum("outcome", rate("pd_router_queue_wait_seconds_count"))))).
		WithPanel(graph("Longest wait over time", "Age of the request at the head of the line. A straight climb means that nothing is granted: see Nodes. A saw-tooth is a line that moves.",
			units.Seconds, 8, q("oldest", "max("+sel("pd_router_queue_oldest_seconds")+")"))).
		WithPanel(graph("Line against its limits", "How full the line is, by number of requests (--queue-max) and by bytes of their bodies (--queue-max-bytes), and how much of --queue-timeout the longest wait has used. At 100 % newcomers, or those who wait, get 429: raise the limit if there is memory, or add decode nodes.",
			units.PercentUnit, 8,
			q("requests", "sum("+sel("pd_router_queue_depth")+") / sum("+sel("pd_router_queue_limit", `limit="waiters"`)+")"),
			q("bytes", "sum("+sel("pd_router_queue_bytes")+") / sum("+sel("pd_router_queue_limit", `limit="bytes"`)+")"),
			q("time", "max("+sel("pd_router_queue_oldest_seconds")+" / ("+sel("pd_router_queue_timeout_seconds")+" > 0))")))

	d.WithRow(row("Why?")).
		WithPanel(byPhase(stacked("Where the time of a request goes", "Mean time that requests spent in each phase. queue: too few slots. prefill: a loaded prefill node or a cold cache. kv_wait: the network between the nodes. decode: long replies or slow nodes. read_body: slow uploads.",
			units.Seconds, 12, q("{{phase}}", sum("phase", rate("pd_router_phase_seconds_sum", `phase!="total"`))+
				" / on() group_left() clamp_min("+sum("", rate("pd_router_phase_seconds_count", `phase="total"`))+", 1e-9)")))).
		WithPanel(bands("Nodes", "Whether each node answers. A gap or a red band: that node gets no requests. Red prefill stops everything; one red decode node costs its share of the slots.",
			12, upOrDown, q("prefill", "min("+sel("pd_router_prefill_up")+")"), q("{{node}}", "min by (node) ("+sel("pd_router_node_up", onNode)+")"))).
		WithPanel(byPhase(stacked("What slots are held for", "Share of all slot time, by what the slot was held for. What is missing to 100 % is free. Much prefill or kv_wait while requests wait: a faster prefill node or network gains more than another decode node.",
			units.PercentUnit, 8, q("{{phase}}", sum("phase", rate("pd_router_slot_seconds_total", onNode))+" / on() group_left() count("+sel("pd_router_slots_busy", onNode)+")")).Max(1))).
		WithPanel(byPhase(graph("Slow phases", "95th percentile of the phases before the first token. The one that rises is the one to look at.",
			units.Seconds, 8, q("{{phase}}", quantile(0.95, step, "phase", "pd_router_phase_seconds", `phase=~"read_body|queue|prefill|kv_wait"`))))).
		WithPanel(graph("What the router adds", "The whole time of requests without the upload, the line and both nodes. Milliseconds or less. Rising: the router's host is short of CPU (see CPU), or clients read slower than nodes write.",
			units.Seconds, 8, quantiles("pd_router_added_seconds")...))

	d.WithRow(row("What goes wrong?")).
		WithPanel(ranked(graph("Requests by outcome", "Requests that ended other than well, per second. queue_*: more nodes or a longer bound. prefill_*, decode_*, stream_failed: the node's own log. invalid, unavailable: the client asks for what it cannot have. internal: report it.",
			units.RequestsPerSecond, 8, q("{{outcome}}", sum("outcome", rate("pd_router_requests_total", `outcome!="ok"`)))))).
		WithPanel(graph("Requests by status", "HTTP statuses per second, as clients see them. 429 and 503: no slot in time. 502 and 504: a node failed. 4xx: the client. 200 holds replies that broke off too; Requests by outcome has them as stream_failed.",
			units.RequestsPerSecond, 8, q("{{code}}", sum("code", rate("pd_router_requests_total"))))).
		WithPanel(ranked(graph("Failed calls to nodes", "Calls that failed, per second, by leg and by how. connect: the node is down. connection, truncated: it died in the middle. timeout: it hangs. status, line, error_line: it answers, but badly; see its log.",
			units.CountsPerSecond, 8, q("{{leg}} {{class}}", sum("leg, class", rate("pd_router_upstream_errors_total")))))).
		WithPanel(graph("Second tries", "Calls or attempts that were made again, per second. pair costs a prefill each. decode_busy: somebody else than this router uses the node, which is a mistake in the set-up.",
			units.CountsPerSecond, 8, q("{{reason}}", sum("reason", rate("pd_router_retries_total"))))).
		WithPanel(graph("Clients that left", "Clients that closed the connection before the end, per second, by the phase they left in. queue: their time-out is shorter than --queue-timeout. decode: they had enough, or a time-out for the whole reply.",
			units.CountsPerSecond, 8, q("{{phase}}", sum("phase", rate("pd_router_client_gone_total"))))).
		WithPanel(graph("Cancelled on the node", "Decode requests that the router cancelled, per second, by phase. decode is usual with stop strings and clients that leave. kv_wait rising: KV does not come, or clients give up while it does.",
			units.CountsPerSecond, 8, q("{{phase}}", sum("phase", rate("pd_router_cancels_total")))))

	return d.WithRow(row("The process")).
		WithPanel(graph("CPU", "Cores that the router uses. It forwards tokens and should need a small part of one core; more means very many streams or a fault worth a profile.",
			units.Short, 6, q("{{instance}}", "rate("+sel("process_cpu_seconds_total")+"["+step+"])")).AxisLabel("cores")).
		WithPanel(graph("Memory", "Resident memory, with the bodies of waiting requests, which are most of it under load. The bound is --queue-max-bytes and what runs; leave room for both.",
			units.BytesIEC, 6, q("resident {{instance}}", sel("process_resident_memory_bytes")), q("waiting bodies", "sum("+sel("pd_router_queue_bytes")+")"))).
		WithPanel(graph("Connections and goroutines", "Open connections of clients, and goroutines. Connections that rise without requests are opened and not used or closed; goroutines that rise without connections are a leak: report it.",
			units.Short, 6, q("connections", "sum("+sel("pd_router_connections")+")"), q("goroutines {{instance}}", sel("go_goroutines")))).
		WithPanel(graph("Open files", "Share of the file descriptors that the process may have. Near 100 % connections are refused: raise the limit (LimitNOFILE, ulimit -n); each request takes up to three.",
			units.PercentUnit, 6, q("{{instance}}", sel("process_open_fds")+" / "+sel("process_max_fds"))))
}
