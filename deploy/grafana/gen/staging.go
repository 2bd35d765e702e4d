package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// staging shows the KV that routers with --kv-handoff staged hold themselves. Others have none of these families.
func staging(d *dashboard.DashboardBuilder) {
	slots, quarantined := "pd_router_arena_slots", `state="quarantined"`
	took, bytes := "pd_router_kv_transfer_seconds", "pd_router_kv_transfer_bytes_total"
	perHop := func(num, den string) string { return part(sum("hop", rate(num)), sum("hop", rate(den))) }

	d.WithRow(row("Staging arena (--kv-handoff staged)")).
		WithPanel(coloured(stacked("Slots of the arena", "What the slots of the arena hold. None free while requests wait: more slots would prefill more ahead (--kv-arena-slots), as far as prefill keeps up. Mostly free under load: prefill is the limit, not its room.",
			slotCount, 8, q("{{state}}", sum("state", sel(slots)))), roomColours)).
		WithPanel(graph("Slot time won by overlap", "Prefill and transfer that no decode slot was held for, in slots: 1 is as much as one more decode node. Near zero under load: the arena is empty when slots get free, so prefill is the limit.",
			slotCount, 8, q("won", sum("", rate("pd_router_overlap_seconds_total"))))).
		WithPanel(graph("Quarantines", "Slots set aside because the end of a transfer is not known: how many are now, and how often it happened per second. Short ones are nodes that died in a transfer. One that stays is lost room: see PdRouterArenaSlotQuarantined in the runbook.",
			slotCount, 8, q("now", "sum("+sel(slots, quarantined)+")"), q("begun", sum("", rate("pd_router_arena_quarantines_total")))).
			OverrideByName("begun", []dashboard.DynamicConfigValue{{Id: "unit", Value: units.CountsPerSecond}, {Id: "custom.axisPlacement", Value: string(common.AxisPlacementRight)}})).
		WithPanel(graph("Speed of a KV transfer", "Bytes of a request's KV by the time that they took, on each hop. in holds what prefill computes meanwhile, out is the network alone. out falling: look at the links, and at whether RDMA is used at all.",
			units.BytesPerSecondSI, 8, q("{{hop}}", perHop(bytes, took+"_sum")))).
		WithPanel(graph("KV transfer", "Time that the KV of a request took on each hop. in rising: prefill computes longer or its network is full. out rising: decode slots are held for it, and the network to the decode nodes is the place to look.",
			units.Seconds, 8, q("p50 {{hop}}", quantile(0.5, step, "hop", took)), q("p95 {{hop}}", quantile(0.95, step, "hop", took)))).
		WithPanel(ranked(graph("Failed KV transfers", "Transfers that failed, per second, by hop and reason. unreachable, lost: a node or the network. timeout: the node's log. busy: somebody else uses the node. canceled: a client left. corrupt must never be: see the runbook.",
			units.CountsPerSecond, 8, q("{{hop}} {{reason}}", sum("hop, reason", rate("pd_router_kv_transfer_failures_total")))))).
		WithPanel(graph("Memory of the arena", "Pinned memory of all slots, and all that the process has resident, the arena included. The arena does not grow; leave room for the bodies that wait when you raise --kv-arena-slots.",
			units.BytesIEC, 12, q("arena {{instance}}", sel("pd_router_arena_bytes")), q("resident {{instance}}", sel("process_resident_memory_bytes")+" and on (job, instance) "+sel("pd_router_arena_bytes")))).
		WithPanel(graph("Size of a piece", "Mean length of the pieces of memory that a transfer consists of. The model's layers and planes set it; when it falls, prompts have become shorter, and many small pieces make a transfer slow.",
			units.BytesIEC, 12, q("{{hop}}", perHop(bytes, "pd_router_kv_transfer_descriptors_total"))))
}

// roomColours are those of the states of a slot in the arena.
var roomColours = colours{
	{"free", grey}, {"reserved", yellow}, {"receiving", orange}, {"held", green}, {"sending", blue}, {"quarantined", red},
}
