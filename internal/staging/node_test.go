package staging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

func decode(t testing.TB, b []byte, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(b, v))
}

// node is a decode node's receiver.
type node struct {
	layout   tilert.Layout
	protocol tilert.Protocol
	agent    *nixl.Agent
	mem      *nixl.Memory
	base     uint64
	planes   tilert.Region
	ln       net.Listener
	visits   sync.WaitGroup
	alter    func(*tilert.Hello) // of each hello, if set; before start

	mu       sync.Mutex
	books    *tilert.Receiver
	senders  int
	requests []*tilert.Request
	conns    map[net.Conn]struct{}
	complete chan *tilert.Transfer
}

// nodeOptions are those of a node; zero is one like the real ones, with room for 256 tokens.
type nodeOptions struct {
	layout   tilert.Layout
	room     int
	protocol tilert.Protocol
	senders  int
	shards   int
	port     int // 0: any
	alter    func(*tilert.Hello)
}

func startNode(t testing.TB, o nodeOptions) *node {
	t.Helper()
	n, err := makeNode(library(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.close()) })
	return n
}

func makeNode(lib *nixl.Library, o nodeOptions) (*node, error) {
	if o.layout.Layers == 0 {
		o.layout = tiny
	}
	if o.room == 0 {
		o.room = 256
	}
	if o.protocol == 0 {
		o.protocol = tilert.Protocol2
	}
	if o.senders == 0 {
		o.senders = 8
		if o.protocol == tilert.Protocol1 {
			o.senders = 1
		}
	}
	n := &node{
		layout: o.layout, protocol: o.protocol, senders: o.senders, alter: o.alter, conns: map[net.Conn]struct{}{},
		books:    tilert.NewReceiver(tilert.ReceiverOptions{Protocol: o.protocol, Senders: o.senders, MaxSeqLen: o.room}),
		complete: make(chan *tilert.Transfer, 16),
	}
	if err := n.memory(lib, o); err != nil {
		return nil, err
	}
	var err error
	if n.ln, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port))); err != nil {
		return nil, err
	}
	n.visits.Go(n.serve)
	return n, nil
}

// memory makes the node's buffer, each shard a registration of its own.
func (n *node) memory(lib *nixl.Library, o nodeOptions) (err error) {
	if n.agent, err = lib.NewAgent(context.Background(), "decode"); err != nil {
		return err
	}
	shards := max(o.shards, 1)
	size := int(o.layout.ShardBytes(o.room, shards)+4095) / 4096 * 4096
	if n.mem, err = nixl.NewMemory(shards*size, false); err != nil {
		return err
	}
	var starts []uint64
	for i := range shards {
		r, err := n.agent.Register(context.Background(), n.mem, i*size, size)
		if err != nil {
			return err
		}
		starts = append(starts, r.Addr())
	}
	n.base, n.planes = starts[0], o.layout.Region(o.room, starts...)
	return nil
}

func (n *node) target() Target {
	a := n.ln.Addr().(*net.TCPAddr)
	return Target{Host: a.IP.String(), Port: a.Port}
}

func (n *node) close() error {
	_ = n.ln.Close()
	n.hangUp()
	n.visits.Wait()
	return errors.Join(n.agent.Close(), n.mem.Close())
}

// hangUp closes all connections.
func (n *node) hangUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		_ = c.Close()
	}
}

func (n *node) serve() {
	for {
		conn, err := n.ln.Accept()
		if err != nil {
			return
		}
		n.mu.Lock()
		n.conns[conn] = struct{}{}
		n.mu.Unlock()
		n.visits.Go(func() {
			_ = tilert.Serve(conn, n.protocol, n)
			_ = conn.Close()
			n.mu.Lock()
			delete(n.conns, conn)
			n.mu.Unlock()
		})
	}
}

func (n *node) Hello() tilert.Hello {
	n.mu.Lock()
	defer n.mu.Unlock()
	meta, err := n.agent.Metadata(context.Background())
	if err != nil {
		return tilert.Hello{} // no sender takes that
	}
	h := tilert.Hello{Magic: tilert.Magic, Protocol: n.protocol, LayoutVersion: n.layout.Version, Transport: "nixl", Senders: n.senders, NixlMeta: meta}
	h.SetRegion(n.planes)
	h.KVBase, h.PEBase, h.KIBase = slices.Clone(h.KVBase), slices.Clone(h.PEBase), slices.Clone(h.KIBase) // alter may write
	if n.alter != nil {
		n.alter(&h)
	}
	return h
}

func (n *node) Admit(q *tilert.Request) (tilert.Reply, *tilert.Writer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests = append(n.requests, q)
	return n.books.Admit(time.Now(), q)
}

func (n *node) Done(w *tilert.Writer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t, ok := n.books.Done(w); ok {
		n.complete <- t
	}
}

func (n *node) Leave(w *tilert.Writer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.books.Leave(w)
}

func (n *node) release(rid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.books.Release(time.Now(), rid)
}

func (n *node) expect(rid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.books.Expect(rid)
}

// asked are the requests that have come.
func (n *node) asked() []*tilert.Request {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.requests)
}

// writers is how many connections the node takes for live ones.
func (n *node) writers() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.books.Writers()
}

// holds compares what the node has with what prefill sent.
func (n *node) holds(p *prefill, tokens int) error {
	all := n.mem.Bytes()
	for layer := range n.layout.Layers {
		for plane := range tilert.NumPlanes {
			want := p.at(plane, layer, tokens)
			at := n.layout.Address(n.planes, plane, layer) - n.base
			if !bytes.Equal(all[at:at+uint64(len(want))], want) {
				return fmt.Errorf("layer %d, %s plane: other bytes", layer, plane)
			}
		}
	}
	return nil
}

// took waits for a transfer and checks that the node has all of it.
func (n *node) took(t testing.TB, rid string, p *prefill, tokens int) {
	t.Helper()
	select {
	case got := <-n.complete:
		require.Equal(t, rid, got.RID)
		require.Equal(t, tokens, got.SeqLen)
		require.NoError(t, n.holds(p, tokens))
	case <-time.After(10 * time.Second):
		t.Fatal("nothing arrived")
	}
}
