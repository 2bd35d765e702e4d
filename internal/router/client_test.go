package router

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/openai"
)

// client is one request from the client's side, from asking to the end of the reply.
type client struct {
	w     *place
	leave context.CancelCauseFunc
	told  bool
	ended chan struct{} // closed at the end
	took  time.Duration

	reply *Reply // set when the head of the reply is there; to be read after ended
	err   error  // of WriteTo

	mu      sync.Mutex
	body    bytes.Buffer
	writes  []string
	more    chan struct{} // renewed by each write
	onWrite func(string)  // called before the client has the bytes
	refuses error         // of each further write
}

// ask sends a request and does not wait. The body is a chat unless it has a prompt.
func (w *place) ask(body string) *client { return w.askWith(body, nil) }

// askUntilPrefill asks, and returns when the prefill node has the request, which it keeps until g opens.
func (w *place) askUntilPrefill() (c *client, g *gate) {
	g = newGate()
	w.prefill.script(waitsAt(g))
	c = w.ask(blocking)
	happens(w.T, "prefill", g.reached)
	return c, g
}

// askTold is ask for a client that wants to be told its place.
func (w *place) askTold(body string) *client {
	return w.asks(Call{Endpoint: openai.Chat, Body: []byte(body), TellPlace: true}, nil)
}

func (w *place) askWith(body string, onWrite func(string)) *client {
	call := Call{Endpoint: openai.Chat, Body: []byte(body)}
	if strings.Contains(body, `"prompt"`) {
		call.Endpoint = openai.Completions
	}
	return w.asks(call, onWrite)
}

func (w *place) asks(call Call, onWrite func(string)) *client {
	w.requests++
	ctx, leave := context.WithCancelCause(context.Background())
	c := &client{w: w, leave: leave, told: call.TellPlace, ended: make(chan struct{}), more: make(chan struct{}), onWrite: onWrite}
	call.Start = time.Now()
	w.asked.Go(func() {
		defer close(c.ended)
		defer leave(nil)
		start := time.Now()
		c.reply = w.router.Serve(ctx, call)
		if c.reply.Stream() {
			_, c.err = c.reply.WriteTo(c)
		} else {
			c.mu.Lock()
			c.body.Write(c.reply.Body)
			c.mu.Unlock()
		}
		c.took = time.Since(start)
	})
	return c
}

// Write is the client's end of a stream.
func (c *client) Write(b []byte) (int, error) {
	if c.onWrite != nil {
		c.onWrite(string(b))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses != nil {
		return 0, c.refuses
	}
	c.body.Write(b)
	c.writes = append(c.writes, string(b))
	close(c.more)
	c.more = make(chan struct{})
	return len(b), nil
}

// until returns when the client has text.
func (c *client) until(text string) {
	c.w.Helper()
	for {
		c.mu.Lock()
		more, found := c.more, strings.Contains(c.body.String(), text)
		c.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-c.ended:
			c.w.Fatalf("the reply ended without %q: %d %s", text, c.reply.Status, c.body.String())
		case <-time.After(soon):
			c.w.Fatalf("not within %s: %q in %s", soon, text, c.text())
		}
	}
}

func (c *client) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.body.String()
}

// answer is what a client understood of a reply.
type answer struct {
	*client
	status  int
	content string
	finish  string
	stop    any
	usage   map[string]any
	kind    string // error type
	message string
	done    bool // the stream said [DONE]
	event   bool // the error came as an event
	json    map[string]any
}

