package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"

	"github.com/valyala/fasthttp"
)

// Decode is a simulated TileRT decode node: one slot, one receive buffer, a control port and an HTTP port.
type Decode struct {
	o        DecodeOptions
	protocol tilert.Protocol
	layout   tilert.Layout
	caps     map[string]bool
	faults   faults
	life     *life
	http     *listener
	ctrl     *listener
	recv     *receiver
	buffer   *arena
	via      choice
	served   chan struct{} // closed when Serve has returned
	serving  atomic.Bool
	tell     func(string)

	mu   sync.Mutex // guards slot
	slot *job       // the request that is decoded, nil if idle

	requests, busy, cancels, failed, tokens atomic.Uint64
	busyTime                                atomic.Int64
}

// DecodeCounters are a node's sums since it began.
type DecodeCounters struct {
	Requests     uint64  // decode requests that got the slot
	Busy         uint64  // decode requests that were answered 429
	Cancelled    uint64  // cancellations that met their request
	ChecksFailed uint64  // requests whose KV was wrong, and writes outside the buffer
	Tokens       uint64  // tokens written to clients
	BusySeconds  float64 // time for which the slot was taken, to its last release
}

// NewDecode checks the options. The node does nothing before Listen.
func NewDecode(o DecodeOptions) (*Decode, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Decode{o: o, caps: map[string]bool{}, life: newLife(), via: choice{want: o.Transport, load: loadNIXL}, served: make(chan struct{}), tell: func(string) {}}
	if d.layout, d.protocol, err = shape(o.Profile, o.KVDType, o.Generation); err != nil {
		return nil, err
	}
	if d.faults, err = parseFaults(o.Faults, decodeFaults); err != nil {
		return nil, err
	}
	for _, c := range o.Capabilities {
		d.caps[c] = true
	}
	return d, nil
}

// Tell has the node tell each fault that a request gets, and each KV that was wrong, in a line. Call it before Listen.
func (d *Decode) Tell(tell func(line string)) { d.tell = tell }

// Listen opens the ports and the receive buffer. The addresses are known from then on.
func (d *Decode) Listen() (err error) {
	if d.http, err = d.life.listen(d.o.HTTP); err != nil {
		return err
	}
	if d.ctrl, err = d.life.listen(d.o.Ctrl); err != nil {
		return errors.Join(err, d.http.Close())
	}
	in, err := d.openBuffer()
	if err != nil {
		return errors.Join(err, d.http.Close(), d.ctrl.Close())
	}
	d.recv = newReceiver(d.layout, d.protocol, d.o, d.buffer)
	d.recv.in = in
	return nil
}

