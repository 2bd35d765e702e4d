package sim

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pd-router/internal/tilert"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPromptBecomesAReply(t *testing.T) {
	eachTransport(t, func(t *testing.T, transport string) {
		r := newRig(t, PrefillOptions{Transport: transport}, DecodeOptions{Transport: transport})
		got := r.ask("say:Hello, the weather in Paris is sunny.", nil, nil)
		assert.Equal(t, "Hello, the weather in Paris is sunny.", got.text(), got.Body)
		assert.Equal(t, "stop", got.Finish)
		assert.Equal(t, len(got.IDs), got.N)
		assert.Positive(t, got.SeqLen)
		assert.Equal(t, uint64(0), r.d.Counters().ChecksFailed)
		assert.Equal(t, uint64(tilert.Tiny.Bytes(got.SeqLen)), r.p.Counters().Bytes)
		r.idle()
	})
}

// Invariant 2: each way in which KV can be wrong fails the request, with a text that says what is wrong.
func TestWrongKVFailsTheRequest(t *testing.T) {
	for fault, want := range map[string]string{
		kvFlip:   "PE plane, layer 0, token 0: byte 127 is",
		kvRID:    "holds the bytes of another request",
		kvOffset: "PE plane, layer 0, token 0: holds the bytes of another request",
		kvSize:   "PE plane, layer 0: more than",
		kvShort:  "PE plane, layer 0, token",
	} {
		t.Run(fault, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, transport string) {
				r := newRig(t, PrefillOptions{Faults: []string{fault + "=1/2"}, Transport: transport}, DecodeOptions{Transport: transport})
				require.Equal(t, "stop", r.ask("say:a good one first", nil, nil).Finish)
				for _, stream := range []bool{true, false} {
					got := r.ask("say:and a bad one of a quite different length", nil, object{"stream": stream})
					assert.Equal(t, 500, got.Status)
					assert.Contains(t, got.Error, want)
					assert.Contains(t, got.Body, `"rid"`)
					require.Equal(t, 200, r.ask("say:good again", nil, nil).Status)
				}
				assert.Equal(t, uint64(2), r.d.Counters().ChecksFailed)
				told := r.heard()
				require.Len(t, told, 4)
				rid, _ := strings.CutPrefix(told[0], "fault "+fault+" for ")
				assert.Contains(t, told[1], "wrong KV for "+rid+": KV check: ")
			})
		})
	}
}

func TestAFirstTokenThatPrefillDidNotSampleFailsTheRequest(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{})
	p := r.prefill("say:Hello", nil)
	got := r.decode(p.RID, p.First+1, nil)
	assert.Equal(t, 500, got.Status)
	assert.Contains(t, got.Error, "first_token_id")
}

// A complete transfer may be replaced before it was read: what the decode node then finds is another request's.
func TestKVThatWasOverwrittenIsFound(t *testing.T) {
	eachTransport(t, func(t *testing.T, transport string) {
		r := newRig(t, PrefillOptions{Transport: transport}, DecodeOptions{Transport: transport})
		a := r.prefill("say:I come first", nil)
		require.Eventually(t, func() bool { return r.p.Counters().Handoffs == 1 }, 5*time.Second, time.Millisecond)
		r.prefill("say:and I overwrite you", nil)
		require.Eventually(t, func() bool { return r.p.Counters().Handoffs == 2 }, 5*time.Second, time.Millisecond)
		got := r.decode(a.RID, a.First, nil)
		assert.Equal(t, 500, got.Status)
		assert.Contains(t, got.Error, "another request")
	})
}

func TestLostKVIsATimeout(t *testing.T) {
	for _, fault := range []string{kvLost, kvNone} {
		eachTransport(t, func(t *testing.T, transport string) {
			r := newRig(t, PrefillOptions{Faults: []string{fault}, Transport: transport}, DecodeOptions{Transport: transport})
			p := r.prefill("say:Hello", nil)
			got := r.decode(p.RID, p.First, object{"timeout_s": 0.2})
			assert.Equal(t, 504, got.Status)
			assert.JSONEq(t, `{"error":"kv_transfer_timeout","rid":"`+p.RID+`"}`, got.Body)
			told := []string{"fault " + fault + " for " + p.RID}
			if fault == kvLost {
				told = append(told, "rank 7 did not send the KV of "+p.RID+": write: this rank dies here")
			}
			assert.Eventually(t, func() bool { return slices.Equal(told, r.heard()) }, 10*time.Second, time.Millisecond, "want %q", told)
			r.idle()
		})
	}
}

