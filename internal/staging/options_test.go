package staging

import (
	"errors"
	"fmt"
	"math"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

func TestRoomOfTheSlots(t *testing.T) {
	page := tiny.Bytes(64) // 403,456 bytes: 98 pages of memory and a half
	for _, tc := range []struct {
		name string
		o    Options
		want []int
		says string
	}{
		{"equal shares, whole pages of the index plane", Options{Slots: 2, Bytes: 2 * ((&Options{Layout: tiny}).memoryOf(128) + 5000)}, []int{128, 128}, ""},
		{"no larger than the window", Options{Slots: 1, Bytes: 1 << 30}, []int{1000}, ""},
		{"a share that rounding up takes", Options{Slots: 1, Bytes: 3 * page}, []int{128}, ""},
		{"sizes", Options{Sizes: []Size{{2, 64}, {1, 5000}}}, []int{64, 64, 1000}, ""},
		{"sizes that fit exactly", Options{Sizes: []Size{{2, 64}}, Bytes: 2 * (&Options{Layout: tiny}).memoryOf(64)}, []int{64, 64}, ""},
		{"sizes that do not fit", Options{Sizes: []Size{{2, 64}}, Bytes: 2*(&Options{Layout: tiny}).memoryOf(64) - 1}, nil,
			"do not fit into 811007 bytes: one of 64 tokens takes 405504"},
		{"a huge number of slots", Options{Sizes: []Size{{math.MaxInt, 64}}, Bytes: 1 << 40}, nil, "do not fit"},
		{"both", Options{Slots: 1, Sizes: []Size{{2, 64}}}, nil, "want one of the two"},
		{"no slots", Options{Bytes: 1 << 30}, nil, "0 slots"},
		{"no slots of a size", Options{Sizes: []Size{{0, 64}}}, nil, "0 slots of 64 tokens"},
		{"slots of no size", Options{Sizes: []Size{{1, 0}}}, nil, "1 slots of 0 tokens"},
		{"too little for one page", Options{Slots: 1, Bytes: page - 1}, nil, "one needs 403456 for every 64 tokens"},
		{"negative bytes", Options{Slots: 1, Bytes: -1}, nil, "-1 bytes"},
		{"too many ranks", Options{Slots: 1, Bytes: 1 << 30, Senders: 65}, nil, "65 senders"},
		{"ports that end", Options{Sizes: []Size{{2, 64}}, CtrlPort: 65535}, nil, "2 control ports from 65535"},
		{"ports that just fit", Options{Sizes: []Size{{2, 64}}, CtrlPort: 65534}, []int{64, 64}, ""},
		{"more than all verified", Options{Slots: 1, Bytes: 1 << 30, Verify: 1.1}, nil, "1.1 of transfers"},
		{"no share at all", Options{Slots: 1, Bytes: 1 << 30, Verify: math.NaN()}, nil, "NaN of transfers"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.Layout, tc.o.MaxSeqLen, tc.o.Host = tiny, 1000, "127.0.0.1"
			got, err := tc.o.sizes()
			if tc.says != "" {
				require.ErrorContains(t, err, tc.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
	for name, o := range map[string]Options{
		"no bytes":                    {Slots: 1, Bytes: 1 << 30, MaxSeqLen: 1000, Host: "x"},
		"a window of 0 tokens":        {Slots: 1, Bytes: 1 << 30, Layout: tiny, Host: "x"},
		"prefill node must be told":   {Slots: 1, Bytes: 1 << 30, Layout: tiny, MaxSeqLen: 1000},
		"want 1 or more":              {Layout: tiny, MaxSeqLen: 1000, Host: "x"},
		"control ports from -1 on":    {Sizes: []Size{{2, 64}}, Layout: tiny, MaxSeqLen: 1000, Host: "x", CtrlPort: -1},
		"-1 senders: want 1 to 64":    {Sizes: []Size{{2, 64}}, Layout: tiny, MaxSeqLen: 1000, Host: "x", Senders: -1},
		"-0.5 of transfers to verify": {Sizes: []Size{{2, 64}}, Layout: tiny, MaxSeqLen: 1000, Host: "x", Verify: -0.5},
	} {
		_, err := o.sizes()
		assert.ErrorContains(t, err, name)
	}
}

// TestSlotsStayWithinTheirBytes: and no slot could be a page of tokens larger.
func TestSlotsStayWithinTheirBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Layout: tilert.Layout{
				Layers: rapid.IntRange(1, 100).Draw(t, "layers"), KVBytes: rapid.IntRange(1, 2000).Draw(t, "kv"), PEBytes: rapid.IntRange(1, 200).Draw(t, "pe"),
			},
			Slots: rapid.IntRange(1, 64).Draw(t, "slots"), Bytes: rapid.Int64Range(0, 1<<44).Draw(t, "bytes"),
			MaxSeqLen: rapid.IntRange(1, 1<<20).Draw(t, "window"), Host: "x",
		}
		rooms, err := o.sizes()
		share := o.Bytes / int64(o.Slots)
		if err != nil {
			if o.memoryOf(tilert.PageTokens) <= share {
				t.Fatal(err)
			}
			return
		}
		room := rooms[0]
		if len(rooms) != o.Slots || o.memoryOf(room) > share || room > o.MaxSeqLen {
			t.Fatalf("%d slots of %d tokens", len(rooms), room)
		}
		if larger := room + tilert.PageTokens; larger <= o.MaxSeqLen && o.memoryOf(larger) <= share {
			t.Fatalf("slots of %d tokens, though %d fit", room, larger)
		}
	})
}

func TestLayoutOfAHello(t *testing.T) {
	for _, tc := range []struct {
		profile  string
		o        tilert.LayoutOptions
		protocol tilert.Protocol
		fails    bool
	}{
		{"glm5", tilert.LayoutOptions{}, 2, false},
		{"glm5", tilert.LayoutOptions{}, 1, false},
		{"glm5", tilert.LayoutOptions{NoMTP: true, TiledKI: true, DType: "fp8_rocm"}, 2, false},
		{"glm5_2", tilert.LayoutOptions{DType: "bf16"}, 2, false},
		{"dsv32", tilert.LayoutOptions{DType: "fp8_rocm", TiledKI: true}, 2, false},
		{"dsv32", tilert.LayoutOptions{}, 1, true},
	} {
		want, err := tilert.LayoutOf(tc.profile, tc.o)
		require.NoError(t, err)
		got, err := LayoutOf(&tilert.Hello{LayoutVersion: want.Version, Protocol: tc.protocol})
		if tc.fails {
			assert.EqualError(t, err, "hello: protocol_version is 1, with which dsv32 has 62 layers, want 2, with 61")
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := LayoutOf(&tilert.Hello{LayoutVersion: 9009})
	assert.ErrorContains(t, err, "layout_version 9009 is of a model that this program does not know")
}

// TestNodeWithAnotherCacheByTheSameVersion: nothing is asked of it.
func TestNodeWithAnotherCacheByTheSameVersion(t *testing.T) {
	layout, err := tilert.LayoutOf("dsv32", tilert.LayoutOptions{})
	require.NoError(t, err)
	a, _ := openArena(t, Options{Layout: layout, Senders: 1})
	p := newPrefill(t, layout, 64, 1)
	kv := received(t, a.Slots()[0], p, tilert.Request{RID: rid(1), SeqLen: 3})
	old := layout
	old.Layers = 62
	n := startNode(t, nodeOptions{layout: old, protocol: tilert.Protocol1})
	assert.Equal(t, Mismatch, reason(t, kv.Send(soon(t), n.target())))
	assert.Empty(t, n.asked())
}

func TestNamesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for i := range NumReasons {
		seen[i.String()] = true
		assert.Equal(t, i.String(), i.Error())
	}
	assert.Len(t, seen, int(NumReasons))
	for i := range NumStates {
		assert.NotEmpty(t, i.String())
	}
	for i := range NumHops {
		assert.NotEmpty(t, i.String())
	}
}

func TestReasonOfAnError(t *testing.T) {
	for _, tc := range []struct {
		err   error
		asked bool
		want  Reason
	}{
		{&tilert.HelloError{Field: "magic"}, false, Mismatch},
		{fmt.Errorf("write: %w", nixl.ErrRange), false, Mismatch},
		{nixl.ErrMetadata, false, Mismatch},
		{tilert.ErrRefused, false, Refused},
		{tilert.ErrRefused, true, Busy},
		{fmt.Errorf("rank 1: %w: %w", errForgotten, tilert.ErrRefused), true, Forgotten},
		{fmt.Errorf("write: %w", Corrupt), true, Corrupt},
		{nixl.ErrClosed, false, Closed},
		{&nixl.CallError{Kind: nixl.ErrPeerLost, Code: nixl.Backend}, false, Lost},
		{&nixl.CallError{Kind: nixl.ErrRefused, Code: nixl.NotAllowed}, false, Failed},
		{&nixl.UncertainError{Cause: errors.New("a fixed limit")}, false, Timeout},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, false, Unreachable},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, true, Lost},
		{errors.New("something"), false, Failed},
	} {
		assert.Equal(t, tc.want, reasonOf(t.Context(), tc.err, tc.asked), tc.err)
	}
}
