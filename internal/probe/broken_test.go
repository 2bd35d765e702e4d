package probe

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"pd-router/internal/nodes"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// closedPort is one that nobody listens on.
func closedPort(t *testing.T) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return portOf(t, ln.Addr().String())
}

func TestWhatIsWrongWithADecodeNodeIsNamedOnce(t *testing.T) { // invariant 4
	p := goodVLLM(t)
	hello := func(change object) func(net.Conn) { return says(helloOf(t, change)) }
	at := func(text string) func(net.Conn) { return func(c net.Conn) { _, _ = c.Write([]byte(text)) } }
	for _, tc := range []struct {
		name   string
		pages  pages
		say    func(net.Conn)
		fails  string // the one check that fails
		detail string
	}{
		{"the control port says nothing", nil, nil, checkHello, "no answer within 100ms"},
		{"it closes the connection", nil, func(c net.Conn) { _ = c.Close() }, checkHello, "closed without a whole answer"},
		{"it stops in the middle of the frame", nil, func(c net.Conn) { at("\x00\x00\x10\x00{")(c); _ = c.(*net.TCPConn).CloseWrite() }, checkHello, "closed without a whole answer"},
		{"it speaks something else", nil, at("HTTP/1.1 400 Bad Request\r\n\r\n"), checkHello, "longer than 16 MiB"},
		{"its frame is no JSON", nil, says([]byte("hello")), checkHello, "not a JSON object"},
		{"the magic is another", nil, hello(object{"magic": "other"}), checkHello, `magic is "other", want "tilert-pd"`},
		{"the protocol is none", nil, hello(object{"protocol_version": 0}), checkHello, "protocol_version is 0"},
		{"nobody is to send", nil, hello(object{"senders": 0}), checkHello, "senders is 0"},
		{"senders are below zero", nil, hello(object{"senders": -8}), checkHello, "senders is -8"},
		{"nothing fits in", nil, hello(object{"max_seq_len": 0}), checkHello, "max_seq_len is 0"},
		{"a base is missing", nil, hello(object{"nshards": 2}), checkHello, "plane bases for 2 shards"},
		{"metadata is not base64", nil, says(nixlHello(t, nil, object{"nixl_meta": "%%%"})), checkHello, "nixl_meta is not base64"},
		{"metadata is missing", nil, says(nixlHello(t, nil, nil)), checkTransport, "no nixl_meta"},
		{"mooncake has no session", nil, hello(object{"transport": "mooncake"}), checkTransport, `session_id is "", want host:port`},
		{"a simulated node without data port", nil, hello(object{"data_port": nil}), checkTransport, "data_port is 0"},
		{"health is bad", pages{"/health": status(503)}, hello(nil), checkHealth, "GET /health answered 503"},
		{"health hangs", pages{"/health": hang}, hello(nil), checkHealth, "no answer within 100ms"},
		{"capabilities hang", pages{"/capabilities": hang}, hello(nil), checkCapabilities, "no answer within 100ms"},
		{"there is no status", pages{"/decode_status": nil}, hello(nil), checkStatus, "answered 404"},
		{"the status is nonsense", pages{"/decode_status": object{"status": 1}}, hello(nil), checkStatus, "neither busy nor idle"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t, goodPages(tc.pages), tc.say)
			limit := 10 * time.Second
			if tc.detail == "no answer within 100ms" {
				limit = 100 * time.Millisecond
			}
			r := look(t, p.URL, Options{Limit: limit}, f.addr())
			wantFailed(t, &r, tc.fails)
			assert.Contains(t, of(t, &r, 0, tc.fails).Detail, tc.detail)
		})
	}
}

