package main

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// nodes are a prefill and a decode node. They serve each router in its own wire, with the same tokens: TileRT's, with lines of ids
// on /pd/decode; that of two vLLM nodes, and that of two SGLang nodes, with events on /v1/chat/completions.
// A client that asks the decode node itself gets what those routers pass on.
type nodes struct {
	pre, dec    *stub
	tokens      atomic.Int64 // of a reply
	pace        atomic.Int64 // nanoseconds between two tokens of a reply, 0: as fast as the other side reads
	prefillTime atomic.Int64 // nanoseconds
	decodeTime  atomic.Int64 // nanoseconds before the last token
	hold        atomic.Pointer[chan struct{}]
	slot        atomic.Pointer[slot] // what the decode node saw, if somebody wants to know
}

func startNodes() (*nodes, error) {
	n := &nodes{}
	n.tokens.Store(1)
	var err error
	if n.pre, err = newStub("127.0.0.1:0", n.prefill); err != nil {
		return nil, err
	}
	// One stub stands for many nodes: it is reached under many addresses of the loopback network.
	n.dec, err = newStub("0.0.0.0:0", n.decode)
	return n, err
}

func (n *nodes) close() {
	_ = n.pre.ln.Close()
	_ = n.dec.ln.Close()
}

const (
	chunkBefore = `data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1700000000,"model":"stub","choices":[{"index":0,"delta":{"content":"`
	chunkAfter  = `"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	chunkLast   = `data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1700000000,"model":"stub","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}` + "\n\n"
	prefilled   = `"object":"chat.completion","created":1700000000,"model":"stub","choices":[{"index":0,"message":{"role":"assistant","content":"201"},` +
		`"logprobs":{"content":[{"token":"token_id:201","logprob":-0.1,"bytes":null,"top_logprobs":[{"token":"token_id:201","logprob":-0.1,"bytes":null}]}]},` +
		`"finish_reason":"length"}],"usage":{"prompt_tokens":4,"completion_tokens":1,"total_tokens":5},"kv_transfer_params":`
	pulled = `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3]],"remote_engine_id":"e","remote_request_id":"r",` +
		`"remote_host":"127.0.0.1","remote_port":5600,"tp_size":8}`
)

func reply(w *bufio.Writer, kind, body string) {
	fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body)
}

// prefill answers as the engine does to a request for one token. Which wire it is shows in the members that routers add at the end.
func (n *nodes) prefill(path string, body []byte, w *bufio.Writer) {
	if path != "/v1/chat/completions" {
		about(path, w)
		return
	}
	if hold := n.hold.Load(); hold != nil {
		<-*hold
	}
	if s := n.slot.Load(); s != nil {
		s.prefill(body)
	}
	time.Sleep(time.Duration(n.prefillTime.Load()))
	end := body[max(0, len(body)-2048):]
	if i := bytes.LastIndex(end, []byte(`"request_id":"`)); i >= 0 {
		reply(w, "application/json", `{"id":"chatcmpl-`+string(end[i+14:i+14+32])+`",`+prefilled+"null}")
	} else if bytes.Contains(end, []byte(`"bootstrap_room":`)) {
		reply(w, "text/event-stream", chunkBefore+"201"+chunkAfter+"data: [DONE]\n\n")
	} else {
		reply(w, "application/json", `{"id":"chatcmpl-0",`+prefilled+pulled+"}")
	}
}

// decode streams tokens, each a chunk of its own.
func (n *nodes) decode(path string, _ []byte, w *bufio.Writer) {
	var before, after, kind, last string
	tokens := int(n.tokens.Load())
	switch path {
	case "/pd/decode":
		before, after, kind = `{"t":[`, "]}\n", "application/x-ndjson"
		last = fmt.Sprintf(`{"done":true,"n":%d,"seq_len":4,"finish_reason":"length","timing_ms":{"wire_wait":0.0,"decode":0.1}}`+"\n", tokens)
	case "/v1/chat/completions":
		before, after, kind, last = chunkBefore, chunkAfter, "text/event-stream; charset=utf-8", chunkLast+"data: [DONE]\n\n"
	default:
		about(path, w)
		return
	}
	s := n.slot.Load()
	if s != nil {
		s.begin()
	}
	fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n", kind)
	token := chunk(before + "201" + after)
	if pace := time.Duration(n.pace.Load()); pace > 0 {
		paced(w, before, after, tokens, pace)
	} else {
		for i := range tokens {
			_, _ = w.WriteString(token)
			if i == 0 {
				_ = w.Flush()
			}
		}
	}
	time.Sleep(time.Duration(n.decodeTime.Load()))
	if s != nil {
		s.end()
	}
	_, _ = w.WriteString(chunk(last) + "0\r\n\r\n")
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// paced sends tokens at a fixed rate. Each one's id is the time when it left, see clock.
func paced(w *bufio.Writer, before, after string, tokens int, pace time.Duration) {
	next := time.Now()
	for range tokens {
		time.Sleep(time.Until(next))
		next = next.Add(pace)
		_, _ = w.WriteString(chunk(before + strconv.Itoa(clock()) + after))
		if w.Flush() != nil {
			return
		}
	}
}

// about answers what routers ask nodes about themselves.
func about(path string, w *bufio.Writer) {
	switch path {
	case "/decode_status":
		reply(w, "application/json", `{"status":"idle","current_rid":null}`)
	case "/capabilities":
		reply(w, "application/json", `{"capabilities":{"penalties":true,"ignore_eos":true,"logprobs":true}}`)
	case "/v1/models":
		reply(w, "application/json", `{"object":"list","data":[{"id":"stub","object":"model","max_model_len":1000000}]}`)
	default:
		reply(w, "application/json", `{"status":"ok"}`)
	}
}

// The ids of paced tokens are times: ticks of 4 us, of which there are as many as the tokenizer has words.
const (
	tick  = 4 * time.Microsecond
	ticks = 16384
)

var started = time.Now()

func clock() int { return int(time.Since(started)/tick) % ticks }

// since is the time from an id to now.
func since(id int) time.Duration {
	return time.Duration((clock()-id+ticks)%ticks) * tick
}
