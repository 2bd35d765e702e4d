package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
)

// stub is a server that answers as fast as it can: raw sockets, canned bytes, one goroutine a connection.
type stub struct {
	ln     net.Listener
	tokens atomic.Int64 // token lines of a decode
	hold   atomic.Pointer[chan struct{}]
}

// newStub listens on addr.
func newStub(addr string, handle func(s *stub, path string, body []byte, w *bufio.Writer)) (*stub, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &stub{ln: ln}
	s.tokens.Store(1)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(c, handle)
		}
	}()
	return s, nil
}

func (s *stub) port() int { return s.ln.Addr().(*net.TCPAddr).Port }

func (s *stub) serve(c net.Conn, handle func(s *stub, path string, body []byte, w *bufio.Writer)) {
	defer c.Close()
	r, w := bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 64<<10)
	var body []byte
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		path := strings.Fields(string(line))[1]
		length := 0
		for {
			h, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(h) <= 2 {
				break
			}
			if i := bytes.IndexByte(h, ':'); i == len("Content-Length") && bytes.EqualFold(h[:i], []byte("content-length")) {
				length, _ = strconv.Atoi(string(bytes.TrimSpace(h[i+1:])))
			}
		}
		if cap(body) < length {
			body = make([]byte, length)
		}
		body = body[:length]
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		handle(s, path, body, w)
		if w.Flush() != nil {
			return
		}
	}
}

func reply(w *bufio.Writer, kind, body string) {
	fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
}

// prefill answers as vLLM does to a request for one token.
func prefill(s *stub, path string, body []byte, w *bufio.Writer) {
	switch path {
	case "/v1/chat/completions":
		if hold := s.hold.Load(); hold != nil {
			<-*hold
		}
		id := "0"
		if i := bytes.LastIndex(body, []byte(`"request_id":"`)); i >= 0 {
			id = string(body[i+14 : i+14+32])
		}
		reply(w, "application/json", `{"id":"chatcmpl-`+id+`","object":"chat.completion","created":1700000000,"model":"stub","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"logprobs":{"content":[{"token":"token_id:201","logprob":-0.1,"bytes":null,"top_logprobs":[{"token":"token_id:201","logprob":-0.1,"bytes":null}]}]},"finish_reason":"length"}],"usage":{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5},"kv_transfer_params":null}`)
	case "/v1/models":
		reply(w, "application/json", `{"object":"list","data":[{"id":"stub","max_model_len":1000000}]}`)
	default:
		reply(w, "application/json", "{}")
	}
}

// decode streams tokens, one line and one chunk each, as fast as the other side reads.
func decode(s *stub, path string, _ []byte, w *bufio.Writer) {
	switch path {
	case "/pd/decode":
		n := int(s.tokens.Load())
		_, _ = w.WriteString("HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n")
		for i := range n {
			if i == 0 {
				_, _ = w.WriteString("c\r\n{\"t\":[201]}\n\r\n")
				_ = w.Flush()
			} else {
				_, _ = w.WriteString("c\r\n{\"t\":[202]}\n\r\n")
			}
		}
		done := fmt.Sprintf(`{"done":true,"n":%d,"seq_len":4,"finish_reason":"length","timing_ms":{"wire_wait":0.0,"decode":0.1}}`+"\n", n)
		fmt.Fprintf(w, "%x\r\n%s\r\n0\r\n\r\n", len(done), done)
	case "/decode_status":
		reply(w, "application/json", `{"status":"idle","current_rid":null}`)
	case "/capabilities":
		reply(w, "application/json", `{"capabilities":{"penalties":true,"ignore_eos":true,"logprobs":true}}`)
	default:
		reply(w, "application/json", `{"status":"ok"}`)
	}
}
