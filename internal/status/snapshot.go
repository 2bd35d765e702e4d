package status

import (
	"math"
	"time"

	"pd-router/internal/metrics"
	"pd-router/internal/queue"
	"pd-router/internal/router"
	"pd-router/internal/staging"
)

// shownWaiters is how much of the line is shown.
const shownWaiters = 50

// rateSeconds is over how many seconds a rate of tokens is taken: few enough to follow, enough to be calm.
const rateSeconds = 10

// Snapshot is the router at one moment: the body of GET /queue and the data of the feed. Times that end in _s are seconds.
type Snapshot struct {
	Time    string    `json:"time"`              // RFC 3339, UTC
	Version string    `json:"version,omitempty"` // not in updates
	UptimeS float64   `json:"uptime_s"`
	State   string    `json:"state"`             // starting, ok or draining
	Missing []string  `json:"missing,omitempty"` // what is not there now, for people
	Line    Line      `json:"line"`
	Rates   Rates     `json:"rates"`
	Prefill Prefill   `json:"prefill"`
	Arena   *Arena    `json:"arena,omitempty"` // of a staged router only
	Slots   []Slot    `json:"slots"`
	Recent  []Request `json:"recent"`           // that ended last, oldest first; in updates: since the one before
	Config  []Setting `json:"config,omitempty"` // not in updates
}

// Line is the waiting line.
type Line struct {
	Waiting  int      `json:"waiting"`
	Max      int      `json:"max"`
	Bytes    int64    `json:"bytes"` // of the bodies that wait
	MaxBytes int64    `json:"max_bytes"`
	OldestS  float64  `json:"oldest_s"`
	Paused   bool     `json:"paused"` // no slot is given out, as the prefill node is down
	First    []Waiter `json:"first"`  // at most 50
}

// Waiter is one request in the line.
type Waiter struct {
	Position  int      `json:"position"` // 1 is next
	WaitedS   float64  `json:"waited_s"`
	Bytes     int64    `json:"bytes"`
	StartsInS *float64 `json:"starts_in_s"` // estimate from how long slots were held lately; null when nothing is known
}

// Rates are of the last whole minute, that of tokens of the last ten seconds.
type Rates struct {
	Requests int     `json:"requests_per_min"`
	Refused  int     `json:"refused_429_per_min"`
	Tokens   float64 `json:"tokens_per_s"`
}

// Prefill is the prefill node.
type Prefill struct {
	Addr    string `json:"addr"`
	Up      bool   `json:"up"`
	Trouble string `json:"trouble,omitempty"` // what its own health page complains about
}

// Arena is the memory in which requests of a staged router wait with their KV ready.
type Arena struct {
	Slots   map[string]int `json:"slots"`    // how many are in each state
	Bytes   int64          `json:"bytes"`    // memory of all slots
	KVReady int            `json:"kv_ready"` // of those who wait
}

// Slot is one decode node with its slot.
type Slot struct {
	Node    string             `json:"node"`
	Up      bool               `json:"up"`
	Phase   string             `json:"phase"`
	SinceS  float64            `json:"since_s"` // how long it has been in that phase
	RID     string             `json:"rid,omitempty"`
	Tokens  int                `json:"tokens"` // of the present reply
	TokensS float64            `json:"tokens_per_s"`
	KVUsage float64            `json:"kv_usage"`
	Shares  map[string]float64 `json:"shares"` // of the last five minutes, by phase
	Past    Timeline           `json:"timeline"`
}

// Request is one that has ended.
type Request struct {
	Seq        uint64  `json:"seq"`
	Ended      string  `json:"ended"` // RFC 3339, UTC
	Endpoint   string  `json:"endpoint"`
	Outcome    string  `json:"outcome"`
	Status     int     `json:"status"`
	Stream     bool    `json:"stream"`
	Attempts   int     `json:"attempts"`
	Node       string  `json:"node,omitempty"`
	RID        string  `json:"rid,omitempty"`
	BodyBytes  int     `json:"body_bytes"`
	Prompt     int     `json:"prompt_tokens"`
	Completion int     `json:"completion_tokens"`
	Phases     Phases  `json:"phases_s"`
	TotalS     float64 `json:"total_s"`
	ErrorType  string  `json:"error_type,omitempty"`
	Param      string  `json:"param,omitempty"`
	Error      string  `json:"error,omitempty"`
}

// Phases are what the parts of a request took; one that was not reached is left out.
type Phases struct {
	ReadBody float64 `json:"read_body,omitempty"`
	Queue    float64 `json:"queue,omitempty"`
	Prefill  float64 `json:"prefill,omitempty"`
	KVWait   float64 `json:"kv_wait,omitempty"`
	Decode   float64 `json:"decode,omitempty"`
}

// Setting is one flag in force.
type Setting struct {
	Flag    string `json:"flag"`
	Value   string `json:"value"`
	Default bool   `json:"default"` // the value is the flag's default
}

