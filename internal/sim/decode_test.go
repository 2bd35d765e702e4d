package sim

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// stubRig is a node whose KV is always there.
func stubRig(t *testing.T, do DecodeOptions) *rig {
	do.KV = KVNone
	fill(&do.Engine, EngineStub)
	return newRig(t, PrefillOptions{}, do)
}

// The bytes of a 0.1.6.post3 decode server with its stub engine, timings aside.
func TestTheStubAnswersAsTheRealNode(t *testing.T) { // case 173
	r := stubRig(t, DecodeOptions{})
	timing := func(s string) string {
		i := strings.Index(s, `"wire_wait"`)
		j := i + strings.Index(s[i:], `"finish_reason"`)
		return s[:i] + s[j:]
	}
	got := r.decode("a", 7, object{"max_tokens": 8, "top_logprobs": 2})
	assert.Equal(t, []string{
		`{"t": [7], "lp": [-1.25], "tp": [[[7, -1.25], [8, -1.75]]]}` + "\n",
		`{"t": [11, 22, 33], "lp": [-1.25, -1.0, -0.75], "tp": [[[11, -1.25], [12, -1.75]], [[22, -1.0], [23, -1.5]], [[33, -0.75], [34, -1.25]]]}` + "\n",
	}, got.Lines[:2])
	assert.Equal(t, `{"done": true, "n": 4, "seq_len": 0, "finish_reason": "stop", "timing_ms": {"finish_reason": "stop"}}`+"\n", timing(got.Lines[2]))
	for _, part := range []string{`"wire_wait": `, `"convert": `, `"inject": `, `"decode": `} {
		assert.Contains(t, got.Lines[2], part)
	}
	status, b := r.post(r.node("/pd/decode"), `{"rid":"s3","first_token_id":7,"max_tokens":8,"top_logprobs":1}`)
	assert.Equal(t, 200, status)
	assert.Equal(t, `{"rid":"s3","token_ids":[7,11,22,33],"seq_len":0,"timing_ms":{"finish_reason":"stop"},`+
		`"logprobs":{"lp":[-1.25,-1.25,-1.0,-0.75],"tp":[[[7,-1.25]],[[11,-1.25]],[[22,-1.0]],[[33,-0.75]]]}}`, timing(string(b)))
	_, b = r.post(r.node("/pd/decode"), `{"rid":"s3","first_token_id":7,"max_tokens":2}`)
	assert.Contains(t, string(b), `"token_ids":[7,11]`)
	assert.NotContains(t, string(b), "logprobs")
}

func TestWrongTypesAre422(t *testing.T) {
	r := stubRig(t, DecodeOptions{})
	for body, want := range map[string]string{
		`{"rid":5}`: `{"detail":[{"type":"string_type","loc":["body","rid"],"msg":"Input should be a valid string","input":5},{"type":"missing","loc":["body","first_token_id"],"msg":"Field required","input":{"rid":5}}]}`,
		`{"rid":"a","first_token_id":"7x","max_tokens":1.5,"stream":"maybe","sampling":[],"timeout_s":"x"}`: "",
		`{"rid":"a","first_token_id":null}`:                       "",
		`{"rid":"a","first_token_id":[]}`:                         "",
		`{"rid":"a","first_token_id":7,"timeout_s":{}}`:           "",
		`{"rid":"a","first_token_id":7,"enable_thinking":"what"}`: "",
		`{bad`: `{"detail":[{"type":"json_invalid","loc":["body",1],"msg":"JSON decode error","input":{}}]}`,
		`[]`:   "",
		`null`: "",
	} {
		status, got := r.post(r.node("/pd/decode"), body)
		assert.Equal(t, 422, status, body)
		if want != "" {
			assert.JSONEq(t, want, string(got), body)
		}
		assert.Contains(t, string(got), `{"detail":[{"type":`)
	}
	for _, body := range []string{`{"rid":"a","first_token_id":"7"}`, `{"rid":"a","first_token_id":7.0,"max_tokens":"20","stream":0,"sampling":null,"timeout_s":"1.5","top_logprobs":"1"}`} {
		status, got := r.post(r.node("/pd/decode"), body)
		assert.Equal(t, 200, status, string(got))
	}
	assert.Zero(t, r.d.Counters().Busy)
}

