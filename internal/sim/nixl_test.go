package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheHelloSaysHowToReachTheMemory(t *testing.T) {
	needNIXL(t)
	r := newRig(t, PrefillOptions{Transport: TransportNIXL}, DecodeOptions{Transport: TransportNIXL, Shards: 3})
	h := r.d.recv.Hello()
	assert.Equal(t, []any{TransportNIXL, 0, 0}, []any{h.Transport, h.NixlDev, h.DataPort})
	m, err := nixl.ParseMetadata(h.NixlMeta)
	require.NoError(t, err)
	assert.Equal(t, r.d.recv.in.(*nixlInlet).agent.Name(), m.Agent)
	require.Len(t, m.Sections, 1, "host memory and nothing else")
	assert.Equal(t, nixl.DRAM, m.Sections[0].Mem)
	require.Len(t, m.Sections[0].Descs, 1, "one region, all shards")
	assert.Equal(t, []uint64{r.d.buffer.base, uint64(len(r.d.buffer.mem)), 0},
		[]uint64{m.Sections[0].Descs[0].Addr, m.Sections[0].Descs[0].Len, m.Sections[0].Descs[0].Dev})
	assert.Contains(t, r.d.Transport(), "nixl (UCX ")
	assert.Contains(t, r.p.Transport(), os.Getenv(nixl.PathVariable))
}

// Nodes of other makes keep the name of their agent when they start again; the one that writes to them must not notice.
func TestANodeThatKeepsItsAgentsName(t *testing.T) {
	needNIXL(t)
	r := newRig(t, PrefillOptions{Transport: TransportNIXL}, DecodeOptions{Transport: TransportNIXL, AgentName: t.Name()})
	assert.Equal(t, 200, r.ask("say:Hello", nil, nil).Status)
	o := r.d.o
	o.HTTP, o.Ctrl = r.d.HTTPAddr(), r.d.CtrlAddr()
	require.NoError(t, r.d.Close())
	d, err := NewDecode(o)
	require.NoError(t, err)
	again(t, d.Listen, d.Serve, d.Close)
	r.d = d
	assert.Equal(t, t.Name(), d.recv.in.(*nixlInlet).agent.Name())
	assert.Equal(t, 200, r.ask("say:Hello", nil, nil).Status)
}

func TestChoiceOfTransport(t *testing.T) {
	none := func() (*nixl.Library, error) {
		return nil, fmt.Errorf("nixl: %w; tried:\n\t/nowhere", nixl.ErrNoLibrary)
	}
	some := func() (*nixl.Library, error) { return new(nixl.Library), nil }
	for _, tc := range []struct {
		name string
		want string
		load func() (*nixl.Library, error)
		open error
		ok   bool
		made string // part of the choice, or of the error
	}{
		{"tcp looks for no library", TransportTCP, nil, nil, false, "tcp"},
		{"auto without a library is tcp, and says why", TransportAuto, none, nil, false, "tcp (nixl: the NIXL library cannot be loaded; tried: /nowhere)"},
		{"auto with a library that does not work is tcp, and says why", TransportAuto, some, errors.New("no agent"), false, "tcp (no agent)"},
		{"nixl without a library is an error", TransportNIXL, none, nil, false, "--transport=nixl: nixl: the NIXL library cannot be loaded"},
		{"nixl that does not work is an error", TransportNIXL, some, errors.New("no agent"), false, "--transport=nixl: no agent"},
		{"auto with a library is nixl", TransportAuto, some, nil, true, "nixl (UCX "},
		{"nixl with a library is nixl", TransportNIXL, some, nil, true, "nixl (UCX "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := choice{want: tc.want, load: tc.load}
			ok, err := c.tryNIXL(func(*nixl.Library) error { return tc.open })
			assert.Equal(t, tc.ok, ok)
			if err != nil {
				c.made = err.Error()
			}
			assert.Contains(t, c.made, tc.made)
		})
	}
}

