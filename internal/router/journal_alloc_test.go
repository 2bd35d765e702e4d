//go:build !race

package router

import (
	"testing"
	"time"

	"pd-router/internal/engine"
	"pd-router/internal/metrics"
)

// The page's past is written by every request, watched or not: it may cost no allocation.
func TestWritingTheJournalAllocatesNothing(t *testing.T) {
	var j journal
	now := time.Now()
	l := &life{nodeName: "n", prefilled: &engine.Prefilled{RID: "r"}}
	l.times.granted, l.times.end = now, now
	ok := &failure{outcome: OK}
	for range keptServed {
		j.finished(l, ok)
	}
	if n := testing.AllocsPerRun(100, func() { j.finished(l, ok) }); n != 0 {
		t.Errorf("journal.finished allocates %v times", n)
	}
	be := newTrack(now)
	if n := testing.AllocsPerRun(100, func() {
		be.enter(metrics.SlotPrefill, nil)
		be.enter(metrics.SlotKVWait, l.prefilled)
		be.enter(metrics.SlotDecode, nil)
		be.endSequence()
		be.enter(metrics.SlotFree, nil)
	}); n != 0 {
		t.Errorf("the phases of a slot allocate %v times", n)
	}
}

func BenchmarkJournal(b *testing.B) {
	var j journal
	now := time.Now()
	l := &life{nodeName: "n", prefilled: &engine.Prefilled{RID: "r"}}
	l.times.granted, l.times.end = now, now
	ok := &failure{outcome: OK}
	be := newTrack(now)
	b.ReportAllocs()
	for b.Loop() {
		be.enter(metrics.SlotPrefill, nil)
		be.enter(metrics.SlotKVWait, l.prefilled)
		be.enter(metrics.SlotDecode, nil)
		be.endSequence()
		be.enter(metrics.SlotFree, nil)
		j.finished(l, ok)
	}
}
