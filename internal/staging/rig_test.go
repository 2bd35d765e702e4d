package staging

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sync/errgroup"

	"pd-router/internal/nixl"
	"pd-router/internal/nixl/nixltest"
	"pd-router/internal/tilert"
)

// tiny is a cache of a few layers, so that transfers take a moment.
var tiny = tilert.Tiny

var openLibrary = sync.OnceValues(func() (*nixl.Library, error) { return nixl.Open(nixl.Options{Path: nixltest.Path()}) })

// library is the real one, or the end of the test: skipped here, failed in CI, where nothing may go untested.
func library(t testing.TB) *nixl.Library {
	t.Helper()
	nixltest.Need(t)
	lib, err := openLibrary()
	require.NoError(t, err)
	return lib
}

// soon is a context that is long enough for whatever works.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// watch remembers what the hooks told.
type watch struct {
	mu        sync.Mutex
	states    map[*Slot][]State
	transfers []Transfer
	news      chan struct{} // closed and replaced at each
}

func newWatch() *watch { return &watch{states: map[*Slot][]State{}, news: make(chan struct{})} }

func (w *watch) hooks() Hooks {
	change := func(f func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		f()
		close(w.news)
		w.news = make(chan struct{})
	}
	return Hooks{
		State:    func(s *Slot, now State) { change(func() { w.states[s] = append(w.states[s], now) }) },
		Transfer: func(t Transfer) { change(func() { w.transfers = append(w.transfers, t) }) },
	}
}

// await waits until what the hooks told satisfies ok, which runs under the lock.
func (w *watch) await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		now, news := ok(), w.news
		w.mu.Unlock()
		if now {
			return
		}
		select {
		case <-news:
		case <-deadline:
			t.Fatal("waited in vain for " + what)
		}
	}
}

// free waits until the slot has been given back.
func (w *watch) free(t testing.TB, s *Slot) {
	t.Helper()
	w.await(t, s.name+" to be free", func() bool {
		l := w.states[s]
		return len(l) == 0 || l[len(l)-1] == Free
	})
}

// arena is one that runs, with a watch on it; closed at the end of the test.
func openArena(t testing.TB, o Options) (*Arena, *watch) {
	t.Helper()
	library(t)
	w := newWatch()
	o.Library, o.Observe, o.Host = nixltest.Path(), w.hooks(), "127.0.0.1"
	if o.Layout.Layers == 0 {
		o.Layout = tiny
	}
	if o.MaxSeqLen == 0 {
		o.MaxSeqLen = 4096
	}
	if o.Slots == 0 && o.Sizes == nil {
		o.Sizes = []Size{{1, 192}}
	}
	if o.Log == nil {
		o.Log = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	}
	a, err := Open(soon(t), o)
	require.NoError(t, err)
	ran := make(chan error, 1)
	go func() { ran <- a.Run(context.Background()) }()
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, <-ran)
	})
	return a, w
}

// side is memory with an agent.
type side struct {
	agent  *nixl.Agent
	mem    *nixl.Memory
	region *nixl.Region
}

func newSide(t testing.TB, lib *nixl.Library, role string, n int64) *side {
	t.Helper()
	s, err := makeSide(lib, role, n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return s
}

func makeSide(lib *nixl.Library, role string, n int64) (*side, error) {
	agent, err := lib.NewAgent(context.Background(), role)
	if err != nil {
		return nil, err
	}
	mem, err := nixl.NewMemory(int(n), false)
	if err != nil {
		return nil, err
	}
	region, err := agent.Register(context.Background(), mem, 0, int(n))
	return &side{agent, mem, region}, err
}

func (s *side) close() error { return errors.Join(s.agent.Close(), s.mem.Close()) }

// prefill is a prefill node's connector: it sends what is in its memory, whose layout has room for room tokens.
type prefill struct {
	*side
	layout  tilert.Layout
	room    int
	senders int
}

func newPrefill(t testing.TB, layout tilert.Layout, room, senders int) *prefill {
	t.Helper()
	p := &prefill{newSide(t, library(t), "prefill", layout.Bytes(room)), layout, room, senders}
	p.fill(1)
	return p
}

func (p *prefill) fill(seed byte) {
	rand.NewChaCha8([32]byte{seed}).Read(p.mem.Bytes())
}

// at is a row of the memory, n tokens of one layer of a plane.
func (p *prefill) at(plane tilert.Plane, layer, n int) []byte {
	off := p.layout.Address(p.layout.Region(p.room, 0), plane, layer)
	return p.mem.Bytes()[off : off+uint64(p.layout.RowBytes(plane, n))]
}

// send is all ranks of a request, at the same time. Each gets q with its own rank.
func (p *prefill) send(ctx context.Context, s *Slot, q tilert.Request) error {
	var ranks errgroup.Group
	for rank := range p.senders {
		ranks.Go(func() error { return p.rank(ctx, s.Host(), s.CtrlPort(), rank, q, nil) })
	}
	return ranks.Wait()
}

// rank is one of them. before, if set, runs when it was let in.
func (p *prefill) rank(ctx context.Context, host string, port, rank int, q tilert.Request, before func() error) error {
	q.Rank = rank
	sender := &tilert.Sender{
		Request: q,
		Want:    tilert.Want{Protocol: tilert.Protocol2, LayoutVersion: p.layout.Version, Senders: p.senders, Transport: "nixl"},
	}
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		err = sender.Converse(conn, func(h *tilert.Hello) error {
			if before != nil {
				if err := before(); err != nil {
					return err
				}
			}
			return p.write(ctx, h, rank, q.SeqLen)
		})
		_ = conn.Close()
		var again *tilert.RetryError
		if !errors.As(err, &again) {
			return err
		}
		if !sleep(ctx, again.Pause) {
			return ctx.Err()
		}
	}
}

