package router

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// step is one thing that a stream does; false ends it.
type step func(*decode) bool

// streams takes the slot and does the steps, of which begins is the head of the reply.
func streams(steps ...step) nodeScript {
	return func(d *decode) {
		if !d.admit() {
			return
		}
		defer d.release()
		d.w.Header().Set("Content-Type", "application/x-ndjson")
		for _, s := range steps {
			if !s(d) {
				return
			}
		}
	}
}

// begins sends the head of the stream.
func begins(d *decode) bool {
	d.w.WriteHeader(200)
	return d.flush()
}

func (d *decode) flush() bool {
	d.w.(http.Flusher).Flush()
	return true
}

// raw sends bytes as they are.
func raw(s string) step {
	return func(d *decode) bool {
		_, _ = io.WriteString(d.w, s)
		return d.flush()
	}
}

// line sends a token line.
func line(ids ...int) step {
	return func(d *decode) bool {
		d.sent += len(ids)
		b, _ := json.Marshal(append([]int{}, ids...))
		return raw(`{"t": ` + string(b) + "}\n")(d)
	}
}

// done sends the last line with the right count.
func done(finish string) step {
	return func(d *decode) bool { return doneWith(d.sent, finish)(d) }
}

func doneWith(n int, finish string) step {
	return func(d *decode) bool {
		d.end()
		return raw(fmt.Sprintf(`{"done":true,"n":%d,"seq_len":4,"finish_reason":%q,"timing_ms":{"decode":1.5}}`+"\n", n, finish))(d)
	}
}

// fails sends an error line.
func fails(text, kind string) step {
	return func(d *decode) bool {
		d.end()
		if kind == "" {
			return raw(fmt.Sprintf(`{"error":%q}`+"\n", text))(d)
		}
		return raw(fmt.Sprintf(`{"error":%q,"error_type":%q}`+"\n", text, kind))(d)
	}
}

// end notes that the node has told the end itself.
func (d *decode) end() {
	d.node.state.Lock()
	defer d.node.state.Unlock()
	d.ended = true
}

// cuts breaks the connection off.
func cuts(d *decode) bool {
	d.node.state.Lock()
	d.hold.cut = true
	d.node.state.Unlock()
	d.exchange.cut()
	return false
}

// stays waits at a gate until it opens or the request is given up; a cancelled stream is ended as a node does.
func stays(g *gate) step {
	return func(d *decode) bool {
		g.arrive()
		select {
		case <-g.opened:
			return true
		case <-d.cancelled:
			doneWith(d.sent, "cancelled")(d)
		case <-d.exchange.gone():
		}
		return false
	}
}

// deaf waits at a gate, whatever the router does.
func deaf(g *gate) step {
	return func(d *decode) bool {
		g.arrive()
		select {
		case <-g.opened:
		case <-d.node.t.Context().Done(): // the test has failed
		}
		return true
	}
}

// waitsForKV is stays before the head of the reply was sent.
func waitsForKV(g *gate) step {
	return func(d *decode) bool {
		g.arrive()
		select {
		case <-g.opened:
			return true
		case <-d.cancelled:
			d.answer(499, `{"error":"cancelled during KV transfer","error_type":"request_cancelled"}`)
		case <-d.exchange.gone():
		}
		return false
	}
}

// says is a whole reply, a line for each id.
func says(ids ...int) nodeScript {
	steps := []step{begins}
	for _, id := range ids {
		steps = append(steps, line(id))
	}
	return streams(append(steps, done("stop"))...)
}

// answers refuses without taking the slot.
func answers(status int, body string) nodeScript {
	return func(d *decode) {
		rid := d.body["rid"].(string)
		d.node.state.Lock()
		d.node.refused[rid] = true
		d.node.state.Unlock()
		d.answer(status, strings.ReplaceAll(body, "RID", rid))
	}
}

// foreign is the answer of a node that works for somebody else.
var foreign = answers(429, `{"error":"busy","current_rid":"of-somebody-else"}`)

// hangsUp closes the connection before any byte of a reply, without taking the slot.
func hangsUp(d *decode) {
	d.node.state.Lock()
	d.node.refused[d.body["rid"].(string)] = true
	d.node.state.Unlock()
	d.exchange.cut()
}