func TestSmallRoutes(t *testing.T) {
	r := stubRig(t, DecodeOptions{Capabilities: []string{"logprobs"}})
	for path, want := range map[string]string{
		"/health": `{"status":"ok"}`, "/decode_status": `{"current_rid":null,"status":"idle"}`,
		"/capabilities": `{"profile":"tiny","engine":"StubEngine","capabilities":{"penalties":false,"ignore_eos":false,"logprobs":true}}`,
	} {
		status, got := r.get(r.node(path))
		assert.Equal(t, 200, status)
		assert.JSONEq(t, want, got)
	}
	for path, want := range map[string]int{"/nothing": 404, "/pd/decode": 405, "/pd/cancel": 405} {
		status, _ := r.get(r.node(path))
		assert.Equal(t, want, status, path)
	}
	old := stubRig(t, DecodeOptions{Generation: "V5"})
	status, _ := old.get(old.node("/capabilities"))
	assert.Equal(t, 404, status)
}

// Invariant 1.
func TestASecondRequestIs429(t *testing.T) { // case 172
	r := newRig(t, PrefillOptions{}, DecodeOptions{TokensPerSecond: 1000})
	resp := r.open(r.prefill("hello", nil), object{"sampling": object{"ignore_eos": true}, "max_tokens": 3000})
	assert.Equal(t, 200, resp.StatusCode)
	status, b := r.post(r.node("/pd/decode"), `{"rid":"b","first_token_id":7}`)
	assert.Equal(t, 429, status)
	var busy struct {
		Error   string `json:"error"`
		Current string `json:"current_rid"`
	}
	require.NoError(t, json.Unmarshal(b, &busy))
	assert.Equal(t, "busy", busy.Error)
	_, page := r.get(r.node("/decode_status"))
	assert.JSONEq(t, `{"status":"busy","current_rid":"`+busy.Current+`"}`, page)
	status, _ = r.post(r.node("/pd/cancel"), object{"rid": busy.Current})
	assert.Equal(t, 200, status)
	r.idle()
	assert.Equal(t, uint64(1), r.d.Counters().Busy)
	assert.Positive(t, r.d.Counters().BusySeconds)
}

func TestCancel(t *testing.T) {
	t.Run("in the wait for KV", func(t *testing.T) { // cases 169, 170
		r := newRig(t, PrefillOptions{}, DecodeOptions{})
		answer := make(chan decoded, 1)
		go func() {
			status, b := r.post(r.node("/pd/decode"), object{"rid": "a", "first_token_id": 7, "stream": true, "timeout_s": 30})
			answer <- r.read(status, b)
		}()
		require.Eventually(t, func() bool { return r.d.Counters().Requests == 1 }, 5*time.Second, time.Millisecond)
		status, b := r.post(r.node("/pd/cancel"), object{"rid": "other"})
		assert.Equal(t, 404, status)
		assert.JSONEq(t, `{"error":"no matching in-flight request","current_rid":"a"}`, string(b))
		status, b = r.post(r.node("/pd/cancel"), object{"rid": "a"})
		assert.Equal(t, 200, status)
		assert.JSONEq(t, `{"cancelled":"a"}`, string(b))
		got := <-answer
		assert.Equal(t, 499, got.Status)
		assert.JSONEq(t, `{"error":"cancelled during KV transfer","error_type":"request_cancelled","rid":"a"}`, got.Body)
		r.idle()
	})
	t.Run("while decoding, as a stream and in one piece", func(t *testing.T) {
		for _, stream := range []bool{true, false} {
			r := newRig(t, PrefillOptions{}, DecodeOptions{TokensPerSecond: 1000})
			p := r.prefill("hello", nil)
			answer := make(chan decoded, 1)
			go func() {
				answer <- r.decode(p.RID, p.First, object{"sampling": object{"ignore_eos": true}, "max_tokens": 4000, "stream": stream})
			}()
			require.Eventually(t, func() bool { return r.d.Counters().Requests == 1 }, 5*time.Second, time.Millisecond)
			require.Eventually(t, func() bool {
				status, _ := r.post(r.node("/pd/cancel"), object{"rid": p.RID})
				return status == 200
			}, 5*time.Second, time.Millisecond)
			got := <-answer
			if got.Status == 499 {
				continue // it was quicker than the KV
			}
			assert.Equal(t, 200, got.Status)
			assert.Contains(t, got.Body, "cancelled")
			if stream {
				assert.Equal(t, len(got.IDs), got.N)
				assert.Less(t, got.N, 4000)
			}
		}
	})
	t.Run("is not heard in the wait for KV by the older generation", func(t *testing.T) { // case 178
		r := newRig(t, PrefillOptions{}, DecodeOptions{Generation: "V5"})
		answer := make(chan int, 1)
		go func() {
			status, _ := r.post(r.node("/pd/decode"), object{"rid": "a", "first_token_id": 7, "timeout_s": 0.3})
			answer <- status
		}()
		require.Eventually(t, func() bool { return r.d.Counters().Requests == 1 }, 5*time.Second, time.Millisecond)
		status, _ := r.post(r.node("/pd/cancel"), object{"rid": "a"})
		assert.Equal(t, 404, status)
		assert.Equal(t, 504, <-answer)
	})
}