// since is the end of what a watcher has already.
type since struct {
	seq    uint64
	second int64
}

// whole is the snapshot of a newcomer.
func (a About) whole(v *router.Look, started time.Time) Snapshot {
	s := snapshot(v, started, since{})
	s.Version, s.Config = a.Version, a.Settings
	return s
}

// snapshot shows v. Of the past it holds only what came after seen.
func snapshot(v *router.Look, started time.Time, seen since) Snapshot {
	s := Snapshot{
		Time: stamp(v.At), UptimeS: seconds(v.At.Sub(started)), State: state(v), Missing: v.Missing,
		Line: Line{
			Waiting: v.Line.Waiting, Max: v.MaxCount, Bytes: v.Line.Bytes, MaxBytes: v.MaxBytes,
			OldestS: seconds(v.Line.Oldest), Paused: v.Line.Paused, First: make([]Waiter, len(v.Waiters)),
		},
		Rates:   Rates{Requests: v.Ended, Refused: v.Refused},
		Prefill: Prefill{Addr: v.Prefill.Addr, Up: v.Prefill.Up, Trouble: v.Prefill.Sick},
		Slots:   make([]Slot, len(v.Slots)),
		Recent:  []Request{},
	}
	if v.Arena != nil {
		s.Arena = arena(v.Arena)
	}
	starts := estimate(v)
	for i, w := range v.Waiters {
		s.Line.First[i] = waiter(i, w, v.At)
		if starts != nil {
			in := seconds(starts[i])
			s.Line.First[i].StartsInS = &in
		}
	}
	for i := range v.Slots {
		s.Slots[i] = slot(&v.Slots[i], v.At, seen.second)
		s.Rates.Tokens += s.Slots[i].TokensS
	}
	s.Rates.Tokens = round(s.Rates.Tokens, 10)
	for i := range v.Finished {
		if v.Finished[i].Seq > seen.seq {
			s.Recent = append(s.Recent, request(&v.Finished[i]))
		}
	}
	return s
}

// end is where v ends: what the next update begins after.
func end(v *router.Look) since {
	s := since{second: v.At.Unix()}
	if n := len(v.Finished); n > 0 {
		s.seq = v.Finished[n-1].Seq
	}
	return s
}

func state(v *router.Look) string {
	switch {
	case v.Line.Draining:
		return "draining"
	case !v.Ready:
		return "starting"
	}
	return "ok"
}

func waiter(i int, w queue.WaiterRow, now time.Time) Waiter {
	return Waiter{Position: i + 1, WaitedS: seconds(now.Sub(w.Since)), Bytes: w.Bytes}
}

func arena(v *router.ArenaLook) *Arena {
	a := &Arena{Slots: map[string]int{}, Bytes: v.Bytes, KVReady: v.Ready}
	for st, n := range v.Slots {
		a.Slots[staging.State(st).String()] = n
	}
	return a
}

func slot(v *router.SlotLook, now time.Time, from int64) Slot {
	s := Slot{
		Node: v.Node, Up: v.Up, Phase: v.Phase.String(), SinceS: seconds(now.Sub(v.Since)), RID: v.RID, Tokens: v.Tokens,
		KVUsage: round(v.KVUsage, 1000), Shares: map[string]float64{}, Past: timeline(v, from),
	}
	last := v.Seconds[max(0, len(v.Seconds)-rateSeconds):]
	tokens := 0
	for _, second := range last {
		tokens += int(second.Tokens)
	}
	if len(last) > 0 {
		s.TokensS = round(float64(tokens)/float64(len(last)), 10)
	}
	var spent [router.NumPhases]int
	all := 0
	for _, second := range v.Seconds {
		for p, ms := range second.Spent {
			spent[p] += int(ms)
			all += int(ms)
		}
	}
	for p, ms := range spent {
		if ms > 0 {
			s.Shares[metrics.SlotState(p).String()] = round(float64(ms)/float64(all), 1000)
		}
	}
	return s
}

func request(f *router.Finished) Request {
	return Request{
		Seq: f.Seq, Ended: stamp(f.End), Endpoint: f.Endpoint.String(), Outcome: f.Outcome.String(), Status: f.Status, Stream: f.Stream,
		Attempts: f.Attempts, Node: f.Node, RID: f.RID, BodyBytes: f.BodyBytes, Prompt: f.PromptTokens, Completion: f.CompletionTokens,
		Phases: Phases{
			ReadBody: seconds(f.ReadBody), Queue: seconds(f.Queue), Prefill: seconds(f.Prefill),
			KVWait: seconds(f.KVWait), Decode: seconds(f.Decode),
		},
		TotalS: seconds(f.Total), ErrorType: f.ErrorType, Param: f.Param, Error: f.Error,
	}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func seconds(d time.Duration) float64 { return round(d.Seconds(), 1000) }

// round keeps as many steps to one as it is told.
func round(x, steps float64) float64 { return math.Round(x*steps) / steps }
