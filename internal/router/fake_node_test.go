package router

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pd-router/internal/tilert"
)

const ableToAll = `{"capabilities":{"penalties":true,"ignore_eos":true,"logprobs":true}}`

// fakeNode is a TileRT decode node of protocol 2, and a strict one: it has one slot, a request gets in only with its KV,
// and what the router does wrong to it is in misuse:
//
//   - a decode while the slot is used by a request that was not given up
//   - a decode of a rid whose KV nobody announced, or that was decoded before
//   - a cancel of what was never decoded here, or of what the node has ended itself
type fakeNode struct {
	fake
	ctrl  net.Listener
	hello int          // max_seq_len, 0: the node says no hello
	caps  string       // page of /capabilities, "": none
	blank atomic.Int32 // how often that page fails before it is there

	state    sync.Mutex
	hold     *hold
	holds    []*hold
	kv       map[string]bool
	decodes  []map[string]any // bodies of all decode calls
	refused  map[string]bool  // rids that got an answer other than 200
	cancels  []string
	seen     int      // hellos that said so
	forgets  []string // rids whose KV the node was told to let go
	partial  string   // rid whose KV has stopped half way: it has the buffer
	scripts  []nodeScript
	always   nodeScript
	crossing bool  // a client may leave in the moment in which the node ends: the cancel then comes late
	stranger bool  // when it is idle, it says that it works for somebody else
	linger   *gate // held at by each request that was given up, before its slot is free
	misuse   []string
}

// hold is one request in the slot.
type hold struct {
	rid       string
	cancelled chan struct{}
	gone      <-chan struct{} // the router closed the connection
	ended     bool            // the node has told the end itself
	cut       bool            // the node broke the connection off
	told      bool            // a cancel came, however late
}

func (h *hold) givenUp() bool {
	select {
	case <-h.cancelled:
		return true
	case <-h.gone:
		return true
	default:
		return false
	}
}

// nodeScript answers one decode call.
type nodeScript func(*decode)

// decode is one decode call in the hands of a script.
type decode struct {
	*exchange
	*hold
	node *fakeNode
	sent int // tokens
}

func newFakeNode(t *testing.T, caps string, hello int) *fakeNode {
	n := &fakeNode{caps: caps, hello: hello, kv: map[string]bool{}, refused: map[string]bool{}, always: says(hi...)}
	n.fake = fake{t: t, handler: http.HandlerFunc(n.serve)}
	var err error
	n.ctrl, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n.serving.Go(n.greet)
	return n
}

// greet is the control port: it says hello and listens to nothing.
func (n *fakeNode) greet() {
	for {
		c, err := n.ctrl.Accept()
		if err != nil {
			return
		}
		if n.hello > 0 {
			_ = tilert.WriteFrame(c, map[string]any{
				"magic": "tilert-pd", "protocol_version": 2, "layout_version": 1, "transport": "nixl", "busy": n.bufferTaken(),
				"max_seq_len": n.hello, "kv_base": 1, "pe_base": 2, "ki_base": 3,
			})
		}
		_ = c.Close()
	}
}

func (n *fakeNode) close() {
	_ = n.ctrl.Close()
	n.fake.close()
}

// die is the end of the process: what it had received is lost. The control port of a real node would be shut too.
func (n *fakeNode) die() {
	n.state.Lock()
	clear(n.kv)
	if n.hold != nil {
		n.hold.cut = true
	}
	n.state.Unlock()
	n.fake.die()
}

func (n *fakeNode) ctrlPort() int { return n.ctrl.Addr().(*net.TCPAddr).Port }

// announce is the KV of rid, which is refused while another's is there in part.
func (n *fakeNode) announce(rid string) {
	n.state.Lock()
	defer n.state.Unlock()
	n.kv[rid] = n.partial == ""
}

// begins is the KV of rid that comes in part.
func (n *fakeNode) begins(rid string) {
	n.state.Lock()
	defer n.state.Unlock()
	n.partial = rid
}

func (n *fakeNode) bufferTaken() bool {
	n.state.Lock()
	defer n.state.Unlock()
	if n.partial != "" {
		n.seen++
	}
	return n.partial != ""
}

// lookedAt is how often somebody has seen that the buffer is taken.
func (n *fakeNode) lookedAt() int {
	n.state.Lock()
	defer n.state.Unlock()
	return n.seen
}

func (n *fakeNode) wrongLocked(format string, args ...any) {
	n.misuse = append(n.misuse, fmt.Sprintf(format, args...))
}

func (n *fakeNode) serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/pd/decode":
		n.work(w, r, n.decode)
	case "/pd/cancel":
		n.work(w, r, n.cancel)
	case "/health":
		fmt.Fprint(w, `{"status":"ok"}`)
	case "/decode_status":
		n.state.Lock()
		defer n.state.Unlock()
		switch {
		case n.hold != nil:
			fmt.Fprintf(w, `{"status":"busy","current_rid":%q}`, n.hold.rid)
		case n.stranger:
			fmt.Fprint(w, `{"status":"busy","current_rid":"of-somebody-else"}`)
		default:
			fmt.Fprint(w, `{"status":"idle","current_rid":null}`)
		}
	case "/capabilities":
		if n.blank.Add(-1) >= 0 {
			http.Error(w, "not yet", 500)
			return
		}
		if n.caps == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, n.caps)
	default:
		http.NotFound(w, r)
	}
}