func TestAStreamStopsWhenItsClientLeaves(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{TokensPerSecond: 10, Poll: time.Hour})
	ctx, leave := context.WithCancel(t.Context())
	resp := r.openIn(ctx, r.prefill("hello", nil), object{"sampling": object{"ignore_eos": true}})
	assert.Equal(t, 200, resp.StatusCode)
	leave()
	began := time.Now()
	r.idle()
	assert.Less(t, time.Since(began), 2*time.Second)
}

func TestRefusalsAfterTheSlotWasTaken(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{Engine: EngineStub, Capabilities: []string{}, Drain: 50 * time.Millisecond})
	for _, tc := range []struct {
		extra  object
		status int
		kind   string
	}{
		{object{"top_logprobs": 1}, 501, "logprobs_unavailable"},
		{object{"top_logprobs": 1, "sampling": object{"seed": 3}}, 501, "logprobs_unavailable"},
		{object{"sampling": object{"seed": 3}}, 501, "capability_unavailable"},
		{object{"sampling": object{"temperature": "hot"}}, 400, "invalid_parameter"},
		{object{"sampling": object{"temperature": -1}}, 400, "invalid_parameter"},
		{object{"sampling": object{"top_k": 1.5}}, 400, "invalid_parameter"},
		{object{"sampling": object{"min_p": 0.5}}, 501, "capability_unavailable"},
		{object{"sampling": object{"repetition_penalty": 1.3}}, 501, "capability_unavailable"},
		{object{"sampling": object{"repetition_penalty": "1.0"}}, 400, "invalid_parameter"},
		{object{"sampling": object{"ignore_eos": true}}, 501, "capability_unavailable"},
		{object{"sampling": object{"ignore_eos": 1}}, 400, "invalid_parameter"},
		{object{"sampling": object{"stop_token_ids": []int{1}}}, 501, "capability_unavailable"},
		{object{"grammar_spec": object{"type": "nonsense"}}, 400, "invalid_grammar"},
		{object{"grammar_spec": object{"type": "nonsense"}, "sampling": object{"seed": 3}}, 501, "capability_unavailable"},
	} {
		got := r.decode("a", 7, tc.extra)
		assert.Equal(t, []any{tc.status, tc.kind}, []any{got.Status, got.ErrType}, "%v: %s", tc.extra, got.Body)
	}
	neutral := object{
		"temperature": "0.7", "top_p": 0.95, "top_k": 20.0, "repetition_penalty": 1.0, "presence_penalty": 0, "ignore_eos": false, "min_p": 0.0,
		"seed": nil, "stop_token_ids": []int{}, "nonsense": 1,
	}
	assert.Equal(t, 504, r.decode("a", 7, object{"sampling": neutral, "timeout_s": 0.05}).Status, "neutral values are let through")
	r.idle()
	text := newRig(t, PrefillOptions{}, DecodeOptions{Drain: 50 * time.Millisecond})
	assert.Equal(t, "grammar_unsupported", text.decode("a", 7, object{"grammar_spec": object{"type": "regex", "value": "x"}}).ErrType)
	old := newRig(t, PrefillOptions{}, DecodeOptions{Generation: "V5", Engine: EngineStub})
	assert.Equal(t, 504, old.decode("a", 7, object{"sampling": object{"seed": 3}, "timeout_s": 0.05}).Status, "the older generation does not look")
}

