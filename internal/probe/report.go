package probe

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"pd-router/internal/nodes"
)

// Format is the version of the report's JSON. Fields may be added under the same number; none changes its meaning or goes.
const Format = 1

// Report is what a probe found. Its JSON is documented in docs/probe.md.
type Report struct {
	Format  int           `json:"format"`
	OK      bool          `json:"ok"` // no check failed
	TookMS  float64       `json:"took_ms"`
	Prefill PrefillNode   `json:"prefill"`
	Decode  []DecodeNode  `json:"decode"` // in the order of the targets
	Checks  []CheckResult `json:"checks"` // the prefill node's, each decode node's, then those of all together
}

// PrefillNode is what vLLM told.
type PrefillNode struct {
	URL    string  `json:"url"`
	Models []Model `json:"models"` // empty when it told none
}

// Model is one row of vLLM's list.
type Model struct {
	Name        string `json:"name"`
	MaxModelLen int    `json:"max_model_len"` // 0 when it is not told
}

// DecodeNode is what a decode node told.
type DecodeNode struct {
	Node         string        `json:"node"`  // host:ctrl_port:http_port
	IPs          []string      `json:"ips"`   // that the host resolves to here
	Hello        *Hello        `json:"hello"` // null when none was read
	Capabilities *Capabilities `json:"capabilities"`
	Busy         *bool         `json:"busy"` // of the slot
	RID          string        `json:"rid"`  // of the request that has it
}

// Hello is what the control plane told (spec 2.2).
type Hello struct {
	ProtocolVersion int    `json:"protocol_version"`
	LayoutVersion   int    `json:"layout_version"`
	Layout          string `json:"layout"` // profile and cache type; "" when this version does not know the number
	Transport       string `json:"transport"`
	Senders         int    `json:"senders"`
	MaxSeqLen       int    `json:"max_seq_len"`
	Shards          int    `json:"nshards"`
	Busy            bool   `json:"busy"`
	NIXLMetaBytes   int    `json:"nixl_meta_bytes"` // 0 for another transport
	NIXLAgent       string `json:"nixl_agent"`
	NIXLDev         int    `json:"nixl_dev"`
	SessionID       string `json:"session_id"` // of mooncake
}

// Capabilities of a decode node (spec 1.6).
type Capabilities struct {
	Penalties bool `json:"penalties"`
	IgnoreEOS bool `json:"ignore_eos"`
	LogProbs  bool `json:"logprobs"`
}

// CheckResult is one thing that was looked at.
type CheckResult struct {
	Node   string  `json:"node"`  // "prefill", host:ctrl_port:http_port, or "all"
	Check  string  `json:"check"` // one of the names in Names
	Status Status  `json:"status"`
	Detail string  `json:"detail"` // what was seen, or why it was not looked at
	Advice string  `json:"advice"` // what to do; "" where nothing is
	TookMS float64 `json:"took_ms"`
}

// Status is how a check ended.
type Status uint8

const (
	OK        Status = iota
	Warn             // works, with something that somebody should know
	Fail             // requests would fail
	Unchecked        // not looked at: Detail says why

	numStatuses // sizes tables
)

var statusNames = [numStatuses]string{"ok", "warn", "fail", "unchecked"}

// MarshalText is the status in JSON: ok, warn, fail or unchecked.
func (s Status) MarshalText() ([]byte, error) { return []byte(statusNames[s]), nil }

func (s Status) String() string { return statusNames[s] }

// Groups of checks that belong to no decode node.
const (
	groupPrefill = "prefill"
	groupAll     = "all"
)

// Names are all checks, in the order of a report: of the prefill node, of each decode node, of all together.
var Names = struct{ Prefill, Decode, All []string }{
	Prefill: []string{checkHealth, checkModels, checkToken, checkRequestID, checkTokenIDs},
	Decode:  []string{checkAddress, checkControl, checkHello, checkTransport, checkConnect, checkHealth, checkCapabilities, checkStatus},
	All:     []string{checkAddresses, checkHellos, checkWindow},
}

const (
	checkHealth       = "health"
	checkModels       = "models"
	checkToken        = "one-token"
	checkRequestID    = "request-id"
	checkTokenIDs     = "token-ids"
	checkAddress      = "address"
	checkControl      = "control"
	checkHello        = "hello"
	checkTransport    = "transport"
	checkConnect      = "nixl-connect"
	checkCapabilities = "capabilities"
	checkStatus       = "status"
	checkAddresses    = "addresses"
	checkHellos       = "hellos"
	checkWindow       = "window"
)

// Count is how many checks ended so.
func (r *Report) Count(s Status) (n int) {
	for i := range r.Checks {
		if r.Checks[i].Status == s {
			n++
		}
	}
	return n
}

// Of are the checks that ended so.
func (r *Report) Of(s Status) (out []CheckResult) {
	for _, c := range r.Checks {
		if c.Status == s {
			out = append(out, c)
		}
	}
	return out
}

// finding is how one look ended.
type finding struct {
	status         Status
	detail, advice string
}

func good(format string, args ...any) finding {
	return finding{OK, fmt.Sprintf(format, args...), ""}
}

func doubt(advice, format string, args ...any) finding {
	return finding{Warn, fmt.Sprintf(format, args...), advice}
}

func bad(advice, format string, args ...any) finding {
	return finding{Fail, fmt.Sprintf(format, args...), advice}
}

func unchecked(format string, args ...any) finding {
	return finding{Unchecked, fmt.Sprintf(format, args...), ""}
}

// longestDetail is how much of a detail is kept, in runes.
const longestDetail = 400

// plain makes text that may come from anywhere fit for one line of a terminal or a log (invariant 5).
func plain(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), unicode.IsSpace), " ")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > longestDetail {
		s = string(runes[:longestDetail]) + "…"
	}
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func capabilitiesOf(c nodes.Capabilities) *Capabilities {
	return &Capabilities{Penalties: c.Penalties, IgnoreEOS: c.IgnoreEOS, LogProbs: c.LogProbs}
}
