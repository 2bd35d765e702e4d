package nixl

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeDriver stands for the library where its behaviour must be chosen or time must be fake. It moves no bytes; it watches that the rules
// of the library are kept, and complains at the end of the test.
type fakeDriver struct {
	mu         sync.Mutex
	next       handle
	agents     map[handle]string
	regs       map[handle]handle       // registration -> agent
	loaded     map[string][]byte       // peer -> blob
	reqs       map[handle]*fakeRequest // not released
	calls      map[string]int          // how often each method was called
	complaints []string

	begin  func(peer string, n int) Code // what a post says; nil: in progress
	refuse map[string]Code               // method -> what it says instead of working, once
	block  map[string]chan struct{}      // method -> it comes back when this is closed
}

type fakeRequest struct {
	peer   string
	blob   string // of the generation that it was made for
	status Code
	inUse  bool
}

func newFakeDriver(t testing.TB) *fakeDriver {
	d := makeFakeDriver()
	t.Cleanup(func() { require.Empty(t, d.complained(), "the rules of the library were broken") })
	return d
}

func makeFakeDriver() *fakeDriver {
	return &fakeDriver{
		next: 1, agents: map[handle]string{}, regs: map[handle]handle{}, loaded: map[string][]byte{}, reqs: map[handle]*fakeRequest{},
		calls: map[string]int{}, refuse: map[string]Code{}, block: map[string]chan struct{}{},
	}
}

func (d *fakeDriver) complained() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.complaints
}

func (d *fakeDriver) complain(format string, args ...any) {
	d.complaints = append(d.complaints, fmt.Sprintf(format, args...))
}

// enter counts a call, blocks it if that is wanted, and returns with the mutex held and what the call must say.
func (d *fakeDriver) enter(method string) error {
	d.mu.Lock()
	d.calls[method]++
	if wait := d.block[method]; wait != nil {
		d.mu.Unlock()
		<-wait
		d.mu.Lock()
	}
	if code, ok := d.refuse[method]; ok {
		delete(d.refuse, method)
		return &CallError{Call: method, Code: code, Kind: ErrRefused}
	}
	return nil
}

func (d *fakeDriver) newHandle() handle {
	d.next++
	return d.next
}

func (d *fakeDriver) createAgent(name string) (handle, error) {
	err := d.enter("createAgent")
	defer d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	h := d.newHandle()
	d.agents[h] = name
	return h, nil
}

func (d *fakeDriver) destroyAgent(agent handle) error {
	err := d.enter("destroyAgent")
	defer d.mu.Unlock()
	if err != nil {
		return err
	}
	if _, ok := d.agents[agent]; !ok {
		d.complain("agent destroyed twice")
	}
	if len(d.reqs) > 0 || len(d.regs) > 0 {
		d.complain("agent destroyed with %d requests and %d registrations", len(d.reqs), len(d.regs))
	}
	delete(d.agents, agent)
	return nil
}

func (d *fakeDriver) register(agent handle, _, _ uint64) (handle, error) {
	err := d.enter("register")
	defer d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	h := d.newHandle()
	d.regs[h] = agent
	return h, nil
}

func (d *fakeDriver) deregister(agent, registration handle) error {
	err := d.enter("deregister")
	defer d.mu.Unlock()
	if err != nil {
		return err
	}
	if d.regs[registration] != agent {
		d.complain("deregistered what is not registered")
	}
	delete(d.regs, registration)
	return nil
}

func (d *fakeDriver) localMetadata(agent handle) ([]byte, error) {
	err := d.enter("localMetadata")
	defer d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return fakeBlob(d.agents[agent], 1), nil
}

func (d *fakeDriver) load(_ handle, blob []byte, name string) error {
	err := d.enter("load")
	defer d.mu.Unlock()
	if err != nil {
		return err
	}
	if old, ok := d.loaded[name]; ok && string(old) != string(blob) {
		return &CallError{Call: "load_remote_md", Peer: name, Code: NotAllowed, Kind: ErrRefused}
	}
	d.loaded[name] = blob
	return nil
}

func (d *fakeDriver) invalidate(_ handle, name string) error {
	err := d.enter("invalidate")
	defer d.mu.Unlock()
	if err != nil {
		return err
	}
	for _, r := range d.reqs {
		if r.peer == name && r.inUse {
			d.complain("metadata of %s dropped under a running call", name)
		}
	}
	delete(d.loaded, name)
	return nil
}

func (d *fakeDriver) start(_ handle, peer string, _ MemType, spans []span) started {
	err := d.enter("start")
	defer d.mu.Unlock()
	if err != nil {
		return started{code: err.(*CallError).Code, call: "create_xfer_req"}
	}
	if d.loaded[peer] == nil {
		d.complain("write to %s, which is not loaded", peer)
	}
	code := InProgress
	if d.begin != nil {
		code = d.begin(peer, len(spans))
	}
	if code != InProgress {
		return started{code: code, call: "post_xfer_req", posted: true}
	}
	h := d.newHandle()
	d.reqs[h] = &fakeRequest{peer: peer, blob: string(d.loaded[peer]), status: InProgress}
	return started{code: InProgress, req: h, posted: true}
}

func (d *fakeDriver) poll(_ handle, reqs []handle, status []Code, t tick) {
	time.Sleep(t.pause)
	_ = d.enter("poll")
	var mine []*fakeRequest
	for i, h := range reqs {
		r := d.reqs[h]
		switch {
		case r == nil:
			d.complain("request used after its release")
			continue
		case r.inUse:
			d.complain("request used twice at once")
		case string(d.loaded[r.peer]) != r.blob:
			d.complain("request used after the metadata of %s was replaced", r.peer)
		}
		r.inUse = true
		mine = append(mine, r)
		status[i] = r.status
	}
	d.mu.Unlock()
	time.Sleep(t.spin) // others may do what they must not do meanwhile
	d.mu.Lock()
	for _, r := range mine {
		r.inUse = false
	}
	d.mu.Unlock()
}

func (d *fakeDriver) release(_, req handle) error {
	err := d.enter("release")
	defer d.mu.Unlock()
	if r := d.reqs[req]; r == nil || r.inUse {
		d.complain("request released that is in use or gone")
	}
	delete(d.reqs, req)
	return err
}

// finish gives every request of a peer its end.
func (d *fakeDriver) finish(peer string, code Code) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.reqs {
		if r.peer == peer {
			r.status = code
		}
	}
}

func (d *fakeDriver) count(method string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls[method]
}

// fakeBlob is metadata with one registration of 1 GB at address 1<<32; generation makes it differ.
func fakeBlob(name string, generation byte) []byte {
	m := Metadata{
		Agent:    name,
		Conns:    []Conn{{backendUCX, []byte{0x20, generation}}},
		Sections: []Section{{backendUCX, DRAM, []Desc{{Addr: fakeBase, Len: 1 << 30, Key: []byte{generation}}}}},
	}
	return m.Marshal()
}

const fakeBase = 1 << 32