func TestARefusalWaitsForItsKVAndACancelEndsTheWait(t *testing.T) { // case 176
	r := newRig(t, PrefillOptions{}, DecodeOptions{})
	p := r.prefill("hello", nil)
	got := r.decode(p.RID, p.First, object{"grammar_spec": object{"type": "nonsense"}})
	assert.Equal(t, 400, got.Status, "its KV has come, so it does not wait for 30 s")
	answer := make(chan int, 1)
	go func() {
		status, _ := r.post(r.node("/pd/decode"), object{"rid": "a", "first_token_id": 7, "grammar_spec": object{"type": "nonsense"}})
		answer <- status
	}()
	require.Eventually(t, func() bool {
		status, _ := r.post(r.node("/pd/cancel"), object{"rid": "a"})
		return status == 200
	}, 5*time.Second, time.Millisecond)
	assert.Equal(t, 400, <-answer)
}

func TestGrammarViolations(t *testing.T) {
	r := stubRig(t, DecodeOptions{})
	spec := object{"type": "regex", "value": "__violate__"}
	got := r.decode("a", 7, object{"grammar_spec": spec})
	assert.Equal(t, []any{200, "grammar_violation", 1}, []any{got.Status, got.ErrType, len(got.Lines)})
	got = r.decode("a", 7, object{"grammar_spec": spec, "stream": false})
	assert.Equal(t, []any{400, "grammar_violation"}, []any{got.Status, got.ErrType})
	r.idle()
}

func TestTheBudget(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{MaxSeqLen: 64})
	ignore := object{"ignore_eos": true}
	long := "say:" + strings.Repeat("word ", 30)
	window := r.ask(long, nil, object{"max_tokens": 400, "sampling": ignore})
	require.Equal(t, 200, window.Status, window.Body)
	assert.Equal(t, []any{64 - window.SeqLen - 1, "length"}, []any{window.N, window.Finish}, "the window ends it")
	got := r.ask("say:Hello the weather", nil, object{"max_tokens": 2})
	assert.Equal(t, []any{2, "length"}, []any{got.N, got.Finish}, "max_tokens ends it")
	got = r.ask("say:Hello the weather", nil, object{"max_tokens": 12, "sampling": ignore})
	assert.Equal(t, []any{12, "length"}, []any{got.N, got.Finish}, "past its natural end it begins again")
	assert.Equal(t, strings.Repeat("Hello the weather", 2), vocabulary().decode(got.IDs[:2*len(vocabulary().encode("Hello the weather"))]))
	got = r.ask("say:Hello", nil, object{"max_tokens": 1})
	assert.Equal(t, []any{1, 1, "length"}, []any{got.N, len(got.IDs), got.Finish})
}

func TestTheFirstTokenMayEndTheReply(t *testing.T) { // case 164
	r := newRig(t, PrefillOptions{}, DecodeOptions{})
	p := r.prefill("say:", nil)
	require.Equal(t, vocabulary().eos, p.First)
	got := r.decode(p.RID, p.First, nil)
	assert.Equal(t, []any{[]int{p.First}, 0, "stop"}, []any{got.IDs, got.N, got.Finish})
}

func TestAPromptAtTheWindow(t *testing.T) { // case 165
	r := newRig(t, PrefillOptions{MaxModelLen: 200}, DecodeOptions{MaxSeqLen: 40})
	p := r.prefill("say:"+strings.Repeat("x", 124), nil)
	require.Equal(t, 40, p.Prompt)
	got := r.decode(p.RID, p.First, nil)
	assert.Equal(t, []any{0, 1, "length", 1}, []any{len(got.IDs), got.N, got.Finish, len(got.Lines)})
}