func TestEveryLayoutMovesItsBytes(t *testing.T) {
	for _, tc := range []struct {
		name string
		po   PrefillOptions
		do   DecodeOptions
	}{
		{"glm5", PrefillOptions{Profile: "glm5"}, DecodeOptions{Profile: "glm5", MaxSeqLen: 202752}},
		{"glm5_2 in bf16", PrefillOptions{Profile: "glm5_2", KVDType: "bf16"}, DecodeOptions{Profile: "glm5_2", KVDType: "bf16"}},
		{"dsv32 in flat fp8", PrefillOptions{Profile: "dsv32", KVDType: "fp8_rocm"}, DecodeOptions{Profile: "dsv32", KVDType: "fp8_rocm"}},
		{"one sender", PrefillOptions{Senders: 1}, DecodeOptions{Senders: 1}},
		{"a buffer in eight pieces", PrefillOptions{}, DecodeOptions{Shards: 8}},
		{"glm5 in three pieces from five ranks", PrefillOptions{Profile: "glm5", Senders: 5}, DecodeOptions{Profile: "glm5", Senders: 5, Shards: 3}},
		{"the older generation", PrefillOptions{Profile: "dsv32", Generation: "V5"}, DecodeOptions{Profile: "dsv32", Generation: "V5"}},
		{"not pipelined, at a limited rate", PrefillOptions{TransferGBps: 0.05, Pipeline: false}, DecodeOptions{}},
		{"pipelined, with a prompt that takes a while", PrefillOptions{TokensPerSecond: 500, Pipeline: true}, DecodeOptions{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			eachTransport(t, func(t *testing.T, transport string) {
				tc.po.Transport, tc.do.Transport = transport, transport
				r := newRig(t, tc.po, tc.do)
				got := r.ask("say:Hello there, "+strings.Repeat("word ", 60), nil, nil)
				assert.Equal(t, "Hello there, "+strings.Repeat("word ", 60), got.text(), got.Body)
			})
		})
	}
}

// A sender leaves a receiver of another kind alone; the request then runs into the node's timeout.
func TestNodesThatDoNotFit(t *testing.T) {
	for _, tc := range []struct {
		name string
		po   PrefillOptions
		do   DecodeOptions
	}{
		{"another model", PrefillOptions{Profile: "glm5"}, DecodeOptions{Profile: "dsv32"}},
		{"another cache type", PrefillOptions{Profile: "glm5", KVDType: "bf16"}, DecodeOptions{Profile: "glm5"}},
		{"fewer ranks than are waited for", PrefillOptions{Senders: 4}, DecodeOptions{}},
		{"another protocol", PrefillOptions{Generation: "N", Senders: 1}, DecodeOptions{Generation: "V5"}},
		{"a prompt that the buffer cannot hold", PrefillOptions{}, DecodeOptions{MaxSeqLen: 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.po, tc.do)
			p := r.prefill("say:Hello, you on the other side", nil)
			assert.Equal(t, 504, r.decode(p.RID, p.First, object{"timeout_s": 0.1}).Status)
			require.Eventually(t, func() bool { return r.p.Counters().HandoffsFailed == 1 }, 5*time.Second, time.Millisecond)
			assert.Zero(t, r.p.Counters().Bytes)
		})
	}
}