// end waits for the end of the reply.
func (c *client) end() *answer {
	c.w.Helper()
	happens(c.w.T, "the end of a reply", c.ended)
	a := &answer{client: c, status: c.reply.Status}
	if c.reply.ContentType == typeSSE {
		for frame := range strings.SplitSeq(c.text(), "\n\n") {
			data, isError := frame, false
			if rest, ok := strings.CutPrefix(frame, "event: error\n"); ok {
				data, isError = rest, true
			}
			data, ok := strings.CutPrefix(data, "data: ")
			switch {
			case a.told && strings.HasPrefix(frame, ": "):
			case !ok:
				require.Empty(c.w, frame, "a frame that is no event")
			case data == "[DONE]":
				a.done = true
			case isError:
				a.event = true
				a.error(data)
			default:
				a.chunk(data)
			}
		}
		return a
	}
	if a.status != 200 {
		a.error(c.text())
		return a
	}
	require.NoError(c.w, json.Unmarshal([]byte(c.text()), &a.json), c.text())
	choice := a.json["choices"].([]any)[0].(map[string]any)
	if m, ok := choice["message"].(map[string]any); ok {
		a.content, _ = m["content"].(string)
	} else {
		a.content, _ = choice["text"].(string)
	}
	a.finish, a.stop = choice["finish_reason"].(string), choice["stop_reason"]
	a.usage = a.json["usage"].(map[string]any)
	return a
}

func (a *answer) error(data string) {
	a.w.Helper()
	require.NoError(a.w, json.Unmarshal([]byte(data), &a.json), data)
	a.kind, _ = a.json["error_type"].(string)
	if e, ok := a.json["error"].(map[string]any); ok {
		a.message, _ = e["message"].(string)
	}
}

func (a *answer) chunk(data string) {
	a.w.Helper()
	var c map[string]any
	require.NoError(a.w, json.Unmarshal([]byte(data), &c), data)
	if u, ok := c["usage"].(map[string]any); ok {
		a.usage = u
	}
	for _, ch := range c["choices"].([]any) {
		choice := ch.(map[string]any)
		if s, ok := choice["text"].(string); ok {
			a.content += s
		}
		if d, ok := choice["delta"].(map[string]any); ok {
			s, _ := d["content"].(string)
			a.content += s
		}
		if f, ok := choice["finish_reason"].(string); ok {
			a.finish, a.stop = f, choice["stop_reason"]
		}
	}
}

// wantOK asserts a whole reply with this text.
func (a *answer) wantOK(content string) *answer {
	a.w.Helper()
	require.Equal(a.w, 200, a.status, a.text())
	require.NoError(a.w, a.err)
	require.False(a.w, a.event, a.text())
	require.Equal(a.w, content, a.content)
	require.Equal(a.w, a.reply.ContentType == typeSSE, a.done, a.text())
	return a
}

// wantRefused asserts an error before the first byte.
func (a *answer) wantRefused(status int, kind string) *answer {
	a.w.Helper()
	require.Equal(a.w, fmt.Sprint(status, " ", kind), fmt.Sprint(a.status, " ", a.kind), a.text())
	require.NotEqual(a.w, typeSSE, a.reply.ContentType)
	return a
}

// wantBroken asserts a stream that broke off: text, then an error event and no end (invariant 5).
func (a *answer) wantBroken(content, kind string) *answer {
	a.w.Helper()
	require.Equal(a.w, 200, a.status, a.text())
	require.Equal(a.w, content, a.content)
	require.True(a.w, a.event, a.text())
	require.Equal(a.w, kind, a.kind)
	require.False(a.w, a.done, "[DONE] after a failure")
	require.Empty(a.w, a.finish, "a closing chunk after a failure")
	require.Error(a.w, a.err, "the connection would end well")
	return a
}

// kinds are the two kinds of client.
var kinds = []struct{ name, body string }{{"blocking", blocking}, {"streaming", streaming}}

// both runs a test as a blocking and as a streaming client; body builds the request from further members.
func both(t *testing.T, test func(t *testing.T, body func(members ...string) string)) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			test(t, func(members ...string) string {
				return strings.Join(append([]string{strings.TrimSuffix(kind.body, "}")}, members...), ",") + "}"
			})
		})
	}
}

// The simplest requests.
const (
	blocking  = `{"messages":[{"role":"user","content":"x"}]}`
	streaming = `{"messages":[{"role":"user","content":"x"}],"stream":true}`
)
