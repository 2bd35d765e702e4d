package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pd-router/internal/nodes"
	"pd-router/internal/sim"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slack is how much longer than its bound something may take on a machine that does other things too.
const slack = 4

type object = map[string]any

// serve runs a simulated node until the test is over.
func serve(t *testing.T, listen func() error, run func(context.Context) error, end func() error) {
	t.Helper()
	require.NoError(t, listen())
	ended := make(chan error, 1)
	go func() { ended <- run(context.Background()) }()
	t.Cleanup(func() {
		assert.NoError(t, end())
		assert.NoError(t, <-ended)
	})
}

func simPrefill(t *testing.T, o sim.PrefillOptions) *sim.Prefill {
	t.Helper()
	p, err := sim.NewPrefill(o)
	require.NoError(t, err)
	serve(t, p.Listen, p.Serve, p.Close)
	return p
}

func simDecode(t *testing.T, o sim.DecodeOptions) *sim.Decode {
	t.Helper()
	d, err := sim.NewDecode(o)
	require.NoError(t, err)
	serve(t, d.Listen, d.Serve, d.Close)
	return d
}

// address reads host:ctrl:http as a simulated node tells it.
func address(t *testing.T, node string) nodes.Address {
	t.Helper()
	part := strings.Split(node, ":")
	require.Len(t, part, 3)
	return nodes.Address{Host: part[0], CtrlPort: atoi(t, part[1]), HTTPPort: atoi(t, part[2])}
}

func atoi(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

func portOf(t *testing.T, hostPort string) int {
	_, port, err := net.SplitHostPort(hostPort)
	require.NoError(t, err)
	return atoi(t, port)
}

// fake is a node of which a test decides every answer: pages by path, a body or a handler, and what the control port does.
type fake struct {
	t    *testing.T
	http *httptest.Server
	ctrl net.Listener
	work sync.WaitGroup

	mu    sync.Mutex
	asked []string // method and path of each request
	heard int      // bytes that came on the control port
}

// pages are answers by path: an object, or a handler. A path that is not there is answered 404.
type pages map[string]any

// newFake runs a node; say writes what the control port says, then the connection stays open until the other side leaves. nil: it says
// nothing at all.
func newFake(t *testing.T, p pages, say func(net.Conn)) *fake {
	f := &fake{t: t}
	f.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.asked = append(f.asked, r.Method+" "+r.URL.Path)
		f.mu.Unlock()
		switch page := p[r.URL.Path].(type) {
		case nil:
			w.WriteHeader(404)
		case func(http.ResponseWriter, *http.Request):
			page(w, r)
		default:
			assert.NoError(t, json.NewEncoder(w).Encode(page))
		}
	}))
	var err error
	f.ctrl, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.work.Go(func() {
		for {
			c, err := f.ctrl.Accept()
			if err != nil {
				return
			}
			f.work.Go(func() {
				defer c.Close()
				if say != nil {
					say(c)
				}
				b, _ := io.ReadAll(c) // to the end that the other side makes
				f.mu.Lock()
				f.heard += len(b)
				f.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = f.ctrl.Close()
		f.http.CloseClientConnections()
		f.http.Close()
		f.work.Wait()
	})
	return f
}

func (f *fake) addr() nodes.Address {
	return nodes.Address{Host: "127.0.0.1", CtrlPort: portOf(f.t, f.ctrl.Addr().String()), HTTPPort: portOf(f.t, f.http.Listener.Addr().String())}
}

// requests are those that came so far.
func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.asked...)
}

// status answers with a status.
func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hang answers nothing until the client leaves.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that
	<-r.Context().Done()
}

// says is a control port that sends one frame. Wire bytes are made here by hand, not by the code under test.
func says(payload []byte) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)) // a test that cares sees no hello
	}
}

// helloOf is a hello of protocol 2 with some members changed; a nil value removes one.
func helloOf(t *testing.T, change object) []byte {
	h := object{
		"magic": "tilert-pd", "protocol_version": 2, "layout_version": 10, "transport": "tcp", "data_port": 4444, "max_seq_len": 4096, "busy": false,
		"senders": 8, "kv_base": 4096, "pe_base": 8192, "ki_base": 12288,
	}
	for k, v := range change {
		h[k] = v
		if v == nil {
			delete(h, k)
		}
	}
	b, err := json.Marshal(h)
	require.NoError(t, err)
	return b
}

// goodPages are those of a decode node that is well.
func goodPages(change pages) pages {
	p := pages{
		"/health": object{"status": "ok"}, "/decode_status": object{"status": "idle", "current_rid": nil},
		"/capabilities": object{"profile": "glm5", "engine": "E", "capabilities": object{"penalties": false, "ignore_eos": true, "logprobs": false}},
	}
	for k, v := range change {
		p[k] = v
	}
	return p
}