// Prefill-ahead: the next request's KV comes in while this one is still decoding, and neither is harmed.
func TestTheNextKVArrivesDuringDecode(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{TokensPerSecond: 500, PerToken: true})
	a := r.prefill("say:"+strings.Repeat("slowly ", 100), nil)
	answer := make(chan decoded, 1)
	resp := r.open(a, nil)
	line := make([]byte, 64)
	n, err := resp.Body.Read(line)
	require.NoError(t, err)
	require.Contains(t, string(line[:n]), `{"t": [`)
	b := r.prefill("say:I am next", nil)
	require.Eventually(t, func() bool { return r.p.Counters().Handoffs == 2 }, 5*time.Second, time.Millisecond)
	go func() {
		var rest strings.Builder
		_, _ = rest.Write(line[:n])
		buf := make([]byte, 4096)
		for {
			n, err := resp.Body.Read(buf)
			rest.Write(buf[:n])
			if err != nil {
				break
			}
		}
		answer <- r.read(200, []byte(rest.String()))
	}()
	first := <-answer
	assert.Equal(t, strings.Repeat("slowly ", 100), first.text())
	r.idle()
	assert.Equal(t, "I am next", r.decode(b.RID, b.First, nil).text())
}

// open begins a streaming decode; the caller reads and closes the body.
func (r *rig) open(p prefilled, extra object) *http.Response {
	r.t.Helper()
	return r.openIn(r.t.Context(), p, extra)
}

func (r *rig) openIn(ctx context.Context, p prefilled, extra object) *http.Response {
	body := object{"rid": p.RID, "first_token_id": p.First, "max_tokens": 4000, "stream": true}
	for k, v := range extra {
		body[k] = v
	}
	raw, err := json.Marshal(body)
	require.NoError(r.t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.node("/pd/decode"), strings.NewReader(string(raw)))
	require.NoError(r.t, err)
	resp, err := r.hc.Do(req)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestANodeEndsWhileItIsBusy(t *testing.T) {
	hc := &http.Client{Transport: &http.Transport{}}
	defer hc.CloseIdleConnections()
	d, err := NewDecode(DecodeOptions{Profile: "tiny"})
	require.NoError(t, err)
	require.NoError(t, d.Listen())
	ctx, cancel := context.WithCancel(t.Context())
	ended, answered := make(chan error, 1), make(chan struct{})
	go func() { ended <- d.Serve(ctx) }()
	go func() { // waits for KV that never comes
		defer close(answered)
		if resp, err := hc.Post("http://"+d.HTTPAddr()+"/pd/decode", "application/json", strings.NewReader(`{"rid":"a","first_token_id":1}`)); err == nil {
			_ = resp.Body.Close()
		}
	}()
	require.Eventually(t, func() bool { return d.Counters().Requests == 1 }, 5*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	<-answered
	require.NoError(t, d.Close(), "again")
}

func TestCloseWithoutServe(t *testing.T) {
	d, err := NewDecode(DecodeOptions{Profile: "tiny"})
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.NoError(t, d.Listen())
	require.NoError(t, d.Close())
	p, err := NewPrefill(PrefillOptions{})
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.NoError(t, p.Listen())
	require.NoError(t, p.Close())
}

// The peer's sender does not know our transport: its handshake without bytes is enough for the stub engine.
func TestTheControlPortSpeaksToAnySender(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{Engine: EngineStub, Senders: 2})
	p := prefilled{RID: "anybody", First: 7}
	for rank := range 2 {
		c := dial(t, r.d.CtrlAddr())
		b, err := tilert.ReadFrame(c, nil)
		require.NoError(t, err)
		h, err := tilert.ParseHello(b)
		require.NoError(t, err)
		assert.Equal(t, []any{tilert.Protocol2, 2, TransportTCP, r.d.recv.in.(*tcpInlet).ln.port()}, []any{h.Protocol, h.Senders, h.Transport, h.DataPort})
		require.NoError(t, tilert.WriteFrame(c, tilert.Request{RID: p.RID, Rank: rank, SeqLen: 4}))
		b, err = tilert.ReadFrame(c, nil)
		require.NoError(t, err)
		require.Contains(t, string(b), `"accepted":true`)
		require.NoError(t, tilert.WriteFrame(c, tilert.Done{Done: true, RID: p.RID, Rank: rank}))
		require.NoError(t, c.Close())
	}
	got := r.decode(p.RID, p.First, object{"timeout_s": 5})
	assert.Equal(t, []int{7, 11, 22, 33}, got.IDs)
	assert.Equal(t, []any{4, 4, "stop"}, []any{got.N, got.SeqLen, got.Finish})
}