func TestLinesFollowTheClock(t *testing.T) {
	const text = "say:the quick brown fox jumps over the lazy dog while seven wizards quietly box"
	t.Run("the first token comes at once, then one line a poll", func(t *testing.T) {
		r := newRig(t, PrefillOptions{}, DecodeOptions{TokensPerSecond: 200, Poll: 40 * time.Millisecond})
		got := r.ask(text, nil, object{"sampling": object{"ignore_eos": true}, "max_tokens": 41})
		assert.Equal(t, 41, got.N)
		assert.Contains(t, got.Lines[0], `{"t": [`)
		assert.NotContains(t, got.Lines[0], ", ")
		assert.InDelta(t, 1+5+1, len(got.Lines), 2, got.Body) // 200 ms of tokens
	})
	t.Run("a line for each token", func(t *testing.T) {
		r := newRig(t, PrefillOptions{}, DecodeOptions{TokensPerSecond: 2000, PerToken: true})
		began := time.Now()
		got := r.ask(text, nil, object{"sampling": object{"ignore_eos": true}, "max_tokens": 101})
		assert.Len(t, got.Lines, 102)
		assert.Greater(t, time.Since(began), 50*time.Millisecond)
	})
	t.Run("without a rate all come at once", func(t *testing.T) {
		r := newRig(t, PrefillOptions{}, DecodeOptions{PerToken: true})
		got := r.ask(text, nil, object{"sampling": object{"ignore_eos": true}, "max_tokens": 2000})
		assert.Len(t, got.Lines, 2001)
	})
	t.Run("without a rate the rest is one line", func(t *testing.T) {
		r := newRig(t, PrefillOptions{}, DecodeOptions{})
		assert.Len(t, r.ask(text, nil, nil).Lines, 3)
	})
}

func TestLogProbsOfTheTextEngine(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{})
	got := r.ask("say:Hello the", nil, object{"top_logprobs": 1})
	require.GreaterOrEqual(t, len(got.Lines), 3, got.Body)
	assert.Contains(t, got.Lines[0], `"lp": [null], "tp": [[]]`, "prefill sampled the first token")
	assert.Contains(t, got.Lines[1], `"lp": [-`)
}

func TestADataPortRefusesWhatIsOutside(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{})
	c := dial(t, r.d.recv.in.(*tcpInlet).ln.Addr().String())
	head := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, r.d.buffer.base-8), 16)
	_, err := c.Write(append(head, make([]byte, 16)...))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	assert.Error(t, err)
	assert.Equal(t, uint64(1), r.d.Counters().ChecksFailed)
}

func TestDecodeFaults(t *testing.T) {
	one := func(t *testing.T, fault string, extra object) decoded {
		r := newRig(t, PrefillOptions{}, DecodeOptions{Faults: []string{fault}})
		got := r.ask("say:"+strings.Repeat("word ", 20), nil, extra)
		r.idle()
		return got
	}
	assert.Equal(t, 500, one(t, faultRefuse, nil).Status)
	assert.Equal(t, 0, one(t, faultReset, nil).Status)
	assert.Equal(t, 429, one(t, faultBusy, nil).Status)
	assert.Equal(t, -200, one(t, faultTruncate, nil).Status, "broken off")
	assert.Equal(t, -200, one(t, faultTruncate, object{"stream": false}).Status)
	got := one(t, faultError, nil)
	assert.Equal(t, []any{200, "engine exploded", ""}, []any{got.Status, got.Error, got.Finish})
	assert.NotEmpty(t, got.IDs)
	assert.Equal(t, 500, one(t, faultError, object{"stream": false}).Status)
	assert.Contains(t, one(t, faultGarbage, nil).Error, "not valid JSON")
	assert.Equal(t, "this is no JSON", one(t, faultGarbage, object{"stream": false}).Body)
	assert.Equal(t, "stop", one(t, faultSlow, nil).Finish)

	for _, fault := range []string{faultHang, faultStall} {
		r := newRig(t, PrefillOptions{}, DecodeOptions{Faults: []string{fault}})
		p := r.prefill("hello", nil)
		ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer leave()
		go func() { <-ctx.Done(); r.hc.CloseIdleConnections() }()
		if fault == faultStall {
			resp := r.openIn(ctx, p, nil)
			b := make([]byte, 100)
			n, err := resp.Body.Read(b)
			require.NoError(t, err)
			assert.Contains(t, string(b[:n]), `{"t": [`)
			_, err = resp.Body.Read(b)
			assert.Error(t, err, "nothing more comes")
		} else {
			c := dial(t, r.d.HTTPAddr())
			_, err := c.Write([]byte("POST /pd/decode HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\n" + `{"rid":"a","first_token_id":7}`))
			require.NoError(t, err)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
			_, err = c.Read(make([]byte, 1))
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			assert.True(t, timeout.Timeout())
			require.NoError(t, c.Close())
		}
		r.idle()
	}
}
