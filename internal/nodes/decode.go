package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"pd-router/internal/tilert"
)

const (
	helloTimeout  = time.Second      // the control port answers at once or not at all
	capsTimeout   = 2 * time.Second  // as the TileRT router allows
	capsRefresh   = 60 * time.Second // an engine's capabilities change with a restart only
	capsRetry     = time.Second      // after a page that could not be read
	smallReply    = 1 << 20          // status pages and error bodies
	cancelTimeout = 5 * time.Second
	forgetTimeout = 30 * time.Second // KV that was complete after all is converted first
)

// Address is where a decode node listens: --decode host:ctrl:http.
type Address struct {
	Host     string // without brackets, as the prefill node's sender wants it
	CtrlPort int
	HTTPPort int
}

func (a Address) String() string { return fmt.Sprintf("%s:%d:%d", a.Host, a.CtrlPort, a.HTTPPort) }

// Capabilities are what a node's /capabilities page declares; all false when there is no such page, as on nodes
// of protocol 1.
type Capabilities struct {
	Page      bool `json:"page"` // there is such a page
	Penalties bool `json:"penalties"`
	IgnoreEOS bool `json:"ignore_eos"`
	LogProbs  bool `json:"logprobs"`
}

// Decode is one TileRT decode node.
type Decode struct {
	*health
	*Upstream
	Address Address

	onChange func(*Decode, bool, error)
	caps     atomic.Pointer[Capabilities]
	hello    atomic.Pointer[tilert.Hello]
	greet    chan struct{} // asks the hello reader for a look; never closed

	capsMu sync.Mutex
	capsAt time.Time     // next time to read the page of capabilities
	unread chan struct{} // there while the page could not be read; closed by Run's goroutine when that was tried again
}

// NewDecode returns the client of a node. onChange is told when it goes up or down, or its capabilities changed,
// from the goroutine of Run or of Failed.
func NewDecode(a Address, o Options, onChange func(d *Decode, up bool, err error)) (*Decode, error) {
	up, err := NewUpstream("http://"+net.JoinHostPort(a.Host, strconv.Itoa(a.HTTPPort)), o)
	if err != nil {
		return nil, err
	}
	d := &Decode{Upstream: up, Address: a, onChange: onChange, greet: make(chan struct{}, 1)}
	d.caps.Store(&Capabilities{})
	d.health = newHealth(d.look, d.changed)
	return d, nil
}

// Capabilities as they were last read.
func (d *Decode) Capabilities() Capabilities { return *d.caps.Load() }

// Reread is nil when the page of capabilities was read, whatever it said. Else nothing is known, which counts as no capabilities:
// it has the page read again at once, and returns a channel that is closed when that was tried.
func (d *Decode) Reread() <-chan struct{} {
	d.capsMu.Lock()
	defer d.capsMu.Unlock()
	if d.unread != nil {
		d.capsAt = time.Time{}
		d.health.nudge()
	}
	return d.unread
}

// capsDue says whether it is time to read the page of capabilities, and takes that on: when capsAt becomes zero while it is read, what was
// read may be of a process that is no more.
func (d *Decode) capsDue() bool {
	d.capsMu.Lock()
	defer d.capsMu.Unlock()
	due := time.Now().After(d.capsAt)
	if due {
		d.capsAt = time.Now().Add(capsRefresh)
	}
	return due
}

// capsTried notes what came of reading the page, and ends the wait of Reread.
func (d *Decode) capsTried(err error) {
	d.capsMu.Lock()
	defer d.capsMu.Unlock()
	if d.unread != nil {
		close(d.unread)
	}
	d.unread = nil
	if err == nil {
		return
	}
	d.unread = make(chan struct{})
	if !d.capsAt.IsZero() {
		d.capsAt = time.Now().Add(capsRetry)
	}
}

// Hello is what the control plane told last, or nil when it has told nothing.
func (d *Decode) Hello() *tilert.Hello { return d.hello.Load() }

// Run keeps the knowledge of the node fresh until ctx ends.
func (d *Decode) Run(ctx context.Context) {
	greeted := make(chan struct{})
	go func() { // ended by ctx, awaited below
		defer close(greeted)
		d.readHellos(ctx)
	}()
	d.health.Run(ctx)
	<-greeted
}

// changed is told by health; a node that comes up may be another process than before.
func (d *Decode) changed(up bool, err error) {
	if up {
		select {
		case d.greet <- struct{}{}:
		default:
		}
	} else {
		d.capsMu.Lock()
		d.capsAt = time.Time{}
		d.capsMu.Unlock()
	}
	d.onChange(d, up, err)
}

// look is the probe: the health page, and the capabilities when they are due. They come before the node counts
// as up, so that the first request finds them.
func (d *Decode) look(ctx context.Context) error {
	status, _, err := d.get(ctx, "/health")
	if err != nil {
		return err
	}
	if status >= 500 {
		return fmt.Errorf("%s: GET /health answered %d", d.Addr(), status)
	}
	if d.capsDue() {
		caps, err := d.readCapabilities(ctx)
		if old := d.caps.Swap(&caps); *old != caps && d.Up() {
			d.onChange(d, true, nil)
		}
		d.capsTried(err)
	}
	return nil
}

