package tilert

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script is one connection whose other side says fixed frames; what we say is kept.
type script struct {
	in   bytes.Buffer
	said bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error) { return s.said.Write(p) }

func says(t *testing.T, frames ...string) *script {
	t.Helper()
	s := new(script)
	for _, f := range frames {
		b, err := AppendFrame(nil, json.RawMessage(f))
		require.NoError(t, err)
		s.in.Write(b)
	}
	return s
}

// heard returns the frames that we sent.
func (s *script) heard(t *testing.T) (out []string) {
	for {
		b, err := ReadFrame(&s.said, nil)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		out = append(out, string(b))
	}
}

func newSender() *Sender {
	return &Sender{
		Request: Request{RID: "a", Rank: 1, SeqLen: 100, LastPromptToken: 7},
		Want:    Want{Protocol: Protocol2, LayoutVersion: 10, Senders: 2, Transport: "nixl"},
	}
}

func TestASenderWritesAfterAFullAccept(t *testing.T) { // case 190
	for _, tc := range []struct {
		name, reply string
		writes      bool
	}{
		{"a full accept", `{"accepted":true,"rid":"a","rank":1,"generation":3}`, true},
		{"accepted as a number", `{"accepted":1,"rid":"a","rank":1,"generation":3}`, true},
		{"an empty object", `{}`, false},
		{"a refusal", `{"accepted":false}`, false},
		{"no flag", `{"rid":"a","rank":1,"generation":3}`, false},
		{"a flag that is false in another way", `{"accepted":0,"rid":"a","rank":1,"generation":3}`, false},
		{"another rid", `{"accepted":true,"rid":"b","rank":1,"generation":3}`, false},
		{"another rank", `{"accepted":true,"rid":"a","rank":3,"generation":3}`, false},
		{"no generation", `{"accepted":true,"rid":"a","rank":1}`, false},
		{"a generation that is no integer", `{"accepted":true,"rid":"a","rank":1,"generation":"x"}`, false},
		{"a fractional generation", `{"accepted":true,"rid":"a","rank":1,"generation":1.5}`, false},
		{"a list", `[]`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, n := says(t, realHello, tc.reply), 0
			err := newSender().Converse(conn, func(*Hello) error { n++; return nil })
			assert.Equal(t, tc.writes, err == nil, err)
			assert.Equal(t, tc.writes, n == 1)
			heard := conn.heard(t)
			assert.JSONEq(t, `{"rid":"a","rank":1,"seq_len":100,"last_prompt_token":7,"sampling":null,"admission_window_s":3}`, heard[0])
			if tc.writes {
				assert.JSONEq(t, `{"done":true,"rid":"a","rank":1,"generation":3}`, heard[1])
			}
			var again *RetryError
			assert.False(t, errors.As(err, &again), "none of these is worth another try")
		})
	}
}

func TestASenderLeavesTheWrongReceiverAlone(t *testing.T) { // case 190
	hello := func(change func(m map[string]any)) string {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(realHello), &m))
		change(m)
		return marshal(t, m)
	}
	for _, tc := range []struct {
		field  string
		change func(m map[string]any)
	}{
		{"magic", func(m map[string]any) { m["magic"] = "other"; m["layout_version"] = 99 }},
		{"protocol_version", func(m map[string]any) { delete(m, "protocol_version"); m["layout_version"] = 99 }},
		{"layout_version", func(m map[string]any) { m["layout_version"] = 99; m["senders"] = 8 }},
		{"senders", func(m map[string]any) { delete(m, "senders"); m["transport"] = "x" }},
		{"transport", func(m map[string]any) { m["transport"] = "mooncake"; m["max_seq_len"] = 1 }},
		{"max_seq_len", func(m map[string]any) { m["max_seq_len"] = 99 }},
	} {
		t.Run(tc.field, func(t *testing.T) {
			conn := says(t, hello(tc.change), `{"accepted":true,"rid":"a","rank":1,"generation":3}`)
			err := newSender().Converse(conn, func(*Hello) error { t.Error("written"); return nil })
			var wrong *HelloError
			require.ErrorAs(t, err, &wrong)
			assert.Equal(t, tc.field, wrong.Field)
			assert.Empty(t, conn.heard(t))
		})
	}
}

func TestASenderTriesAgain(t *testing.T) { // case 191
	const busy, accept = `{"accepted":false,"error":"busy","busy_rid":"x","busy_state":"transferring"}`, `{"accepted":true,"rid":"a","rank":1,"generation":3}`
	run := func(s *Sender, replies ...string) (pauses []time.Duration, writes int, err error) {
		for _, reply := range replies {
			err = s.Converse(says(t, realHello, reply), func(*Hello) error { writes++; return nil })
			var again *RetryError
			if !errors.As(err, &again) {
				return pauses, writes, err
			}
			pauses = append(pauses, again.Pause)
		}
		return pauses, writes, err
	}
	pauses, writes, err := run(newSender(), busy, accept)
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{200 * time.Millisecond}, pauses)
	assert.Equal(t, 1, writes)

	three := newSender()
	three.Attempts = 3
	pauses, writes, err = run(three, busy, busy, busy, accept)
	require.ErrorIs(t, err, ErrRefused)
	assert.Equal(t, [2]int{2, 0}, [2]int{len(pauses), writes})

	pauses, _, err = run(newSender(), busy, `{"accepted":false,"error":"cancelling","rid":"a"}`, busy, busy, busy, accept)
	require.ErrorIs(t, err, ErrRefused)
	assert.Equal(t, []time.Duration{200e6, 400e6, 800e6, 1600e6}, pauses)
	assert.Equal(t, 3*time.Second, AdmissionWindow(DefaultAttempts))

	for _, final := range []string{`{"accepted":false,"error":"duplicate_rank","rid":"a","rank":1}`, `{"accepted":false,"error":"seq_len exceeds max_seq_len"}`} {
		pauses, writes, err = run(newSender(), final, accept)
		require.ErrorIs(t, err, ErrRefused)
		assert.Equal(t, [2]int{0, 0}, [2]int{len(pauses), writes})
	}
}