// A sender that has both transports takes the one that the node has.
func TestTransportsThatMeet(t *testing.T) {
	needNIXL(t)
	for _, tc := range []struct {
		prefill, decode string
		meet            bool
	}{
		{TransportAuto, TransportAuto, true}, {TransportAuto, TransportTCP, true}, {TransportAuto, TransportNIXL, true},
		{TransportNIXL, TransportTCP, false}, {TransportTCP, TransportNIXL, false},
	} {
		for _, kv := range []string{KVWrite, KVControl} {
			t.Run(tc.prefill+" to "+tc.decode+", "+kv, func(t *testing.T) {
				do := DecodeOptions{Transport: tc.decode}
				if kv == KVControl {
					do.Engine = EngineStub
				}
				r := newRig(t, PrefillOptions{Transport: tc.prefill, KV: kv}, do)
				status := map[bool]int{true: 200, false: 504}[tc.meet]
				assert.Equal(t, status, r.ask("say:Hello", nil, object{"timeout_s": map[bool]float64{true: 10, false: 0.2}[tc.meet]}).Status)
			})
		}
	}
}

// Prompts whose layers do not fit into a stage together, and one whose single layer does not.
func TestGroupsThatAreLargerThanAStage(t *testing.T) {
	lib := needNIXL(t)
	l, to := tilert.Tiny, testInlet(t, lib, tilert.Tiny, 2048)
	for _, size := range []int{tilert.IndexPageBytes, 500_000, stageBytes} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			out, err := newNIXLOutlet(t.Context(), lib, l, 2048, 1)
			require.NoError(t, err)
			defer func() { require.NoError(t, out.close()) }()
			for _, st := range out.all {
				st.b = st.b[:min(size, len(st.b))]
			}
			rid := strconv.Itoa(size)
			c, err := newContent(l, rid, 2000, []byte(`{"say":"x"}`))
			require.NoError(t, err)
			st, err := out.open(t.Context(), "here", 1, to.hello())
			require.NoError(t, err)
			h, kv := &handoff{ctx: t.Context(), content: c}, &connector{layout: l}
			moved, err := kv.group(st, h, to.arena.region, l.RankLayers(0, 1))
			require.NoError(t, err)
			require.NoError(t, st.flush())
			require.NoError(t, st.close())
			assert.Equal(t, l.Bytes(2000), moved)
			got, err := verify(to.arena, rid, 2000)
			require.NoError(t, err)
			assert.Equal(t, `{"say":"x"}`, string(got))
		})
	}
}

// target is a registered arena without a node.
type target struct {
	arena *arena
	in    *nixlInlet
}

func testInlet(t *testing.T, lib *nixl.Library, l tilert.Layout, maxSeqLen int) *target {
	a, in, err := newNIXLArena(lib, "", l, maxSeqLen, 1)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, in.close())
		require.NoError(t, a.free())
	})
	return &target{a, in}
}

func (to *target) hello() *tilert.Hello {
	h := new(tilert.Hello)
	h.SetRegion(to.arena.region)
	to.in.announce(h)
	return h
}

// Invariant 5 of the agent's memory: a node that is closed leaves nothing registered, or its memory could not be unmapped.
func TestCloseWithoutServeOverNIXL(t *testing.T) {
	needNIXL(t)
	d, err := NewDecode(DecodeOptions{Profile: "tiny", MaxSeqLen: 4096, Transport: TransportNIXL})
	require.NoError(t, err)
	require.NoError(t, d.Listen())
	require.NoError(t, d.Close())
	p, err := NewPrefill(PrefillOptions{Transport: TransportNIXL})
	require.NoError(t, err)
	require.NoError(t, p.Listen())
	require.NoError(t, p.Close())
}