// openBuffer makes the receive buffer, and the transport by which it is reached.
func (d *Decode) openBuffer() (inlet, error) {
	var registered *nixlInlet
	ok, err := d.via.tryNIXL(func(lib *nixl.Library) (err error) {
		d.buffer, registered, err = newNIXLArena(lib, d.o.AgentName, d.layout, d.o.MaxSeqLen, d.o.Shards)
		return err
	})
	if err != nil || ok {
		return registered, err
	}
	host, _, _ := net.SplitHostPort(d.ctrl.Addr().String())
	data, err := d.life.listen(net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	if d.buffer, err = newArena(d.layout, d.o.MaxSeqLen, d.o.Shards); err != nil {
		return nil, errors.Join(err, data.Close())
	}
	return &tcpInlet{ln: data, arena: d.buffer, bad: func() { d.failed.Add(1) }}, nil
}

// Transport tells how KV bytes come, and why in that way. It is known once the node listens.
func (d *Decode) Transport() string { return d.via.made }

// HTTPAddr returns host:port of the HTTP port.
func (d *Decode) HTTPAddr() string { return d.http.Addr().String() }

// CtrlAddr returns host:port of the control port.
func (d *Decode) CtrlAddr() string { return d.ctrl.Addr().String() }

// Node returns host:ctrl_port:http_port, as the router's --decode takes it.
func (d *Decode) Node() string {
	return d.CtrlAddr() + ":" + strconv.Itoa(d.http.port())
}

// Serve runs the node until ctx ends or Close is called, and returns when nothing of it is left.
func (d *Decode) Serve(ctx context.Context) error {
	d.serving.Store(true)
	defer close(d.served)
	defer context.AfterFunc(ctx, d.stop)()
	var ports sync.WaitGroup
	ports.Go(func() { d.http.serveHTTP(d.handle) })
	ports.Go(func() { d.ctrl.each(d.recv.converse) })
	ports.Go(d.recv.in.serve)
	ports.Wait()
	d.life.work.Wait()
	return d.buffer.free() // which fails while the transport may still write
}

// stop makes Serve return.
func (d *Decode) stop() {
	d.life.end()
	_ = d.http.Close()
	_ = d.ctrl.Close()
	_ = d.recv.in.close()
}

// Close ends the node and waits until Serve has returned. Without Serve it gives back what Listen took.
func (d *Decode) Close() error {
	if d.http == nil {
		return nil
	}
	d.stop()
	if d.serving.Load() {
		<-d.served
		return nil
	}
	return d.buffer.free()
}

// Counters returns the sums so far.
func (d *Decode) Counters() DecodeCounters {
	return DecodeCounters{
		Requests: d.requests.Load(), Busy: d.busy.Load(), Cancelled: d.cancels.Load(), ChecksFailed: d.failed.Load(), Tokens: d.tokens.Load(),
		BusySeconds: time.Duration(d.busyTime.Load()).Seconds(),
	}
}

// job is a request that has the slot.
type job struct {
	rid    string
	began  time.Time
	cancel chan struct{} // closed when the request is cancelled
	armed  bool          // a cancellation is heard: from the start, with V5 once decoding began. Guarded by Decode.mu
	over   bool          // the slot is free again. Guarded by Decode.mu
}

func (j *job) cancelled() bool {
	select {
	case <-j.cancel:
		return true
	default:
		return false
	}
}

// begin takes the slot, or returns whose it is.
func (d *Decode) begin(rid string) (j *job, current string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slot != nil {
		d.busy.Add(1)
		return nil, d.slot.rid
	}
	d.requests.Add(1)
	d.slot = &job{rid: rid, began: time.Now(), cancel: make(chan struct{}), armed: d.protocol != tilert.Protocol1}
	return d.slot, ""
}

// finish frees the slot and lets go of the KV, once.
func (d *Decode) finish(j *job) {
	d.mu.Lock()
	over := j.over
	j.over = true
	d.mu.Unlock()
	if over {
		return
	}
	d.life.wait(d.o.Linger, nil, nil)
	d.recv.release(j.rid)
	d.busyTime.Add(int64(time.Since(j.began)))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slot = nil
}

// current returns the rid of the request that has the slot, as JSON.
func (d *Decode) current() (rid any, busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.slot == nil {
		return nil, false
	}
	return d.slot.rid, true
}

// cancel cancels the request that has the slot, if it is the one.
func (d *Decode) cancelSlot(rid string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.slot
	if j == nil || j.rid != rid || !j.armed {
		return false
	}
	if !j.cancelled() {
		close(j.cancel)
		d.cancels.Add(1)
	}
	return true
}

func (d *Decode) handle(ctx *fasthttp.RequestCtx) {
	type object = map[string]any
	post := ctx.IsPost()
	switch path := string(ctx.Path()); {
	case path == "/pd/decode" && post:
		d.decode(ctx)
	case path == "/pd/cancel" && post:
		rid := cancelRID(ctx.PostBody())
		if current, _ := d.current(); !d.cancelSlot(rid) {
			sayJSON(ctx, 404, object{"error": "no matching in-flight request", "current_rid": current})
		} else {
			sayJSON(ctx, 200, object{"cancelled": rid})
		}
	case path == "/health" && ctx.IsGet():
		sayJSON(ctx, 200, object{"status": "ok"})
	case path == "/decode_status" && ctx.IsGet():
		rid, busy := d.current()
		sayJSON(ctx, 200, object{"status": map[bool]string{true: "busy", false: "idle"}[busy], "current_rid": rid})
	case path == "/capabilities" && ctx.IsGet() && d.protocol != tilert.Protocol1:
		name := map[string]string{EngineStub: "StubEngine", EngineText: "TextEngine"}[d.o.Engine]
		sayJSON(ctx, 200, object{"profile": d.layout.Profile, "engine": name, "capabilities": object{
			"penalties": d.caps["penalties"], "ignore_eos": d.caps["ignore_eos"], "logprobs": d.caps["logprobs"]}})
	case path == "/sim/counters":
		sayJSON(ctx, 200, d.Counters())
	case path == "/pd/decode" || path == "/pd/cancel" || path == "/health" || path == "/decode_status":
		sayJSON(ctx, 405, object{"detail": "Method Not Allowed"})
	default:
		sayJSON(ctx, 404, object{"detail": "Not Found"})
	}
}

func cancelRID(body []byte) string {
	var q struct {
		RID string `json:"rid"`
	}
	_ = json.Unmarshal(body, &q) // anything else matches no request
	return q.RID
}

// sayJSON answers with v as JSON.
func sayJSON(ctx *fasthttp.RequestCtx, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: %T: %v", v, err))
	}
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.SetBody(b)
}