// blob is NIXL metadata of one region at base, as the library writes it: fields of a tag, a 64-bit length, the bytes and a bar.
func blob(agent string, base, size uint64) []byte {
	var b bytes.Buffer
	num := func(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }
	field := func(tag string, value []byte) {
		b.WriteString(tag)
		b.Write(num(uint64(len(value))))
		b.Write(value)
		b.WriteByte('|')
	}
	b.WriteString("nixlSerDes|")
	field("Agent", []byte(agent))
	field("Conns", num(1))
	field("t", []byte("UCX"))
	field("c", []byte{0x20, 1, 2, 3})
	field("", []byte("MemSection"))
	field("nixlSecElms", num(1))
	field("bknd", []byte("UCX"))
	field("nixlDList", []byte("nixlSDList"))
	field("t", []byte{1, 0, 0, 0}) // GPU memory
	field("n", num(1))
	field("", append(append(append(num(base), num(size)...), num(0)...), "key"...))
	return b.Bytes()
}

// nixlHello is one with that metadata.
func nixlHello(t *testing.T, meta []byte, change object) []byte {
	all := object{"transport": "nixl", "nixl_meta": meta, "nixl_dev": 0, "data_port": nil}
	for k, v := range change {
		all[k] = v
	}
	return helloOf(t, all)
}

// vllm is a prefill node whose answer to the one-token call is made by answer.
func vllm(t *testing.T, change pages, answer func(id string) any) *httptest.Server {
	p := pages{
		"/health":    status(200),
		"/v1/models": object{"data": []object{{"id": "m", "max_model_len": 4096}}},
		"/v1/chat/completions": func(w http.ResponseWriter, r *http.Request) {
			var q struct {
				ID string `json:"request_id"`
			}
			assert.NoError(t, json.NewDecoder(r.Body).Decode(&q))
			assert.Equal(t, q.ID, r.Header.Get("X-Request-Id"))
			assert.NoError(t, json.NewEncoder(w).Encode(answer(q.ID)))
		},
	}
	for k, v := range change {
		p[k] = v
	}
	return newFake(t, p, nil).http
}

// oneToken is vLLM's answer.
func oneToken(id, token string) any {
	return object{
		"id": id, "object": "chat.completion", "model": "m", "usage": object{"prompt_tokens": 5},
		"choices": []object{{"index": 0, "logprobs": object{"content": []object{{"token": token, "logprob": -0.1, "top_logprobs": []any{}}}}}},
	}
}

func goodVLLM(t *testing.T) *httptest.Server {
	return vllm(t, nil, func(id string) any { return oneToken("chatcmpl-"+id, "token_id:7") })
}

// look probes within limits that suit a test.
func look(t *testing.T, url string, o Options, decode ...nodes.Address) Report {
	t.Helper()
	if o.Limit == 0 {
		o.Limit = 10 * time.Second
	}
	r := Run(t.Context(), Targets{VLLM: url, Decode: decode}, o)
	wantWhole(t, &r, len(decode))
	return r
}

// wantWhole holds invariants 3 and 5 for any report.
func wantWhole(t *testing.T, r *Report, decode int) {
	t.Helper()
	want := append([]string(nil), Names.Prefill...)
	for range decode {
		want = append(want, Names.Decode...)
	}
	var got []string
	for _, c := range r.Checks {
		got = append(got, c.Check)
		assert.NotContains(t, c.Detail+c.Advice, "\n")
		if c.Status == Fail || c.Status == Unchecked {
			assert.NotEmpty(t, c.Detail, c.Check)
		}
		if c.Status == Fail {
			assert.NotEmpty(t, c.Advice, c.Check)
		}
	}
	require.Equal(t, append(want, Names.All...), got)
	require.Len(t, r.Decode, decode)
}

// of is the result of a check of the nth decode node; of the first group that has it when n is below 0.
func of(t *testing.T, r *Report, n int, check string) CheckResult {
	t.Helper()
	for _, c := range r.Checks {
		if c.Check == check && (n < 0 || c.Node == r.Decode[n].Node) {
			return c
		}
	}
	require.Fail(t, "no such check", check)
	return CheckResult{}
}

// wantFailed holds that these checks of the report failed and no other.
func wantFailed(t *testing.T, r *Report, checks ...string) {
	t.Helper()
	got := []string{}
	for _, c := range r.Of(Fail) {
		got = append(got, c.Check)
	}
	if checks == nil {
		checks = []string{}
	}
	require.Equal(t, checks, got, fmt.Sprintf("%+v", r.Of(Fail)))
	require.Equal(t, len(checks) == 0, r.OK)
}

// testContext is one that the test may end.
func testContext(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}