// The node starts again while nothing is sent to it: no write fails, and still its old agent is let go of.
func TestAStalePeerIsDropped(t *testing.T) {
	lib := needNIXL(t)
	out, err := newNIXLOutlet(t.Context(), lib, tilert.Tiny, 64, 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, out.close()) }()
	first, second := testInlet(t, lib, tilert.Tiny, 64), testInlet(t, lib, tilert.Tiny, 64)
	load := func(to *target, port int) *nixl.Peer {
		p, err := out.peer(t.Context(), net.JoinHostPort("10.0.0.1", strconv.Itoa(port)), to.hello().NixlMeta)
		require.NoError(t, err)
		return p
	}
	write := func(p *nixl.Peer, to *target) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return p.Write(ctx, out.all[0].region, []nixl.Span{{Len: 1, Addr: to.arena.base}})
	}
	old := load(first, 5556)
	require.Same(t, old, load(first, 5556), "each request's hello says the same")
	elsewhere := load(second, 5557)
	require.NoError(t, write(old, first))
	now := load(second, 5556)
	require.Same(t, elsewhere, now)
	require.ErrorIs(t, write(old, first), nixl.ErrClosed)
	require.NoError(t, write(now, second))
}

// A write that is given up keeps its memory until the library has let go of it; the others go on.
func TestAWriteToANodeThatHangs(t *testing.T) {
	lib, o := needNIXL(t), startOther(t, "0")
	h := o.hello(t)
	out, err := newNIXLOutlet(t.Context(), lib, tilert.Tiny, 4096, 1)
	require.NoError(t, err)
	out.limit = 300 * time.Millisecond
	write := func(n int) error {
		st, err := out.open(t.Context(), "127.0.0.1", o.ctrlPort(), h)
		if err != nil {
			return err
		}
		defer st.close()
		return errors.Join(st.write(tilert.Write{Dst: h.KVBase[0], Len: n}, 1, func(part []byte, _ int) { part[0] = 1 }), st.flush())
	}
	const much = 16 << 20 // more than sockets hold
	require.NoError(t, write(1))
	require.NoError(t, o.Process.Signal(syscall.SIGSTOP))
	require.ErrorIs(t, write(much), nixl.ErrUncertain)
	require.ErrorIs(t, write(much), nixl.ErrUncertain)
	require.ErrorContains(t, write(much), "no staging memory: 2 writes were given up")
	require.NoError(t, o.Process.Signal(syscall.SIGCONT))
	require.Eventually(t, func() bool { return write(much) == nil }, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { return write(1) == nil && len(out.held) == 0 }, 10*time.Second, 10*time.Millisecond)

	require.NoError(t, o.Process.Signal(syscall.SIGSTOP))
	require.ErrorIs(t, write(much), nixl.ErrUncertain)
	require.NoError(t, out.close(), "the end of the agent is the end of the write")
}

// An aborted request keeps its connections to the control port as long as bytes are on their way.
func TestAnAbortedRankStaysUntilItsWriteHasEnded(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{Senders: 1})
	out := &stuckOutlet{writing: make(chan struct{}), goOn: make(chan struct{})}
	c := newConnector(tilert.Tiny, tilert.Protocol2, 1, 0, r.p.life)
	ctx, abort := context.WithCancel(t.Context())
	kv, err := newContent(tilert.Tiny, "r", 4, nil)
	require.NoError(t, err)
	c.outs = []outlet{out}
	sent := make(chan error, 1)
	go func() {
		sent <- c.send(&handoff{ctx: ctx, host: "127.0.0.1", port: r.d.ctrl.port(), rid: "r", content: kv}, 0)
	}()
	<-out.writing
	abort()
	r.d.recv.release("r") // what a cancellation does
	assert.Equal(t, "cancelling", r.rank("other", 0).got.BusyState, "it still writes")
	close(out.goOn)
	require.Error(t, <-sent)
	require.Eventually(t, func() bool { return r.rank("other", 0).got.Accepted }, 5*time.Second, time.Millisecond)
}

// stuckOutlet is a transport whose writes end when they are told to.
type stuckOutlet struct{ writing, goOn chan struct{} }

func (*stuckOutlet) name() string { return TransportTCP }
func (*stuckOutlet) close() error { return nil }

func (o *stuckOutlet) open(context.Context, string, int, *tilert.Hello) (stream, error) {
	return o, nil
}

func (*stuckOutlet) write(tilert.Write, int, func([]byte, int)) error { return nil }

func (o *stuckOutlet) group() error {
	close(o.writing)
	<-o.goOn
	return errors.New("it failed")
}

func (o *stuckOutlet) flush() error { return nil }