func TestWhatIsOddAboutADecodeNodeIsAWarning(t *testing.T) {
	p := goodVLLM(t)
	hello := func(change object) func(net.Conn) { return says(helloOf(t, change)) }
	for _, tc := range []struct {
		name   string
		pages  pages
		say    func(net.Conn)
		warns  string
		detail string
	}{
		{"a protocol to come", nil, hello(object{"protocol_version": 3}), checkHello, "protocol 3"},
		{"more senders than are known", nil, hello(object{"senders": 16}), checkHello, "16 senders"},
		{"a transport to come", nil, hello(object{"transport": "pigeon"}), checkTransport, `"pigeon" is unknown`},
		{"metadata of an unknown form", nil, says(nixlHello(t, []byte("what"), nil)), checkTransport, "4 bytes of metadata (base64), of a form that is unknown"},
		{"metadata of a buffer elsewhere", nil, says(nixlHello(t, blob("a:1", 1<<30, 10), nil)), checkTransport, "none of which holds kv_base 0x1000"},
		{"metadata of a buffer that ends before", nil, says(nixlHello(t, blob("a:1", 0, 4096), nil)), checkTransport, "none of which holds kv_base 0x1000"},
		{"the slot is taken", pages{"/decode_status": object{"status": "busy", "current_rid": "r1"}}, hello(nil), checkStatus, "busy with r1"},
		{"the buffer alone is taken", nil, hello(object{"busy": true}), checkStatus, "idle, but its receive buffer is taken"},
		{"no capabilities can be read", pages{"/capabilities": status(500)}, hello(nil), checkCapabilities, "answered 500"},
		{"capabilities are no JSON", pages{"/capabilities": status(200)}, hello(nil), checkCapabilities, "not JSON"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t, goodPages(tc.pages), tc.say)
			r := look(t, p.URL, Options{}, f.addr())
			wantFailed(t, &r)
			require.Len(t, r.Of(Warn), 1, "%+v", r.Of(Warn))
			c := r.Of(Warn)[0]
			assert.Equal(t, tc.warns, c.Check)
			assert.Contains(t, c.Detail, tc.detail)
			assert.NotEmpty(t, c.Advice)
		})
	}
}

func TestANodeThatIsNotThere(t *testing.T) {
	p := goodVLLM(t)
	r := look(t, p.URL, Options{}, nodes.Address{Host: "127.0.0.1", CtrlPort: closedPort(t), HTTPPort: closedPort(t)})
	wantFailed(t, &r, checkControl, checkHealth)
	assert.Contains(t, of(t, &r, 0, checkControl).Detail, "connection refused")
	assert.Contains(t, of(t, &r, 0, checkHealth).Detail, "connection refused")

	r = look(t, p.URL, Options{}, nodes.Address{Host: "no-such-host.invalid", CtrlPort: 1, HTTPPort: 2})
	wantFailed(t, &r, checkAddress)
	assert.Len(t, r.Of(Unchecked), 9)
}

func TestSwappedPortsAreFoundOnBoth(t *testing.T) {
	f := newFake(t, goodPages(nil), says(helloOf(t, nil)))
	a := f.addr()
	a.CtrlPort, a.HTTPPort = a.HTTPPort, a.CtrlPort
	r := look(t, goodVLLM(t).URL, Options{Limit: 200 * time.Millisecond}, a)
	wantFailed(t, &r, checkHello, checkHealth)
	for _, c := range r.Of(Fail) {
		assert.Contains(t, c.Advice, "host:ctrl_port:http_port, in that order")
	}
}

func TestWhatIsWrongWithThePrefillNodeIsNamedOnce(t *testing.T) {
	d := newFake(t, goodPages(nil), says(helloOf(t, nil)))
	answer := func(id func(string) string, token string) func(string) any {
		return func(asked string) any { return oneToken(id(asked), token) }
	}
	same := func(id string) string { return "chatcmpl-" + id }
	for _, tc := range []struct {
		name   string
		pages  pages
		answer func(string) any
		fails  string
		detail string
	}{
		{"it is loading", pages{"/health": status(503)}, nil, checkHealth, "answered 503"},
		{"it hangs", pages{"/health": hang}, nil, checkHealth, "no answer within 100ms"},
		{"it lists no model", pages{"/v1/models": object{"data": []any{}}}, answer(same, "token_id:1"), checkModels, "lists no model"},
		{"it has no model list", pages{"/v1/models": nil}, answer(same, "token_id:1"), checkModels, "answered 404"},
		{"it refuses the call", pages{"/v1/chat/completions": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = w.Write([]byte("{\"error\":{\"message\":\"no chat\\ntemplate\x1b[31m\"}}"))
		}}, nil, checkToken, "answered 400: "},
		{"it computes for ever", pages{"/v1/chat/completions": hang}, nil, checkToken, "no answer within 100ms"},
		{"tokens come as text", nil, answer(same, "Hi"), checkTokenIDs, `(it said "Hi", want token_id:N)`},
		{"token ids are no numbers", nil, answer(same, "token_id:x"), checkTokenIDs, `"token_id:x"`},
		{"there are no log-probs", nil, func(id string) any { return object{"id": same(id), "choices": []object{{"logprobs": nil}}} }, checkTokenIDs, `it said ""`},
		{"it makes ids of its own", nil, answer(func(string) string { return "chatcmpl-0123456789abcdef" }, "token_id:1"), checkRequestID, "chatcmpl-0123456789abcdef"},
		{"it adds to the id", nil, answer(func(id string) string { return "chatcmpl-" + id + "-0" }, "token_id:1"), checkRequestID, `-0", want "chatcmpl-`},
		{"it gives the id bare", nil, answer(func(id string) string { return id }, "token_id:1"), checkRequestID, "want"},
		{"the answer is something else", pages{"/v1/chat/completions": status(200)}, nil, checkRequestID, "has no id"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := vllm(t, tc.pages, tc.answer)
			o := Options{}
			if tc.detail == "no answer within 100ms" {
				o = Options{Limit: 100 * time.Millisecond, TokenLimit: 100 * time.Millisecond}
			}
			r := look(t, p.URL, o, d.addr())
			wantFailed(t, &r, tc.fails)
			assert.Contains(t, of(t, &r, -1, tc.fails).Detail, tc.detail)
		})
	}
	r := look(t, "https://prefill", Options{}, d.addr())
	wantFailed(t, &r, checkHealth)
	assert.Contains(t, of(t, &r, -1, checkHealth).Detail, "want http://")
}

