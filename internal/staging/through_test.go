package staging

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/tilert"
)

func TestKVGoesThroughTheArena(t *testing.T) {
	for _, tc := range []struct {
		name    string
		senders int // of prefill, and so of the arena
		tokens  int
		node    nodeOptions
	}{
		{"8 ranks to 8 ranks", 8, 100, nodeOptions{}},
		{"one rank, one token", 1, 1, nodeOptions{senders: 1}},
		{"a whole slot", 8, 192, nodeOptions{}},
		{"a whole window of the node", 8, 130, nodeOptions{room: 130}},
		{"the node wants more ranks than prefill has", 2, 100, nodeOptions{senders: 8}},
		{"and fewer", 8, 100, nodeOptions{senders: 1}},
		{"a node on three cards", 8, 65, nodeOptions{shards: 3}},
		{"a node of protocol 1", 8, 100, nodeOptions{protocol: tilert.Protocol1}},
		{"a real layout", 8, 70, nodeOptions{layout: glm5(t)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			layout := tiny
			if tc.node.layout.Layers > 0 {
				layout = tc.node.layout
			}
			a, w := openArena(t, Options{Layout: layout, Senders: tc.senders, Verify: 1})
			p, n, s := newPrefill(t, layout, 320, tc.senders), startNode(t, tc.node), a.Slots()[0]
			kv := received(t, s, p, tilert.Request{RID: rid(1), SeqLen: tc.tokens})
			assert.Equal(t, tc.tokens, kv.SeqLen())
			assert.Equal(t, layout.Bytes(tc.tokens), kv.Bytes())
			require.NoError(t, kv.Send(soon(t), n.target()))
			n.took(t, rid(1), p, tc.tokens)
			kv.Release()
			w.free(t, s)
			assert.Equal(t, []State{Reserved, Receiving, Held, Sending, Held, Free}, w.states[s])
			require.Len(t, w.transfers, 2)
			for hop, got := range w.transfers {
				assert.Equal(t, Hop(hop), got.Hop)
				assert.Equal(t, None, got.Reason)
				assert.Equal(t, layout.Bytes(tc.tokens), got.Bytes)
				assert.Equal(t, 3*layout.Layers, got.Descriptors)
				assert.Positive(t, got.Seconds)
			}
			assert.Equal(t, n.target().String(), w.transfers[Out].Node)
		})
	}
}

func glm5(t testing.TB) tilert.Layout {
	l, err := tilert.LayoutOf("glm5", tilert.LayoutOptions{})
	require.NoError(t, err)
	return l
}

// TestMembersOfTheRequestReachTheNode, invariant 6.
func TestMembersOfTheRequestReachTheNode(t *testing.T) {
	a, _ := openArena(t, Options{Senders: 2})
	n := startNode(t, nodeOptions{senders: 3})
	kv := expect(t, a.Slots()[0], rid(1))
	for rank, q := range []tilert.Request{
		{LastPromptToken: 7, Sampling: json.RawMessage(`{"a":1.50}`)},
		{LastPromptToken: 8, Sampling: json.RawMessage(`{"b":[]}`), KVScales: json.RawMessage(`[0.25]`), PromptTokenIDs: []int{5, 6}},
	} {
		q.RID, q.Rank, q.SeqLen = rid(1), rank, 10
		ask(t, a.Slots()[0], q).done(t)
	}
	require.NoError(t, kv.Receive(soon(t), rid(1)))
	require.NoError(t, kv.Send(soon(t), n.target()))
	<-n.complete
	require.Len(t, n.asked(), 3)
	for _, q := range n.asked() {
		want := tilert.Request{RID: rid(1), Rank: q.Rank, SeqLen: 10, LastPromptToken: 7, Sampling: json.RawMessage(`{"a":1.50}`)}
		switch q.Rank {
		case 0:
			want.PromptTokenIDs, want.KVScales = []int{5, 6}, json.RawMessage(`[0.25]`) // nodes take the ids from rank 0 only
		case 1:
			want.LastPromptToken, want.Sampling, want.KVScales = 8, json.RawMessage(`{"b":[]}`), json.RawMessage(`[0.25]`)
		}
		want.AdmissionWindow = tilert.Seconds(tilert.AdmissionWindow(tilert.DefaultAttempts))
		assert.Equal(t, want, *q, fmt.Sprint("rank ", q.Rank))
	}
}
