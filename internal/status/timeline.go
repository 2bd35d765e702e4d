package status

import (
	"pd-router/internal/metrics"
	"pd-router/internal/router"
)

// Timeline is what a slot did, second by second: for each phase a digit a second, from 0 (never in it) to 9 (all the time). A phase
// that did not come up is "", the rest of a second the slot was free.
type Timeline struct {
	From    int64  `json:"from"`    // unix second of the first digit
	Seconds int    `json:"seconds"` // digits of each phase
	Prefill string `json:"prefill,omitempty"`
	KVWait  string `json:"kv_wait,omitempty"`
	Decode  string `json:"decode,omitempty"`
	Settle  string `json:"settle,omitempty"`
	Down    string `json:"down,omitempty"`
}

// timeline encodes the seconds of v that are not before from.
func timeline(v *router.SlotLook, from int64) Timeline {
	cut := min(max(0, from-v.From), int64(len(v.Seconds)))
	past := v.Seconds[cut:]
	return Timeline{
		From: v.From + cut, Seconds: len(past),
		Prefill: digits(past, metrics.SlotPrefill), KVWait: digits(past, metrics.SlotKVWait), Decode: digits(past, metrics.SlotDecode),
		Settle: digits(past, metrics.SlotSettle), Down: digits(past, metrics.SlotDown),
	}
}

// digits are the ninths of each second in phase. A moment counts as one at least, or the shortest phase would not show.
func digits(past []router.Second, phase metrics.SlotState) string {
	out := make([]byte, len(past))
	any := false
	for i := range past {
		ms := int(past[i].Spent[phase])
		n := (ms*9 + 500) / 1000
		if ms > 0 {
			any, n = true, max(1, n)
		}
		out[i] = '0' + byte(n)
	}
	if !any {
		return ""
	}
	return string(out)
}
