package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// slotStates are the numbers of the band panel: the sum over states of a state's number, as exactly one of them is 1.
var slotStates = []state{
	{"0", "free", grey}, {"1", "prefill", yellow}, {"2", "KV wait", orange}, {"3", "decode", green}, {"4", "settle", purple}, {"5", "down", red},
}

// slotNumber gives each node the number of its slot's state.
func slotNumber() string {
	is := func(state string) string {
		return "max by (node) (" + sel("pd_router_slot_state", onNode, `state="`+state+`"`) + ")"
	}
	return is("prefill") + " + 2 * " + is("kv_wait") + " + 3 * " + is("decode") + " + 4 * " + is("settle") + " + 5 * " + is("down")
}

// slotsAndKV shows what the slots are held for and where KV and tokens are slow.
func slotsAndKV() *dashboard.DashboardBuilder {
	held := func(by string, matchers ...string) string {
		return sum(by, rate("pd_router_slot_seconds_total", append([]string{onNode}, matchers...)...))
	}
	before := `step!="decode"`
	count := "count(" + sel("pd_router_slots_busy", onNode) + ")"
	d := frame("pd-router-slots", "Slots and KV", "What the decode slots are held for, how KV comes over, and how fast the nodes generate. A slot is worth most while it decodes.").
		WithVariable(nodes()).WithVariable(model())

	d.WithRow(row("Now")).
		WithPanel(number("Decoding", "Share of all slot time in which nodes generate tokens. This is what the hardware is for. Low while requests wait: see what else slots are held for.",
			units.PercentUnit, 4, plain(), now("decode", held("", `phase="decode"`)+" / "+count))).
		WithPanel(number("Held, not decoding", "Share of the held slot time that is prefill, KV wait or settling. High while requests wait: a faster prefill node or network gains more than another decode node.",
			units.PercentUnit, 4, steps(0.3, orange, 0.5, red), now("overhead", part(held("", `phase!="decode"`), held(""))))).
		WithPanel(number("Slots in use", "Slots that requests hold now. All of them with a line waiting: the nodes are fully used.",
			slotCount, 4, plain(), now("in use", "sum("+sel("pd_router_slots_busy", onNode)+")"))).
		WithPanel(number("Fullest KV", "The running sequence of a node as a share of the longest that it takes. At 100 % replies end for want of room (finish_reason length): raise the node's window or shorten prompts.",
			units.PercentUnit, 4, steps(0.8, orange, 0.95, red), now("KV", "max("+sel("vllm:kv_cache_usage_perc", onWorker)+")"))).
		WithPanel(number("Speed while decoding", "Tokens per second of a node while its slot decodes: what one client sees. It falls when a node has become slower (clocks, a neighbour on the machine, long contexts).",
			tokensPerSecond, 4, plain(), now("speed", part(sum("", rate("vllm:generation_tokens_total", onWorker)), held("", `phase="decode"`))))).
		WithPanel(number("Settling", "Slot time that goes into waiting until nodes let go of cancelled requests. Above a few percent: nodes are slow to cancel, or clients leave all the time.",
			units.PercentUnit, 4, steps(0.05, orange, 0.2, red), now("settle", held("", `phase="settle"`)+" / "+count)))

	d.WithRow(row("Use of the slots")).
		WithPanel(byPhase(stacked("Share of slot time", "What the slots were held for, of all their time. The rest is free. With a line waiting the sum should be near 100 % and decode most of it.",
			units.PercentUnit, 12, q("{{phase}}", held("phase")+" / on() group_left() "+count)).Max(1))).
		WithPanel(bands("State of each slot", "What each slot is held for, over time. Long purple: the node does not let go of a cancelled request. Red: it does not answer. Grey while requests wait: none of them may use that node.",
			12, slotStates, q("{{node}}", slotNumber()))).
		WithPanel(graph("In use, by node", "Share of the time in which each node's slot was held. The first node of --decode is preferred, so differences at low load are usual; under full load all should be near 100 %.",
			units.PercentUnit, 8, q("{{node}}", held("node"))).Max(1)).
		WithPanel(graph("Decoding, by node", "Share of the time in which each node generated tokens. A node far below the others under load loses its time to prefill, KV or settling.",
			units.PercentUnit, 8, q("{{node}}", held("node", `phase="decode"`))).Max(1)).
		WithPanel(graph("Running and waiting", "Requests that decode nodes work on, and requests in the line. Waiting with nothing running: prefill or a node that is down holds them up.",
			units.Short, 8, q("running", "sum("+sel("vllm:num_requests_running", onWorker)+")"), q("waiting", "sum("+sel("vllm:num_requests_waiting", `component="router"`, `model_name=~"$model"`)+")")))

	d.WithRow(row("Handoff")).
		WithPanel(graph("Prefill", "Time from the prefill request to its answer. Rising: the prefill node is loaded, prompts are longer, or its cache hits less (Clients and tokens shows hits).",
			units.Seconds, 6, quantiles("pd_router_phase_seconds", `phase="prefill"`)...)).
		WithPanel(graph("KV wait", "Time from the decode request to the node's first line: what of the KV transfer prefill did not hide, and the start of decoding. Rising: look at the network between the nodes.",
			units.Seconds, 6, quantiles("pd_router_phase_seconds", `phase="kv_wait"`)...)).
		WithPanel(stacked("What nodes do before they decode", "Mean time of the steps that nodes report themselves. wire_wait: the KV comes late, so look at prefill and the network. convert and inject: the node's own host is busy.",
			units.Seconds, 6, q("{{step}}", sum("step", rate("pd_router_node_step_seconds_sum", before))+" / clamp_min("+sum("step", rate("pd_router_node_step_seconds_count", before))+", 1e-9)"))).
		WithPanel(graph("Letting go", "Slot time spent settling, by node, and requests cancelled on nodes per second. Settling without cancels follows failed calls: the router leaves such a node alone for a moment.",
			units.PercentUnit, 6, q("settling {{node}}", held("node", `phase="settle"`)),
			q("cancelled in {{phase}}", sum("phase", rate("pd_router_cancels_total")))).
			OverrideByRegexp("/^cancelled/", []dashboard.DynamicConfigValue{{Id: "unit", Value: units.CountsPerSecond}, {Id: "custom.axisPlacement", Value: "right"}}))

	staging(d)
	return d.WithRow(row("KV and decoding")).
		WithPanel(graph("KV in use", "Length of the running sequence of each node as a share of its window. Reaching 100 % ends replies early.",
			units.PercentUnit, 8, q("{{worker_id}}", "max by (worker_id) ("+sel("vllm:kv_cache_usage_perc", onWorker)+")")).Max(1)).
		WithPanel(graph("Sequence", "Tokens of the sequence that each node works on, prompt and reply. Long sequences cost KV time before the first token and make each token a little slower.",
			units.Short, 8, q("{{node}}", "max by (node) ("+sel("pd_router_node_sequence_tokens", onNode)+")")).AxisLabel("tokens")).
		WithPanel(graph("Tokens per speculative step", "Tokens that one step of speculative decoding gave, one mean for each reply. Falling: nodes generate slower, as the draft layer does not fit the text or sampling is hotter. Nothing here: the nodes do not report it.",
			units.Short, 8, q("mean", mean(step, "pd_router_mtp_accepted_tokens")), q("lowest tenth", quantile(0.1, step, "", "pd_router_mtp_accepted_tokens")))).
		WithPanel(graph("Speed while decoding, by node", "Tokens per second of each node while it decodes. All nodes of one kind should be equal; one that is lower has a problem of its own.",
			tokensPerSecond, 12, q("{{worker_id}}", sum("worker_id", rate("vllm:generation_tokens_total", onWorker))+
				` / on(worker_id) clamp_min(label_replace(`+held("node", `phase="decode"`)+`, "worker_id", "$1", "node", "(.*)"), 1e-9)`))).
		WithPanel(stacked("Generated tokens", "Tokens that the nodes generated per second, without the first of each reply, which prefill samples. Falling while requests wait: a node has become slower or settles.",
			tokensPerSecond, 12, q("{{worker_id}}", sum("worker_id", rate("vllm:generation_tokens_total", onWorker)))))
}
