package router

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"pd-router/internal/nodes"
	"pd-router/internal/queue"
)

// Missing lists, for operators, what keeps the router from serving or from being ready now; empty when nothing does. It may name nodes.
func (r *Router) Missing() []string {
	out := r.cannotServe()
	if why := r.withheld.Load(); why != nil {
		out = append(out, *why)
	}
	return out
}

// cannotServe lists what keeps the router from serving, in words that clients may read.
func (r *Router) cannotServe() []string {
	var out []string
	if !r.prefill.Up() {
		out = append(out, "the prefill node (--vllm-url) does not answer")
	}
	up := 0
	for _, be := range r.backends {
		if be.Up() {
			up++
		}
	}
	if up == 0 {
		out = append(out, fmt.Sprintf("no decode node (--decode) answers, of %d", len(r.backends)))
	}
	if why := r.arena.missing(); why != "" {
		out = append(out, why)
	}
	return out
}

// WasReady says whether the prefill node and one decode node have each answered once, the arena of a staged router is open, and
// nobody withholds the router.
func (r *Router) WasReady() bool {
	return r.withheld.Load() == nil && r.arena.missing() == "" && r.haveAnswered()
}

// Health is the body of GET /health.
type Health struct {
	Status     string   `json:"status"` // "ok" once the router was ready, before that "starting"
	DecodeFree int      `json:"decode_free"`
	DecodeUp   int      `json:"decode_up"`
	QueueDepth int      `json:"queue_depth"`
	Missing    []string `json:"missing,omitempty"`
}

// Health tells whether the router serves, and what is missing now. ok is false until it was ready once.
func (r *Router) Health() (h Health, ok bool) {
	st := r.Stats()
	h = Health{Status: "ok", DecodeFree: st.Slots[queue.Free], QueueDepth: st.Waiting, Missing: r.Missing()}
	if sick := r.prefill.Sick(); sick != "" {
		h.Missing = append(h.Missing, "the prefill node is not well: "+sick)
	}
	for _, be := range r.backends {
		if be.Up() {
			h.DecodeUp++
		} else if err := be.Err(); err != nil {
			h.Missing = append(h.Missing, "decode node "+be.slot.Name()+" is down")
		}
	}
	if ok = r.WasReady(); !ok {
		h.Status = "starting"
		if len(h.Missing) == 0 {
			h.Missing = []string{"not every node has answered yet"}
		}
	}
	return h, ok
}

// PoolNode is one node in the body of GET /pool_status.
type PoolNode struct {
	Host  string `json:"host"`
	Busy  bool   `json:"busy"`
	Name  string `json:"name"`
	State string `json:"state"`
	Up    bool   `json:"up"`
}

// Pool is the body of GET /pool_status.
type Pool struct {
	Nodes      []PoolNode `json:"nodes"`
	QueueDepth int        `json:"queue_depth"`
}

// Pool tells what each slot is doing.
func (r *Router) Pool() Pool {
	st := r.Stats()
	p := Pool{QueueDepth: st.Waiting, Nodes: make([]PoolNode, len(st.Rows))}
	for i, row := range st.Rows {
		be := r.backends[i]
		p.Nodes[i] = PoolNode{
			Host: be.Address.Host, Name: row.Name, State: row.State.String(), Up: be.Up(),
			Busy: row.State == queue.Busy || row.State == queue.Settling,
		}
	}
	return p
}

// Pass sends a request to the prefill node as it is and returns the node's answer.
func (r *Router) Pass(ctx context.Context, method, path string, header, body []byte) (*Reply, error) {
	call := &nodes.Call{Method: method, Path: path, Header: header, HeadTimeout: r.opts.PrefillTimeout, IdleTimeout: r.opts.StreamIdleTimeout}
	if body != nil {
		call.Body = [][]byte{body}
	}
	resp, err := r.prefill.Do(ctx, call)
	if err != nil {
		return nil, err
	}
	defer resp.Close()
	answer, err := resp.ReadAll(maxPrefillAnswer)
	if err != nil {
		return nil, err
	}
	return &Reply{Status: resp.Status, ContentType: resp.ContentType, Body: answer}, nil
}

// listWait is how long the prefill node may take to tell its models before the list stands in that it told last.
const listWait = 2 * time.Second

// Models is the prefill node's model list, asked now or, while the node does not answer, as it was last read; nil when there
// is none.
func (r *Router) Models(ctx context.Context, header []byte) *Reply {
	asking, cancel := context.WithTimeoutCause(ctx, r.listWait, nodes.ErrTimeout)
	defer cancel()
	if p, err := r.Pass(asking, "GET", "/v1/models", header, nil); err == nil && p.Status < 500 {
		return p
	}
	if page := r.prefill.Models().Page; page != nil && json.Valid(page) {
		return &Reply{Status: 200, ContentType: typeJSON, Body: page}
	}
	return nil
}