func TestAFailedWriteIsNotDone(t *testing.T) {
	conn := says(t, realHello, `{"accepted":true,"rid":"a","rank":1,"generation":3}`)
	broken := errors.New("cable")
	require.ErrorIs(t, newSender().Converse(conn, func(*Hello) error { return broken }), broken)
	assert.Len(t, conn.heard(t), 1)
}

func TestASenderOfProtocol1WritesAtOnce(t *testing.T) {
	s := newSender()
	s.Want.Protocol, s.Want.Senders = Protocol1, 0
	s.PromptTokenIDs = []int{1}
	conn := says(t, `{"magic":"tilert-pd","layout_version":10,"transport":"nixl","max_seq_len":128,"busy":false,"kv_base":1,"pe_base":2,"ki_base":3}`)
	n := 0
	require.NoError(t, s.Converse(conn, func(*Hello) error { n++; return nil }))
	assert.Equal(t, 1, n)
	heard := conn.heard(t)
	assert.JSONEq(t, `{"rid":"a","rank":1,"seq_len":100,"last_prompt_token":7,"sampling":null}`, heard[0])
	assert.JSONEq(t, `{"done":true,"rid":"a","rank":1}`, heard[1])
}

// host is a Receiver without a lock or a clock.
type host struct {
	*Receiver
	hello     Hello
	completed int
	left      int
}

func (h *host) Hello() Hello                      { return h.hello }
func (h *host) Admit(q *Request) (Reply, *Writer) { return h.Receiver.Admit(time.Unix(0, 0), q) }
func (h *host) Leave(w *Writer)                   { h.left++; h.Receiver.Leave(w) }
func (h *host) Done(w *Writer) {
	if _, ok := h.Receiver.Done(w); ok {
		h.completed++
	}
}

func TestServe(t *testing.T) {
	var hello Hello
	hello.Magic, hello.Protocol, hello.Senders, hello.Transport, hello.LayoutVersion = Magic, Protocol2, 1, "nixl", 10
	hello.SetRegion(Region{MaxSeqLen: 128, Base: [NumPlanes][]uint64{{1}, {2}, {3}}})
	newHost := func(p Protocol) *host {
		return &host{Receiver: NewReceiver(ReceiverOptions{Protocol: p, Senders: 1, MaxSeqLen: 128}), hello: hello}
	}
	const ask, done = `{"rid":"a","rank":0,"seq_len":4,"admission_window_s":3.0}`, `{"done":true,"rid":"a","rank":0,"generation":999}`

	t.Run("a whole conversation", func(t *testing.T) {
		h, conn := newHost(Protocol2), says(t, ask, done)
		require.NoError(t, Serve(conn, Protocol2, h))
		heard := conn.heard(t)
		require.Len(t, heard, 2)
		assert.JSONEq(t, `{"accepted":true,"rid":"a","rank":0,"generation":1}`, heard[1])
		assert.Equal(t, [2]int{1, 1}, [2]int{h.completed, h.left}, "whatever generation the message names")
	})
	t.Run("protocol 1 says nothing when it lets a rank in", func(t *testing.T) {
		h, conn := newHost(Protocol1), says(t, ask, done)
		require.NoError(t, Serve(conn, Protocol1, h))
		assert.Len(t, conn.heard(t), 1)
		assert.Equal(t, 1, h.completed)
	})
	t.Run("protocol 1 says why it does not", func(t *testing.T) {
		h, conn := newHost(Protocol1), says(t, `{"rid":"b","rank":0,"seq_len":4}`)
		h.Admit(&Request{RID: "a", SeqLen: 4})
		require.ErrorIs(t, Serve(conn, Protocol1, h), ErrRefused)
		assert.JSONEq(t, `{"error":"busy","busy_rid":"a"}`, conn.heard(t)[1])
	})
	t.Run("a look at the hello changes nothing", func(t *testing.T) {
		h := newHost(Protocol2)
		require.ErrorIs(t, Serve(says(t), Protocol2, h), io.EOF)
		state, _ := h.State()
		assert.Equal(t, Free, state)
	})
	t.Run("a rank that dies is no writer any more", func(t *testing.T) {
		h := newHost(Protocol2)
		require.Error(t, Serve(says(t, ask), Protocol2, h))
		assert.Equal(t, [2]int{0, 1}, [2]int{h.Writers(), h.left})
	})
	t.Run("a request that makes no sense gets no answer", func(t *testing.T) {
		conn := says(t, `{"rid":"a","rank":0}`)
		require.Error(t, Serve(conn, Protocol2, newHost(Protocol2)))
		assert.Len(t, conn.heard(t), 1)
	})
}