func (p *prefill) write(ctx context.Context, h *tilert.Hello, rank, n int) error {
	peer, err := p.agent.AddPeer(ctx, h.NixlMeta)
	if err != nil {
		return err
	}
	from := p.layout.Region(p.room, p.region.Addr())
	var spans []nixl.Span
	for _, w := range p.layout.Plan(from, h.Region(), rank, p.senders, n) {
		spans = append(spans, nixl.Span{Off: int(w.Src - p.region.Addr()), Len: w.Len, Addr: w.Dst})
	}
	return peer.Write(ctx, p.region, spans)
}

// asker is a rank that only talks.
type asker struct {
	conn  net.Conn
	hello *tilert.Hello
	reply struct {
		Accepted   bool
		Error      string
		Detail     string
		Generation uint64
		BusyRID    string `json:"busy_rid"`
		BusyState  string `json:"busy_state"`
	}
	q tilert.Request
}

// ask connects to the slot as a rank and reads the answer. The connection is closed at the end of the test.
func ask(t testing.TB, s *Slot, q tilert.Request) *asker {
	t.Helper()
	conn, err := net.Dial("tcp4", net.JoinHostPort(s.Host(), strconv.Itoa(s.CtrlPort())))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	a := &asker{conn: conn, q: q}
	b, err := tilert.ReadFrame(conn, nil)
	require.NoError(t, err)
	a.hello, err = tilert.ParseHello(b)
	require.NoError(t, err)
	require.NoError(t, tilert.WriteFrame(conn, q))
	b, err = tilert.ReadFrame(conn, nil)
	require.NoError(t, err)
	decode(t, b, &a.reply)
	return a
}

func (a *asker) done(t testing.TB) {
	t.Helper()
	require.NoError(t, tilert.WriteFrame(a.conn, tilert.Done{Done: true, RID: a.q.RID, Rank: a.q.Rank, Generation: a.reply.Generation}))
	_, err := a.conn.Read(make([]byte, 1)) // the slot closes when it has noted it
	require.Error(t, err)
}

// handshake has all ranks say done without a byte, which a receiver cannot tell from a transfer.
func handshake(t testing.TB, s *Slot, rid string, n int) {
	t.Helper()
	for rank := range s.a.o.Senders {
		r := ask(t, s, tilert.Request{RID: rid, Rank: rank, SeqLen: n})
		require.True(t, r.reply.Accepted, "rank %d: %+v", rank, r.reply)
		r.done(t)
	}
}

// expect is Expect that works.
func expect(t testing.TB, s *Slot, rid string) *KV {
	t.Helper()
	kv, err := s.Expect(rid)
	require.NoError(t, err)
	t.Cleanup(kv.Release)
	return kv
}

// received is a KV that prefill p has sent.
func received(t testing.TB, s *Slot, p *prefill, q tilert.Request) *KV {
	t.Helper()
	kv := expect(t, s, q.RID)
	require.NoError(t, p.send(soon(t), s, q))
	require.NoError(t, kv.Receive(soon(t), q.RID))
	return kv
}

// reason is the Reason of an error that must be one.
func reason(t testing.TB, err error) Reason {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, e.Reason)
	return e.Reason
}

func rid(i int) string { return fmt.Sprintf("%032x", i) }
