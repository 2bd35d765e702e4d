package tilert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Protocol is the generation of the control plane. TileRT 0.1.5 speaks 1, the 0.1.6 line speaks 2.
type Protocol int

const (
	Protocol1 Protocol = 1 // no answer to a request that is admitted; a tenancy may be replaced under a live writer
	Protocol2 Protocol = 2 // accept or reject, always, and generations
)

// Magic opens every hello.
const Magic = "tilert-pd"

// DefaultSenders is how many ranks of a prefill node send KV by default (TILERT_PD_SENDERS of the 0.1.6.post3 line).
const DefaultSenders = 8

// DefaultCtrlPort is the control port of a decode node whose address names none.
const DefaultCtrlPort = 5556

// Hello is what a receiver says first on every connection (spec 2.2). Reading one has no effect on the receiver.
type Hello struct {
	Magic         string
	Protocol      Protocol // a hello without the field is protocol 1
	LayoutVersion int
	Transport     string // "nixl" or "mooncake"
	MaxSeqLen     int
	Busy          bool // advisory only
	Senders       int  // ranks that must send, 1 if the hello does not say

	SessionID string // mooncake: host:port of its transfer engine
	NixlMeta  []byte // nixl: agent metadata
	NixlDev   int    // nixl: device id of the registered memory
	DataPort  int    // tcp, the transport of this project's simulators: port that takes the writes

	// Base addresses of the planes. One of each, or one for each shard of a sharded buffer.
	KVBase, PEBase, KIBase []uint64
}

// helloJSON is a Hello on the wire.
type helloJSON struct {
	Magic         string   `json:"magic"`
	Protocol      Protocol `json:"protocol_version,omitempty"`
	LayoutVersion int      `json:"layout_version"`
	Transport     string   `json:"transport"`
	MaxSeqLen     int      `json:"max_seq_len"`
	Busy          bool     `json:"busy"`
	SessionID     string   `json:"session_id,omitempty"`
	NixlMeta      []byte   `json:"nixl_meta,omitempty"`
	NixlDev       *int     `json:"nixl_dev,omitempty"`
	DataPort      int      `json:"data_port,omitempty"`
	Senders       int      `json:"senders,omitempty"`
	Shards        int      `json:"nshards,omitempty"`
	KVBase        bases    `json:"kv_base"`
	PEBase        bases    `json:"pe_base"`
	KIBase        bases    `json:"ki_base"`
}

// MarshalJSON writes the hello of its protocol: 1 has neither a version nor senders.
func (h Hello) MarshalJSON() ([]byte, error) {
	w := helloJSON{
		Magic: h.Magic, LayoutVersion: h.LayoutVersion, Transport: h.Transport, MaxSeqLen: h.MaxSeqLen, Busy: h.Busy,
		SessionID: h.SessionID, NixlMeta: h.NixlMeta, DataPort: h.DataPort, KVBase: h.KVBase, PEBase: h.PEBase, KIBase: h.KIBase,
	}
	if h.Protocol >= Protocol2 {
		w.Protocol, w.Senders = h.Protocol, h.Senders
	}
	if len(h.KVBase) > 1 {
		w.Shards = len(h.KVBase)
	}
	if len(h.NixlMeta) > 0 {
		w.NixlDev = &h.NixlDev
	}
	return json.Marshal(w)
}

// ParseHello reads the payload of a receiver's first frame. It checks types and that the bases are as many as the
// shards; whether the receiver is the right one is for Want.Check.
func ParseHello(b []byte) (*Hello, error) {
	w := helloJSON{Protocol: Protocol1, Senders: 1, Shards: 1}
	if err := unmarshalObject(b, &w); err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	h := &Hello{
		Magic: w.Magic, Protocol: w.Protocol, LayoutVersion: w.LayoutVersion, Transport: w.Transport, MaxSeqLen: w.MaxSeqLen, Busy: w.Busy,
		Senders: w.Senders, SessionID: w.SessionID, NixlMeta: w.NixlMeta, DataPort: w.DataPort, KVBase: w.KVBase, PEBase: w.PEBase, KIBase: w.KIBase,
	}
	if w.NixlDev != nil {
		h.NixlDev = *w.NixlDev
	}
	if n := max(w.Shards, 1); h.Magic == Magic && (len(h.KVBase) != n || len(h.PEBase) != n || len(h.KIBase) != n) {
		return nil, fmt.Errorf("hello: %d, %d and %d plane bases for %d shards", len(h.KVBase), len(h.PEBase), len(h.KIBase), n)
	}
	return h, nil
}

// bases is one address, or a list of them on a sharded buffer.
type bases []uint64

func (a bases) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]uint64(a))
}

func (a *bases) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]uint64)(a))
	}
	*a = make(bases, 1)
	return json.Unmarshal(b, &(*a)[0])
}

// Request is what a sending rank answers to a hello: it asks to write its share of one request's KV.
type Request struct {
	RID             string          `json:"rid"`
	Rank            int             `json:"rank"`
	SeqLen          int             `json:"seq_len"`
	LastPromptToken int             `json:"last_prompt_token"`
	Sampling        json.RawMessage `json:"sampling"`                     // null in practice
	AdmissionWindow Seconds         `json:"admission_window_s,omitempty"` // protocol 2: how long the sender will go on asking, all pauses together
	PromptTokenIDs  []int           `json:"prompt_token_ids,omitempty"`   // protocol 2, rank 0: only with a repetition penalty
	KVScales        json.RawMessage `json:"kv_scales,omitempty"`          // protocol 2, ROCm flat fp8
}

// ParseRequest reads a sender's request. One without rid, rank or seq_len, or with other types, is an error: the peer
// closes the connection without an answer then.
func ParseRequest(b []byte) (*Request, error) {
	var w struct {
		Request
		RID    *string `json:"rid"`
		Rank   *int    `json:"rank"`
		SeqLen *int    `json:"seq_len"`
	}
	if err := unmarshalObject(b, &w); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if w.RID == nil || w.Rank == nil || w.SeqLen == nil {
		return nil, fmt.Errorf("request: rid, rank and seq_len are required")
	}
	w.Request.RID, w.Request.Rank, w.Request.SeqLen = *w.RID, *w.Rank, *w.SeqLen
	return &w.Request, nil
}

// Seconds is a duration that the wire carries as a number of seconds.
type Seconds time.Duration

func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// UnmarshalJSON takes null for zero and keeps what it reads within 0 and an hour: a stranger's window may not keep a
// tombstone for ever.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var f *float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	if *s = 0; f != nil {
		*s = Seconds(math.Min(math.Max(*f, 0), 3600) * float64(time.Second))
	}
	return nil
}

// Done says that a rank has written all it had. The receiver of protocol 2 goes by the generation that the connection
// was admitted to, not by the one in here.
type Done struct {
	Done       bool   `json:"done"`
	RID        string `json:"rid"`
	Rank       int    `json:"rank"`
	Generation uint64 `json:"generation,omitempty"` // protocol 2
}

// ParseDone reads a sender's last message.
func ParseDone(b []byte) (*Done, error) {
	d := new(Done)
	if err := unmarshalObject(b, d); err != nil {
		return nil, fmt.Errorf("done: %w", err)
	}
	if !d.Done {
		return nil, fmt.Errorf("done: not a done message")
	}
	return d, nil
}

// unmarshalObject is json.Unmarshal for an object and nothing else.
func unmarshalObject(b []byte, v any) error {
	if b = bytes.TrimLeft(b, " \t\r\n"); len(b) == 0 || b[0] != '{' {
		return fmt.Errorf("not a JSON object")
	}
	return json.Unmarshal(b, v)
}
