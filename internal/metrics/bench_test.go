package metrics

import (
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func BenchmarkGenerated(b *testing.B) {
	n := New(prometheus.NewRegistry(), example()).Node("10.0.0.2:5556:5557")
	b.ReportAllocs()
	for b.Loop() {
		n.Generated(1)
	}
}

// All that one request reports.
func BenchmarkRequest(b *testing.B) {
	m := New(prometheus.NewRegistry(), example())
	n := m.Node("10.0.0.2:5556:5557")
	b.ReportAllocs()
	for b.Loop() {
		m.Requests.Body(4096)
		m.Queue.Waited("granted", time.Millisecond)
		n.Enter(SlotPrefill)
		n.Enter(SlotKVWait)
		n.Enter(SlotDecode)
		n.Enter(SlotFree)
		for p := range numPhases {
			m.Requests.Phase(p, 20*time.Millisecond)
		}
		m.Requests.FirstByte(30*time.Millisecond, "")
		m.Requests.InterToken(time.Second, 500)
		m.Requests.Prompt(1000, 900)
		m.Requests.Completion(500)
		m.Requests.Ended("chat", "ok", 200)
	}
}

func BenchmarkPage(b *testing.B) {
	m := New(prometheus.NewRegistry(), example())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Write(io.Discard, ""); err != nil {
			b.Fatal(err)
		}
	}
}
