package staging

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/tilert"
)

// realNode is a TileRT decode server, which test/staging-peer.sh starts.
type realNode struct {
	to   Target
	http string
	pid  string
}

// peer reads PD_ROUTER_STAGING_NODE, "host ctrl_port http_port pid", and PD_ROUTER_STAGING_SENDER, the command of a sender of another make.
func peer(t *testing.T) (realNode, []string) {
	node, sender := strings.Fields(os.Getenv("PD_ROUTER_STAGING_NODE")), strings.Fields(os.Getenv("PD_ROUTER_STAGING_SENDER"))
	if len(node) != 4 || len(sender) == 0 {
		t.Skip("no TileRT decode server: run test/staging-peer.sh")
	}
	port, err := strconv.Atoi(node[1])
	require.NoError(t, err)
	return realNode{Target{node[0], port}, "http://" + node[0] + ":" + node[2], node[3]}, sender
}

func (n realNode) post(t testing.TB, path string, body map[string]any) (int, map[string]any) {
	t.Helper()
	b, err := json.Marshal(body)
	require.NoError(t, err)
	resp, err := http.Post(n.http+path, "application/json", bytes.NewReader(b))
	require.NoError(t, err)
	defer resp.Body.Close()
	var answer map[string]any
	b, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &answer), string(b))
	return resp.StatusCode, answer
}

func (n realNode) decode(t testing.TB, rid string, timeout float64) (int, map[string]any) {
	t.Helper()
	return n.post(t, "/pd/decode", map[string]any{"rid": rid, "first_token_id": 7, "max_tokens": 8, "timeout_s": timeout})
}

// holds compares the node's memory with the slot's.
func (n realNode) holds(t testing.TB, kv *KV) {
	t.Helper()
	h, tokens := ask(t, &Slot{a: &Arena{o: Options{Host: n.to.Host}}, port: n.to.Port}, tilert.Request{RID: "", SeqLen: 1 << 20}).hello, kv.SeqLen()
	mem, err := os.Open("/proc/" + n.pid + "/mem")
	require.NoError(t, err)
	defer mem.Close()
	layout := kv.s.a.o.Layout
	for layer := range layout.Layers {
		for plane := range tilert.NumPlanes {
			got := make([]byte, layout.RowBytes(plane, tokens))
			_, err := mem.ReadAt(got, int64(layout.Address(h.Region(), plane, layer)))
			require.NoError(t, err)
			off := layout.Address(layout.Region(kv.s.room, 0), plane, layer)
			require.True(t, bytes.Equal(got, kv.s.mem.Bytes()[off:off+uint64(len(got))]), "layer %d, %s plane", layer, plane)
		}
	}
}

// TestRealNode: KV of a sender of another make goes through the arena into TileRT's own decode server, which decodes it.
func TestRealNode(t *testing.T) {
	n, sender := peer(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	a, w := openArena(t, Options{Layout: glm5(t), MaxSeqLen: 256, Sizes: []Size{{1, 128}}, Verify: 1})
	s := a.Slots()[0]
	comes := func(id string, tokens int) *KV {
		kv := expect(t, s, id)
		args := append(sender[1:], "--ctrl-port", fmt.Sprint(s.CtrlPort()), "--rid", id, "--seq-len", fmt.Sprint(tokens), "--seed", fmt.Sprint(tokens))
		out, err := exec.CommandContext(soon(t), sender[0], args...).CombinedOutput()
		require.NoError(t, err, string(out))
		require.NoError(t, kv.Receive(soon(t), id))
		require.Equal(t, tokens, kv.SeqLen())
		return kv
	}
	goes := func(kv *KV) {
		kv.Release()
		w.free(t, s)
	}

	t.Run("KV first, then decode", func(t *testing.T) {
		for _, tokens := range []int{100, 1, 128} {
			id := tilert.NewRequestID()
			kv := comes(id, tokens)
			began := time.Now()
			require.NoError(t, kv.Send(soon(t), n.to))
			t.Logf("%d tokens, %d bytes: sent in %v", tokens, kv.Bytes(), time.Since(began))
			n.holds(t, kv)
			status, answer := n.decode(t, id, 10)
			require.Equal(t, 200, status, answer)
			assert.EqualValues(t, tokens, answer["seq_len"])
			assert.Len(t, answer["token_ids"], 4, "the first token and the three of the stub engine")
			goes(kv)
		}
	})
	t.Run("decode first, then KV", func(t *testing.T) {
		id := tilert.NewRequestID()
		kv := comes(id, 50)
		got := make(chan int, 1)
		go func() {
			status, _ := n.decode(t, id, 20)
			got <- status
		}()
		require.NoError(t, kv.Send(soon(t), n.to))
		assert.Equal(t, 200, <-got)
		goes(kv)
	})
	t.Run("a send that broke off, again after the node has let go of the rid", func(t *testing.T) {
		id := tilert.NewRequestID()
		kv := comes(id, 50)
		broken := ask(t, &Slot{a: &Arena{o: Options{Host: n.to.Host}}, port: n.to.Port}, tilert.Request{RID: "broken", SeqLen: 50})
		require.True(t, broken.reply.Accepted)
		require.NoError(t, broken.conn.Close())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		assert.Equal(t, Busy, reason(t, kv.Send(ctx, n.to)))
		status, answer := n.decode(t, "broken", 0.01)
		require.Equal(t, 504, status, answer)
		require.NoError(t, kv.Send(soon(t), n.to))
		status, answer = n.decode(t, id, 10)
		require.Equal(t, 200, status, answer)
		goes(kv)
	})
}