// Invariant 5.
func TestTextOfNodesIsMadePlain(t *testing.T) {
	d := newFake(t, goodPages(pages{"/decode_status": object{"status": "busy", "current_rid": "a\x1b[2Jb\nc"}}), says(helloOf(t, object{"transport": "\x1b]0;x\x07"})))
	p := vllm(t, pages{"/v1/models": object{"data": []object{{"id": "m\x1b[31m", "max_model_len": 1}}}}, func(id string) any {
		return oneToken("chatcmpl-"+id, "token_id:1")
	})
	r := look(t, p.URL, Options{}, d.addr())
	assert.Equal(t, "busy with a\uFFFD[2Jb c", of(t, &r, 0, checkStatus).Detail)
	assert.Equal(t, "a\uFFFD[2Jb c", r.Decode[0].RID)
	assert.Equal(t, "\uFFFD]0;x\uFFFD", r.Decode[0].Hello.Transport)
	assert.Equal(t, "m\uFFFD[31m", r.Prefill.Models[0].Name)
	assert.Equal(t, "m\uFFFD[31m, max_model_len 1", of(t, &r, -1, checkModels).Detail)
	assert.Len(t, []rune(plain(string(make([]byte, 1<<20)))), longestDetail+1)
}

func TestAnUnknownWindowIsAWarning(t *testing.T) {
	p := vllm(t, pages{"/v1/models": object{"data": []object{{"id": "m"}}}}, func(id string) any { return oneToken("chatcmpl-"+id, "token_id:1") })
	r := look(t, p.URL, Options{}, newFake(t, goodPages(nil), says(helloOf(t, nil))).addr())
	wantFailed(t, &r)
	assert.Equal(t, Warn, of(t, &r, -1, checkModels).Status)
	assert.Equal(t, Unchecked, of(t, &r, -1, checkWindow).Status)
}

// silent is an address that takes connections and never says a word, as nobody accepts them.
func silent(t *testing.T) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return portOf(t, ln.Addr().String())
}

func TestHungNodesCostTheLimitsOfOneNode(t *testing.T) { // invariant 2
	const limit = 100 * time.Millisecond
	p := vllm(t, pages{"/v1/chat/completions": hang}, nil)
	targets := Targets{VLLM: p.URL}
	for range 20 {
		targets.Decode = append(targets.Decode, nodes.Address{Host: "127.0.0.1", CtrlPort: silent(t), HTTPPort: silent(t)})
	}
	start := time.Now()
	r := Run(t.Context(), targets, Options{Limit: limit, TokenLimit: limit})
	took := time.Since(start)
	wantWhole(t, &r, 20)
	assert.Len(t, r.Of(Fail), 41)
	assert.GreaterOrEqual(t, took, limit)
	assert.Less(t, took, 2*limit*slack) // models and the one-token call, or hello, or health
}

func TestTheEndOfTheContextEndsTheProbe(t *testing.T) { // invariant 2
	var p *httptest.Server
	arrived := make(chan struct{})
	p = vllm(t, pages{"/v1/chat/completions": func(w http.ResponseWriter, r *http.Request) { close(arrived); hang(w, r) }}, nil)
	ctx, cancel := testContext(t)
	var ended time.Time
	go func() {
		<-arrived
		ended = time.Now()
		cancel()
	}()
	r := Run(ctx, Targets{VLLM: p.URL, Decode: []nodes.Address{{Host: "127.0.0.1", CtrlPort: silent(t), HTTPPort: silent(t)}}}, Options{Limit: time.Hour, TokenLimit: time.Hour})
	assert.Less(t, time.Since(ended), slack*100*time.Millisecond)
	assert.False(t, r.OK)
	wantWhole(t, &r, 1)
	assert.Equal(t, "POST /v1/chat/completions: the probe was stopped", of(t, &r, -1, checkToken).Detail)
}
