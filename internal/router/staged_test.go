package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"pd-router/internal/openai"
	"pd-router/internal/queue"
	"pd-router/internal/staging"
	"pd-router/internal/tilert"
)

// What a staged router does with requests is shown in test/scenario, over the real library.

func TestARoomIsGivenToWhatItTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &rooms{sizes: rapid.SliceOfNDistinct(rapid.IntRange(1, 1000), 1, 16, rapid.ID).Draw(t, "sizes")}
		slices.Sort(o.sizes)
		tokens := rapid.IntRange(0, 1200).Draw(t, "tokens")
		largest := o.sizes[len(o.sizes)-1]
		require.Equal(t, tokens <= largest, o.takes(tokens))
		smallest := largest
		for i := len(o.sizes) - 1; i >= 0 && o.sizes[i] >= tokens; i-- {
			smallest = o.sizes[i]
		}
		for _, room := range o.sizes {
			fits := o.traits(room)&o.needs(tokens) != 0
			require.Equal(t, room >= smallest, fits, "%d tokens, a room for %d of %v", tokens, room, o.sizes)
		}
	})
}

func TestArenaIsMadeForTheNodes(t *testing.T) {
	hello := &tilert.Hello{LayoutVersion: tilert.Tiny.Version, Senders: 4}
	for _, tc := range []struct {
		name string
		o    ArenaOptions
		want staging.Options
	}{
		{"room for the whole window in each slot", ArenaOptions{Slots: 3}, staging.Options{Sizes: []staging.Size{{Slots: 3, MaxSeqLen: 5000}}}},
		{"memory that the slots share", ArenaOptions{Slots: 3, Bytes: 1 << 30}, staging.Options{Slots: 3, Bytes: 1 << 30}},
		{"several sizes", ArenaOptions{Slots: 3, Sizes: []staging.Size{{Slots: 1, MaxSeqLen: 9}}}, staging.Options{Sizes: []staging.Size{{Slots: 1, MaxSeqLen: 9}}}},
		{"a host that was given", ArenaOptions{Slots: 1, Bytes: 1, Host: "10.0.0.9", Port: 7000}, staging.Options{Slots: 1, Bytes: 1, Host: "10.0.0.9", CtrlPort: 7000}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.want.MaxSeqLen, tc.want.Senders, tc.want.Layout = 5000, 4, tilert.Tiny
			if tc.want.Host == "" {
				tc.want.Host = "127.0.0.1" // on the way to a node on this host
			}
			got, err := tc.o.staging(hello, 5000, "127.0.0.1:8000")
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	_, err := ArenaOptions{Slots: 1}.staging(&tilert.Hello{LayoutVersion: 77}, 5000, "127.0.0.1:8000")
	require.ErrorContains(t, err, "layout_version 77")
}

func TestStagedRouterNeedsTheLibrary(t *testing.T) {
	_, err := newArena(ArenaOptions{Library: t.TempDir()}, queue.New(queue.Options{}))
	require.ErrorContains(t, err, "--kv-handoff staged: ")
}

// A router that is told to stop while it opens its arena ends well.
func TestStopWhileTheArenaOpens(t *testing.T) {
	w := newPlace(t, greets)
	await(t, "the node has said hello", func() bool { return w.router.backends[0].Hello() != nil })
	open := &arena{opts: ArenaOptions{Slots: 1, Host: "127.0.0.1"}, greeted: make(chan struct{})}
	close(open.greeted)
	r := &Router{arena: open, backends: w.router.backends, prefill: w.router.prefill, log: zap.NewNop()}
	require.ErrorContains(t, r.runArena(context.Background()), "layout_version 1", "the arena cannot be")
	ctx, stop := context.WithCancel(context.Background())
	stop()
	for range 50 { // it may find the node before the end
		require.NoError(t, r.runArena(ctx))
	}
}

// Promise 1: a prompt that no room takes waits for its prefill node too. The line before the decode slots goes on meanwhile.
func TestPromptPastTheArenaWaitsForItsPrefillNode(t *testing.T) {
	l := &life{r: newPlace(t).router, ctx: context.Background(), direct: true}
	require.True(t, l.again(decodeFailed(openai.TypeDecodeFailed, "").again(anywhere)))
	require.True(t, l.direct, "it need not be prefilled to know its length")
	require.True(t, l.again(prefillFailed("").again(anywhere)))
	require.False(t, l.direct)
}

func TestFailedHops(t *testing.T) {
	for _, tc := range []struct {
		reason  staging.Reason
		in, out string // kind of error, status, retry; or "busy"
	}{
		{staging.Timeout, "kv_transfer_timeout 504 0", "decode_failed 502 2"},
		{staging.Unreachable, "prefill_failed 502 2", "decode_failed 502 2"},
		{staging.Lost, "prefill_failed 502 2", "decode_failed 502 2"},
		{staging.Busy, "prefill_failed 502 2", "busy"},
		{staging.Forgotten, "prefill_failed 502 2", "decode_failed 502 2"},
		{staging.Refused, "prefill_failed 502 2", "decode_failed 502 1"},
		{staging.Mismatch, "prefill_failed 502 2", "decode_failed 502 1"},
		{staging.Corrupt, "prefill_failed 502 2", "decode_failed 502 2"},
		{staging.Closed, "draining 503 0", "draining 503 0"},
		{staging.Failed, "prefill_failed 502 2", "decode_failed 502 2"},
	} {
		t.Run(tc.reason.String(), func(t *testing.T) {
			w := newPlace(t)
			l := &life{r: w.router, ctx: context.Background(), node: w.router.backends[0], begun: "rid"}
			text := func(f *failure) string { return fmt.Sprintf("%s %d %d", f.err.Type, f.err.Status, f.retry) }
			require.Equal(t, tc.in, text(l.notReceived(&staging.Error{Hop: staging.In, Reason: tc.reason, Err: errors.New("x")})))
			busy, f := l.notSent(&staging.Error{Hop: staging.Out, Reason: tc.reason, Admitted: true, Err: errors.New("x")})
			if busy {
				require.Equal(t, tc.out, "busy")
				require.Nil(t, f)
			} else {
				require.Equal(t, tc.out, text(f))
			}
			require.Equal(t, "rid", l.begun, "the node may keep its buffer")
			_, _ = l.notSent(&staging.Error{Hop: staging.Out, Reason: tc.reason, Err: errors.New("x")})
			require.Empty(t, l.begun)
		})
	}
}

func TestHopOfARequestThatIsOver(t *testing.T) {
	w := newPlace(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrClientGone)
	l := &life{r: w.router, ctx: ctx, node: w.router.backends[0]}
	broken := &staging.Error{Reason: staging.Canceled, Err: errors.New("x")}
	require.Equal(t, ClientGone, l.notReceived(broken).outcome)
	_, f := l.notSent(broken)
	require.Equal(t, ClientGone, f.outcome)
	require.Equal(t, openai.TypeRequestCancelled, f.err.Type)
}

// KV that a node has lost is still in the arena; in direct mode it is not, and who waited for two minutes waits no longer.
func TestNodeThatHasNoKV(t *testing.T) {
	w := newPlace(t)
	for st, want := range map[*stage]retry{nil: never, {}: anywhere} {
		l := &life{r: w.router, ctx: context.Background(), node: w.router.backends[0], stage: st}
		f := l.nodeRefused(504, []byte(`{"error":"kv_transfer_timeout","rid":"x"}`))
		require.Equal(t, []any{DecodeFailed, openai.TypeKVTransferTimeout, want}, []any{f.outcome, f.err.Type, f.retry})
	}
}