func (d *Decode) readCapabilities(ctx context.Context) (Capabilities, error) {
	reading, cancel := context.WithTimeoutCause(ctx, capsTimeout, ErrTimeout)
	defer cancel()
	status, page, err := d.get(reading, "/capabilities")
	if err != nil {
		return Capabilities{}, err
	}
	if status != http.StatusOK && status != http.StatusNotFound {
		return Capabilities{}, fmt.Errorf("GET /capabilities answered %d", status)
	}
	caps := ParseCapabilities(page)
	caps.Page = status == http.StatusOK
	return caps, nil
}

// ParseCapabilities reads the page: the object itself or one under "capabilities"; only JSON true counts.
func ParseCapabilities(page []byte) Capabilities {
	var outer map[string]json.RawMessage
	if json.Unmarshal(page, &outer) != nil {
		return Capabilities{}
	}
	declared := outer
	if inner, ok := outer["capabilities"]; ok {
		declared = nil
		if json.Unmarshal(inner, &declared) != nil {
			return Capabilities{}
		}
	}
	has := func(name string) bool { return string(declared[name]) == "true" }
	return Capabilities{Penalties: has("penalties"), IgnoreEOS: has("ignore_eos"), LogProbs: has("logprobs")}
}

// readHellos reads one hello each time the node has come up. A node that sends none is used all the same: the hello
// adds knowledge, and reading it has no effect on the node.
func (d *Decode) readHellos(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.greet:
		}
		if hello, err := d.readHello(ctx); err == nil {
			d.hello.Store(hello)
			d.onChange(d, d.Up(), nil)
		}
	}
}

func (d *Decode) readHello(ctx context.Context) (*tilert.Hello, error) {
	dialer := net.Dialer{Timeout: helloTimeout}
	c, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(d.Address.Host, strconv.Itoa(d.Address.CtrlPort)))
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(helloTimeout))
	frame, err := tilert.ReadFrame(c, nil)
	if err != nil {
		return nil, err
	}
	return tilert.ParseHello(frame)
}

// ReceiverBusy asks whether the node's receive buffer is taken by a transfer that is not complete: the KV of any other request
// would be refused (spec 2.3). A node that has never told a hello is not asked: it would only be waited for.
func (d *Decode) ReceiverBusy(ctx context.Context) (bool, error) {
	if d.Hello() == nil {
		return false, nil
	}
	hello, err := d.readHello(ctx)
	if err != nil {
		return false, err
	}
	return hello.Busy, nil
}

// Forget makes the node let go of rid's KV, however much of it has come, and refuse the rest (spec 2.3). There is no call for that
// alone: it is a decode request that does not wait. done is false when the node is at work, and so has not heard of it.
func (d *Decode) Forget(ctx context.Context, rid string) (done bool, err error) {
	body, err := json.Marshal(map[string]any{"rid": rid, "first_token_id": 0, "max_tokens": 1, "timeout_s": 0.001, "stream": false})
	if err != nil {
		return false, err
	}
	resp, err := d.Do(ctx, &Call{Method: "POST", Path: "/pd/decode", Body: [][]byte{body}, HeadTimeout: forgetTimeout, IdleTimeout: probeTimeout})
	if err != nil {
		return false, err
	}
	defer resp.Close()
	_, err = resp.ReadAll(smallReply)
	return resp.Status != http.StatusTooManyRequests, err
}

// Status asks which request the node is working on: "" when it is idle.
func (d *Decode) Status(ctx context.Context) (rid string, busy bool, err error) {
	status, page, err := d.get(ctx, "/decode_status")
	if err != nil {
		return "", false, err
	}
	if status != http.StatusOK {
		return "", false, nil // a node without this page says no more than that it answers
	}
	var s struct {
		Status     string  `json:"status"`
		CurrentRID *string `json:"current_rid"`
	}
	if err := json.Unmarshal(page, &s); err != nil {
		return "", false, fmt.Errorf("%s: GET /decode_status: %w", d.Addr(), err)
	}
	if s.CurrentRID != nil {
		rid = *s.CurrentRID
	}
	return rid, s.Status == "busy", nil
}

// Cancel asks the node to end the request rid. A node that does not have it answers 404, which is no error.
func (d *Decode) Cancel(ctx context.Context, rid string) error {
	body, err := json.Marshal(map[string]string{"rid": rid})
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, cancelTimeout, ErrTimeout)
	defer cancel()
	resp, err := d.Do(bounded, &Call{Method: "POST", Path: "/pd/cancel", Body: [][]byte{body}})
	if err != nil {
		return err
	}
	defer resp.Close()
	_, err = resp.ReadAll(smallReply)
	return err
}
