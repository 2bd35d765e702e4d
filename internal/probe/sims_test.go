package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"pd-router/internal/sim"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNodesThatAreWellPassInBothGenerations(t *testing.T) {
	for _, tc := range []struct {
		generation, hello, capabilities string
	}{
		{"N", "protocol 2, layout 10 (glm5 fp8_ds_mla), tcp, 8 senders, max_seq_len 128, 2 shards", "penalties, ignore_eos, log-probs"},
		{"V5", "protocol 1, layout 10 (glm5 fp8_ds_mla), tcp, 1 sender, max_seq_len 128, 2 shards", "no such page, as on nodes of protocol 1: no penalties, ignore_eos, log-probs"},
	} {
		t.Run(tc.generation, func(t *testing.T) {
			p := simPrefill(t, sim.PrefillOptions{Generation: tc.generation, MaxModelLen: 128})
			o := sim.DecodeOptions{Generation: tc.generation, MaxSeqLen: 128, Shards: 2}
			a, b := simDecode(t, o), simDecode(t, o)
			r := look(t, p.URL(), Options{}, address(t, a.Node()), address(t, b.Node()))
			wantFailed(t, &r)
			assert.Empty(t, r.Of(Warn))
			assert.Len(t, r.Of(Unchecked), 2, "only NIXL's connection, which these nodes do not have")
			for i := range 2 {
				assert.Equal(t, tc.hello, of(t, &r, i, checkHello).Detail)
				assert.Equal(t, tc.capabilities, of(t, &r, i, checkCapabilities).Detail)
				assert.Equal(t, "idle", of(t, &r, i, checkStatus).Detail)
			}
			assert.Equal(t, "2 nodes agree", of(t, &r, -1, checkHellos).Detail)
			assert.Equal(t, []Model{{"glm5", 128}}, r.Prefill.Models)
			assert.Equal(t, 128, r.Decode[1].Hello.MaxSeqLen)
			assert.False(t, *r.Decode[0].Busy)

			// Invariant 1: nothing of it has left a trace.
			assert.Zero(t, a.Counters())
			c := p.Counters()
			assert.EqualValues(t, 1, c.Requests)
			assert.Zero(t, c.Handoffs+c.HandoffsFailed+c.Bytes)
		})
	}
}

// Invariant 1, from the node's side.
func TestADecodeNodeIsOnlyReadFrom(t *testing.T) {
	f := newFake(t, goodPages(nil), says(helloOf(t, nil)))
	r := look(t, goodVLLM(t).URL, Options{}, f.addr())
	wantFailed(t, &r)
	assert.Equal(t, []string{"GET /health", "GET /capabilities", "GET /decode_status"}, f.requests())
	require.NoError(t, f.ctrl.Close())
	f.work.Wait()
	assert.Zero(t, f.heard, "bytes were sent to the control port")
}

func TestTheOneTokenCallNamesNoDecodeNode(t *testing.T) {
	var body bytes.Buffer
	p := vllm(t, pages{"/v1/chat/completions": func(w http.ResponseWriter, r *http.Request) {
		_, err := body.ReadFrom(r.Body)
		assert.NoError(t, err)
		w.WriteHeader(400)
	}}, nil)
	d := newFake(t, goodPages(nil), says(helloOf(t, nil)))
	r := look(t, p.URL, Options{}, d.addr())
	wantFailed(t, &r, checkToken)
	assert.NotContains(t, body.String(), "kv_transfer_params")
	assert.NotContains(t, body.String(), "tilert_host")
	assert.Contains(t, body.String(), `"max_tokens":1`)
}

func TestTheKeyGoesToVLLMAlone(t *testing.T) {
	var keys []string
	note := func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Authorization"))
		w.WriteHeader(401)
	}
	p := vllm(t, pages{"/v1/models": note, "/v1/chat/completions": note}, nil)
	d := newFake(t, goodPages(pages{"/health": func(w http.ResponseWriter, r *http.Request) {
		assert.Empty(t, r.Header.Get("Authorization"))
	}}), says(helloOf(t, nil)))
	r := look(t, p.URL, Options{APIKey: "s3cret"}, d.addr())
	assert.Equal(t, []string{"Bearer s3cret", "Bearer s3cret"}, keys)
	wantFailed(t, &r) // clients bring keys of their own: nothing can be said
	for _, check := range []string{checkModels, checkToken, checkRequestID, checkTokenIDs, checkWindow} {
		assert.Equal(t, Unchecked, of(t, &r, -1, check).Status, check)
	}
	assert.NotContains(t, fmt.Sprintf("%+v", r), "s3cret")
}

func TestConnectIsAskedWithTheNodesMetadata(t *testing.T) {
	meta := blob("10.0.0.2:77", 4096, 1<<20)
	f := newFake(t, goodPages(nil), says(nixlHello(t, meta, nil)))
	p := goodVLLM(t)
	for name, tc := range map[string]struct {
		connect func(context.Context, []byte) error
		want    Status
		detail  string
	}{
		"nobody to ask":      {nil, Unchecked, "nobody asked for it (--nixl does)"},
		"a peer":             {func(_ context.Context, b []byte) error { assert.Equal(t, meta, b); return nil }, OK, "takes the node as a peer"},
		"refused":            {func(context.Context, []byte) error { return errors.New("no route") }, Fail, "no route"},
		"an endless library": {func(ctx context.Context, _ []byte) error { <-ctx.Done(); return context.Cause(ctx) }, Fail, "no answer within 20ms"},
	} {
		t.Run(name, func(t *testing.T) {
			r := look(t, p.URL, Options{Connect: tc.connect, ConnectLimit: 20 * time.Millisecond}, f.addr())
			c := of(t, &r, 0, checkConnect)
			assert.Equal(t, tc.want, c.Status)
			assert.Contains(t, c.Detail, tc.detail)
			assert.Equal(t, "nixl: "+fmt.Sprint(len(meta))+" bytes of metadata (base64), agent 10.0.0.2:77, 1 region of VRAM with 1048576 bytes",
				of(t, &r, 0, checkTransport).Detail)
			assert.Equal(t, "10.0.0.2:77", r.Decode[0].Hello.NIXLAgent)
		})
	}
}