func (n *fakeNode) cancel(x *exchange) {
	rid, _ := x.body["rid"].(string)
	n.state.Lock()
	defer n.state.Unlock()
	n.cancels = append(n.cancels, rid)
	known := n.refused[rid]
	for _, h := range n.holds {
		if h.rid != rid {
			continue
		}
		known, h.told = true, true
		if h.ended && !n.crossing {
			n.wrongLocked("a cancel of %s, which the node had ended", rid)
		}
	}
	if !known {
		n.wrongLocked("a cancel of %s, which was never decoded here", rid)
	}
	if n.hold == nil || n.hold.rid != rid {
		x.answer(404, `{"error":"no matching in-flight request","current_rid":null}`)
		return
	}
	select {
	case <-n.hold.cancelled:
	default:
		close(n.hold.cancelled)
	}
	x.answer(200, `{"cancelled":"`+rid+`"}`)
}

func (n *fakeNode) decode(x *exchange) {
	n.state.Lock()
	if _, forget := x.body["timeout_s"]; forget { // a call that does not wait: the KV of its rid is let go
		defer n.state.Unlock()
		n.forget(x)
		return
	}
	n.decodes = append(n.decodes, x.body)
	script := n.always
	if len(n.scripts) > 0 {
		script, n.scripts = n.scripts[0], n.scripts[1:]
	}
	n.state.Unlock()
	script(&decode{exchange: x, node: n})
}

func (n *fakeNode) forget(x *exchange) {
	if n.hold != nil {
		x.answer(429, `{"error":"busy","current_rid":"`+n.hold.rid+`"}`)
		return
	}
	rid := x.body["rid"].(string)
	delete(n.kv, rid)
	if n.partial == rid {
		n.partial = ""
	}
	n.forgets = append(n.forgets, rid)
	x.answer(504, `{"error":"kv_transfer_timeout","rid":"`+rid+`"}`)
}

// admit takes the slot and waits for the KV, which is there when the router does its part. It answers what is refused.
func (d *decode) admit() bool {
	n, rid := d.node, d.body["rid"].(string)
	n.state.Lock()
	defer n.state.Unlock()
	if n.hold != nil {
		if !n.hold.givenUp() {
			n.wrongLocked("a decode of %s while %s used the slot", rid, n.hold.rid)
		}
		n.refused[rid] = true
		d.answer(429, `{"error":"busy","current_rid":"`+n.hold.rid+`"}`)
		return false
	}
	if !n.kv[rid] {
		n.wrongLocked("a decode of %s, whose KV was not announced", rid)
		n.refused[rid] = true
		d.answer(504, `{"error":"kv_transfer_timeout","rid":"`+rid+`"}`)
		return false
	}
	delete(n.kv, rid)
	if d.body["stream"] != true {
		n.wrongLocked("a decode of %s that does not stream", rid)
	}
	d.hold = &hold{rid: rid, cancelled: make(chan struct{}), gone: d.exchange.gone()}
	n.hold = d.hold
	n.holds = append(n.holds, d.hold)
	return true
}

// release is the end of the request, however it came.
func (d *decode) release() {
	if d.node.linger != nil && d.givenUp() {
		deaf(d.node.linger)(d)
	}
	d.node.state.Lock()
	defer d.node.state.Unlock()
	d.node.hold = nil
}

// script plays s for the next calls, one each.
func (n *fakeNode) script(s ...nodeScript) {
	n.state.Lock()
	defer n.state.Unlock()
	n.scripts = append(n.scripts, s...)
}

// from now on, every call is answered by s.
func (n *fakeNode) plays(s nodeScript) {
	n.state.Lock()
	defer n.state.Unlock()
	n.always = s
}

// asked are the bodies of all decode calls so far.
func (n *fakeNode) asked() []map[string]any {
	n.state.Lock()
	defer n.state.Unlock()
	return append([]map[string]any(nil), n.decodes...)
}

// rids are those of asked.
func (n *fakeNode) rids() (out []string) {
	for _, body := range n.asked() {
		out = append(out, body["rid"].(string))
	}
	return out
}

// forgotten are the rids whose KV the node was told to let go.
func (n *fakeNode) forgotten() []string {
	n.state.Lock()
	defer n.state.Unlock()
	return append([]string(nil), n.forgets...)
}

// cancelled are the rids of all cancels so far.
func (n *fakeNode) cancelled() []string {
	n.state.Lock()
	defer n.state.Unlock()
	return append([]string(nil), n.cancels...)
}

// busy says whether the slot is used.
func (n *fakeNode) busy() bool {
	n.state.Lock()
	defer n.state.Unlock()
	return n.hold != nil
}

// abandoned are the requests that nobody ended: neither the node itself nor a cancel.
func (n *fakeNode) abandoned() (out []string) {
	n.state.Lock()
	defer n.state.Unlock()
	for _, h := range n.holds {
		if !h.told && !h.ended && !h.cut {
			out = append(out, h.rid)
		}
	}
	return out
}
