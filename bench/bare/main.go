// Command bare is the least that a router of prefill and decode nodes can do in Go on fasthttp: a line of clients before a number of slots,
// a prefill request, a decode request, and lines of token ids turned into events. It checks nothing, cancels nothing, measures nothing and
// does not detokenise: an id is its own text. bench/ runs it beside the router, as the limit for what a request and a hand-over of the slot
// can cost. It is no limit for unpaced tokens, which it writes one at a time.
//
//	go run ./bench/bare -addr 127.0.0.1:8000 -vllm 127.0.0.1:8001 -decode 127.0.0.1:8002 -slots 64
package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/valyala/fasthttp"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on")
	vllm := flag.String("vllm", "", "address of the prefill node")
	decode := flag.String("decode", "", "address of the decode node")
	slots := flag.Int("slots", 1, "requests that may run at once")
	flag.Parse()
	b := &bare{slots: make(chan struct{}, *slots), prefill: newClient(*vllm), decode: newClient(*decode)}
	for range *slots {
		b.slots <- struct{}{}
	}
	s := &fasthttp.Server{Handler: b.serve, MaxRequestBodySize: 64 << 20, Concurrency: 1 << 20, NoDefaultServerHeader: true}
	go func() { // ends with the process
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, os.Interrupt)
		<-end
		os.Exit(0)
	}()
	if err := s.ListenAndServe(*addr); err != nil {
		fmt.Fprintln(os.Stderr, "bench/bare:", err)
		os.Exit(1)
	}
}

func newClient(addr string) *fasthttp.HostClient {
	return &fasthttp.HostClient{Addr: addr, MaxConns: 1 << 14, StreamResponseBody: true, ReadBufferSize: 64 << 10, MaxResponseBodySize: 1 << 30}
}

type bare struct {
	slots           chan struct{} // those who wait for a value of a channel get it in the order in which they came
	prefill, decode *fasthttp.HostClient
}

// serve runs both legs. The slot goes on to the reply, or back.
func (b *bare) serve(ctx *fasthttp.RequestCtx) {
	if string(ctx.Path()) != "/v1/chat/completions" {
		return
	}
	<-b.slots
	resp, err := b.legs(ctx.PostBody())
	if err != nil {
		b.slots <- struct{}{}
		ctx.Error(err.Error(), fasthttp.StatusBadGateway)
		return
	}
	ctx.SetContentType("text/event-stream")
	ctx.Response.SetBodyStream(&reply{b: b, resp: resp}, -1)
}

var firstToken = []byte(`"token":"token_id:`)

// legs asks for the KV under a new id, and then for the tokens. The members that name the handoff are put at the end of the client's body.
func (b *bare) legs(body []byte) (*fasthttp.Response, error) {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails
	id := hex.EncodeToString(raw[:])
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	req.Header.SetMethod("POST")
	req.SetRequestURI("http://node/v1/chat/completions")
	req.Header.SetContentType("application/json")
	tail := `,"max_tokens":1,"stream":false,"request_id":"` + id + `","kv_transfer_params":{"tilert_host":"127.0.0.1","tilert_ctrl_port":1}}`
	req.SetBodyRaw(append(body[:len(body)-1:len(body)-1], tail...))
	if err := b.prefill.Do(req, resp); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.BodyStream())
	fasthttp.ReleaseResponse(resp)
	if err != nil {
		return nil, err
	}
	_, rest, _ := bytes.Cut(answer, firstToken)
	first, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok {
		return nil, errors.New("prefill named no token")
	}
	req.SetRequestURI("http://node/pd/decode")
	req.SetBodyRaw(fmt.Appendf(nil, `{"rid":"chatcmpl-%s","first_token_id":%s,"max_tokens":1000000,"sampling":{},"stream":true}`, id, first))
	resp = fasthttp.AcquireResponse()
	if err := b.decode.Do(req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// reply is the body of a stream: fasthttp has it written by WriteTo, in the connection's goroutine.
type reply struct {
	b    *bare
	resp *fasthttp.Response
}

const (
	before = `data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1700000000,"model":"stub","choices":[{"index":0,"delta":{"content":"`
	after  = `"},"finish_reason":null}]}` + "\n\n"
	last   = `data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1700000000,"model":"stub","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` +
		"\n\ndata: [DONE]\n\n"
)

// WriteTo turns lines into events until the node's body ends, gives the slot back, and writes the last event.
func (r *reply) WriteTo(w io.Writer) (n int64, err error) {
	lines := bufio.NewReaderSize(r.resp.BodyStream(), 4<<10)
	var buf []byte
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, err
		}
		if rest, ok := bytes.CutPrefix(line, []byte(`{"t":[`)); ok {
			buf = append(append(append(buf, before...), rest[:len(rest)-3]...), after...)
		}
		if lines.Buffered() == 0 && len(buf) > 0 {
			m, err := w.Write(buf)
			if n += int64(m); err != nil {
				return n, err
			}
			buf = buf[:0]
		}
	}
	fasthttp.ReleaseResponse(r.resp)
	r.resp = nil
	r.b.slots <- struct{}{}
	m, err := io.WriteString(w, last)
	return n + int64(m), err
}

// Close gives the slot back if WriteTo has not.
func (r *reply) Close() error {
	if r.resp != nil {
		fasthttp.ReleaseResponse(r.resp)
		r.resp = nil
		r.b.slots <- struct{}{}
	}
	return nil
}

// SupportsBodyWriteTo says that WriteTo stands for Read.
func (r *reply) SupportsBodyWriteTo() bool { return true }

// Read is not used: see SupportsBodyWriteTo.
func (r *reply) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
