package sim

import (
	"encoding/json"
	"net"
	"os"
	"testing"
	"time"

	"pd-router/internal/tilert"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rank is one connection to a control port, after the answer to its request.
type rank struct {
	t    *testing.T
	c    net.Conn
	rid  string
	rank int
	got  struct {
		Accepted   bool
		Generation uint64
		Error      string
		Detail     string
		BusyState  string `json:"busy_state"`
	}
}

func (r *rig) rank(rid string, n int) *rank {
	r.t.Helper()
	k := &rank{t: r.t, c: dial(r.t, r.d.CtrlAddr()), rid: rid, rank: n}
	b, err := tilert.ReadFrame(k.c, nil)
	require.NoError(r.t, err)
	require.NoError(r.t, tilert.WriteFrame(k.c, tilert.Request{RID: rid, Rank: n, SeqLen: 4, AdmissionWindow: tilert.Seconds(3 * time.Second)}))
	b, err = tilert.ReadFrame(k.c, b)
	require.NoError(r.t, err)
	require.NoError(r.t, json.Unmarshal(b, &k.got))
	return k
}

// done ends the connection as a rank that has written everything, and waits until the node has noticed.
func (k *rank) done() {
	k.t.Helper()
	require.NoError(k.t, tilert.WriteFrame(k.c, tilert.Done{Done: true, RID: k.rid, Rank: k.rank, Generation: k.got.Generation}))
	_, err := k.c.Read(make([]byte, 1)) // the node closes
	require.Error(k.t, err)
}

// handshake is a whole request without bytes.
func (r *rig) handshake(rid string) {
	r.t.Helper()
	for n := range 2 {
		k := r.rank(rid, n)
		require.True(r.t, k.got.Accepted, "%+v", k.got)
		k.done()
	}
}

func stubNode(t *testing.T) *rig {
	return newRig(t, PrefillOptions{}, DecodeOptions{Engine: EngineStub, Senders: 2})
}

func TestADecodedRidIsLetGo(t *testing.T) { // case 185
	r := stubNode(t)
	r.handshake("a")
	require.Equal(t, 200, r.decode("a", 7, nil).Status)
	r.idle()
	k := r.rank("a", 0)
	assert.Equal(t, []any{false, "cancelling", "no_consumer"}, []any{k.got.Accepted, k.got.Error, k.got.Detail})
	r.handshake("b")

	answer := make(chan decoded, 1)
	go func() { answer <- r.decode("a", 7, object{"timeout_s": 5}) }()
	require.Eventually(t, func() bool { return r.d.Counters().Requests == 2 }, 5*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return r.rank("a", 0).got.Accepted }, 5*time.Second, time.Millisecond)
	r.handshake("a")
	assert.Equal(t, 200, (<-answer).Status, "a node that waits for the rid lets it in again")
}

func TestAnotherRidsTransferIsDropped(t *testing.T) { // case 177
	r := stubNode(t)
	r.handshake("x")
	answer := make(chan decoded, 1)
	go func() { answer <- r.decode("y", 7, object{"timeout_s": 0.3}) }()
	assert.Equal(t, 504, (<-answer).Status)
	assert.Equal(t, "no_consumer", r.rank("x", 0).got.Detail, "it was released by its own name")
	r.handshake("z")
	assert.Equal(t, 200, r.decode("z", 7, nil).Status)
}

func TestACancelUnderALiveWriter(t *testing.T) { // case 184
	r := stubNode(t)
	answer := make(chan decoded, 1)
	go func() { answer <- r.decode("a", 7, object{"timeout_s": 5}) }()
	require.Eventually(t, func() bool { return r.d.Counters().Requests == 1 }, 5*time.Second, time.Millisecond)
	writer := r.rank("a", 0)
	require.True(t, writer.got.Accepted)
	status, _ := r.post(r.node("/pd/cancel"), object{"rid": "a"})
	require.Equal(t, 200, status)
	assert.Equal(t, 499, (<-answer).Status)
	assert.Equal(t, "cancelling", r.rank("b", 0).got.BusyState)
	require.NoError(t, writer.c.Close())
	require.Eventually(t, func() bool { return r.rank("b", 0).got.Accepted }, 5*time.Second, time.Millisecond)
}

func TestAnOversizedFrameEndsTheConnection(t *testing.T) { // case 192
	r := stubNode(t)
	c := dial(t, r.d.CtrlAddr())
	_, err := tilert.ReadFrame(c, nil)
	require.NoError(t, err)
	_, err = c.Write([]byte{1, 0, 0, 1, 'x'})
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	assert.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the node ends it")
}
