package staging

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/tilert"

	"pd-router/internal/nixl/nixltest"
)

func TestCloseEndsWhatGoesOn(t *testing.T) {
	a, _ := openArena(t, Options{Sizes: []Size{{3, 192}}, Senders: 1})
	p := newPrefill(t, tiny, 192, 1)
	waits, sends, quarantined := a.Slots()[0], a.Slots()[1], a.Slots()[2]

	kv := expect(t, waits, rid(1))
	received1 := make(chan error, 1)
	go func() { received1 <- kv.Receive(soon(t), rid(1)) }()

	ln, err := net.Listen("tcp4", "127.0.0.1:0") // a node that says nothing
	require.NoError(t, err)
	defer ln.Close()
	kv2 := received(t, sends, p, tilert.Request{RID: rid(2), SeqLen: 10})
	sent := make(chan error, 1)
	go func() { sent <- kv2.Send(soon(t), Target{Host: "127.0.0.1", Port: ln.Addr().(*net.TCPAddr).Port}) }()
	silent, err := ln.Accept()
	require.NoError(t, err)
	defer silent.Close()

	kv3 := expect(t, quarantined, rid(3))
	ask(t, quarantined, tilert.Request{RID: rid(3), SeqLen: 10})
	kv3.Release()

	require.NoError(t, a.Close())
	assert.Equal(t, Closed, reason(t, <-received1))
	assert.Equal(t, Closed, reason(t, <-sent))
	require.NoError(t, a.Close())

	_, err = waits.Expect(rid(4))
	require.ErrorIs(t, err, ErrClosed)
	assert.Equal(t, Closed, reason(t, kv.Receive(soon(t), rid(1))))
	assert.Equal(t, Closed, reason(t, kv2.Send(soon(t), Target{})))
	require.ErrorIs(t, a.Run(soon(t)), ErrClosed)
	kv.Release()
	kv2.Release()
}

func TestCloseWithoutRun(t *testing.T) {
	library(t)
	a, err := Open(soon(t), Options{Layout: tiny, MaxSeqLen: 64, Sizes: []Size{{2, 64}}, Host: "127.0.0.1", Library: nixltest.Path()})
	require.NoError(t, err)
	assert.Equal(t, [NumStates]int{Free: 2}, a.States())
	assert.NotEqual(t, a.Slots()[0].CtrlPort(), a.Slots()[1].CtrlPort())
	require.NoError(t, a.Close())
}

func TestRunEndsWithItsContext(t *testing.T) {
	library(t)
	a, err := Open(soon(t), Options{Layout: tiny, MaxSeqLen: 64, Sizes: []Size{{1, 64}}, Host: "127.0.0.1", Library: nixltest.Path()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	s := a.Slots()[0]
	r := ask(t, s, tilert.Request{RID: rid(1), SeqLen: 1})
	assert.Equal(t, "no_consumer", r.reply.Error)
	cancel()
	require.NoError(t, <-ran)
	_, err = net.Dial("tcp4", s.ln.Addr().String())
	require.Error(t, err)
	require.NoError(t, a.Close())
}

func TestOpenThatFailsLeavesNothing(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	good := Options{Layout: tiny, MaxSeqLen: 64, Sizes: []Size{{2, 64}}, Host: "127.0.0.1"}
	for _, tc := range []struct {
		name  string
		alter func(*Options)
		says  string
		lib   bool
	}{
		{"options", func(o *Options) { o.Sizes = nil }, "staging: 0 slots", false},
		{"library", func(o *Options) { o.Library = filepath.Join(t.TempDir(), "none.so") }, "staging: nixl: the NIXL library cannot be loaded", false},
		{"port", func(o *Options) { o.CtrlPort = port - 1 }, "control port: listen tcp 127.0.0.1:", true},
		{"host", func(o *Options) { o.Host = "192.0.2.1" }, "staging slot-0: control port: listen tcp 192.0.2.1:0", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := good
			if tc.lib {
				library(t)
				o.Library = nixltest.Path()
			}
			tc.alter(&o)
			_, err := Open(soon(t), o)
			require.ErrorContains(t, err, tc.says)
		})
	}
}
