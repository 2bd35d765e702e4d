package server

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// arrivals is a listener of the server's kind, without a server.
type arrivals struct {
	*testing.T
	ln net.Listener
}

func newArrivals(t *testing.T) *arrivals {
	cs, err := newConnections()
	require.NoError(t, err)
	t.Cleanup(cs.stop)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := &arrivals{t, cs.wrap(ln)}
	t.Cleanup(func() { _ = a.ln.Close() })
	// The kernel begins to note a moment after it was asked to.
	await(t, "the kernel notes arrivals", func() bool {
		client, server := a.accept(a.dial())
		a.send(client)
		a.read(server)
		return server.in.nn > 0
	})
	return a
}

func (a *arrivals) dial() net.Conn {
	c, err := net.Dial("tcp", a.ln.Addr().String())
	require.NoError(a, err)
	a.Cleanup(func() { _ = c.Close() })
	return c
}

func (a *arrivals) accept(client net.Conn) (net.Conn, *conn) {
	nc, err := a.ln.Accept()
	require.NoError(a, err)
	a.Cleanup(func() { _ = nc.Close() })
	return client, nc.(*conn)
}

func (a *arrivals) send(c net.Conn) {
	_, err := c.Write([]byte("x"))
	require.NoError(a, err)
}

func (a *arrivals) read(c *conn) time.Time {
	_, err := c.Read(make([]byte, 100))
	require.NoError(a, err)
	return c.arrived()
}

func TestArrivalIsTheKernelsNotTheReaders(t *testing.T) {
	a := newArrivals(t)
	first, firstIn := a.accept(a.dial())
	second, secondIn := a.accept(a.dial())
	for range 100 {
		before := time.Now()
		a.send(first)
		a.send(second)
		later, earlier := a.read(secondIn), a.read(firstIn) // the other way round
		require.True(t, earlier.Before(later), "%v, %v", earlier, later)
		require.WithinRange(t, earlier, before.Add(-time.Millisecond), time.Now())
	}
}

// Data that came before the connection was accepted has its moment too.
func TestArrivalOnANewConnection(t *testing.T) {
	a := newArrivals(t)
	for range 20 {
		first, second := a.dial(), a.dial()
		a.send(second)
		a.send(first)
		_, firstIn := a.accept(first)
		_, secondIn := a.accept(second)
		later, earlier := a.read(firstIn), a.read(secondIn)
		require.True(t, earlier.Before(later), "%v, %v", earlier, later)
	}
}

// A client that sends its next request ahead does not wait for two places at once.
func TestRequestSentAheadArrivesWithTheReplyBeforeIt(t *testing.T) {
	a := newArrivals(t)
	client, server := a.accept(a.dial())
	a.send(client)
	require.False(t, a.read(server).IsZero())
	require.Zero(t, server.arrived(), "a second request out of the same bytes")
	a.send(client)
	replied := time.Now()
	_, err := server.Write([]byte("the reply"))
	require.NoError(t, err)
	require.WithinRange(t, a.read(server), replied, time.Now())
}

func TestAgeOfData(t *testing.T) {
	now := time.Unix(1000, 5000)
	note := func(level, kind int32, size int, at time.Time) []byte {
		b := make([]byte, unix.CmsgSpace(size))
		binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(size)))
		binary.NativeEndian.PutUint32(b[8:], uint32(level))
		binary.NativeEndian.PutUint32(b[12:], uint32(kind))
		binary.NativeEndian.PutUint64(b[16:], uint64(at.Unix()))
		binary.NativeEndian.PutUint64(b[24:], uint64(at.Nanosecond()))
		return b
	}
	past := now.Add(-1234567)
	for _, tc := range []struct {
		name string
		note []byte
		want time.Duration
	}{
		{"to the nanosecond", note(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, 16, past), 1234567},
		{"a clock that was set back", note(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, 16, now.Add(time.Hour)), 0},
		{"no note", nil, 0},
		{"another note", note(unix.SOL_SOCKET, unix.SCM_RIGHTS, 16, past), 0},
		{"of another layer", note(unix.SOL_IP, unix.SCM_TIMESTAMPNS, 16, past), 0},
		{"of another size", note(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, 24, past), 0},
		{"cut", note(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, 16, past)[:20], 0},
	} {
		require.Equal(t, tc.want, age(tc.note, now), tc.name)
	}
}
