package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// script is a server that plays one function per connection.
type script struct {
	t     *testing.T
	ln    net.Listener
	up    *Upstream
	conns atomic.Int32
	wg    sync.WaitGroup
}

// serve starts a server whose connection number n (from 0) is handled by play(n, conn).
func serve(t *testing.T, o Options, play func(n int, c net.Conn, r *bufio.Reader)) *script {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &script{t: t, ln: ln}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			n := int(s.conns.Add(1)) - 1
			s.wg.Go(func() {
				defer c.Close()
				play(n, c, bufio.NewReader(c))
			})
		}
	})
	s.up, err = NewUpstream("http://"+ln.Addr().String(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.up.Close()
		ln.Close()
		s.wg.Wait()
	})
	return s
}

// request reads one request with its body, or nil at the end of the connection.
func request(r *bufio.Reader) *http.Request {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil
	}
	req.Body = io.NopCloser(strings.NewReader(string(body)))
	return req
}

func (s *script) get() (string, error) {
	resp, err := s.up.Do(context.Background(), &Call{Method: "GET", Path: "/x"})
	if err != nil {
		return "", err
	}
	defer resp.Close()
	body, err := resp.ReadAll(1 << 20)
	return string(body), err
}

func TestBodiesInEveryFraming(t *testing.T) {
	for _, tc := range []struct{ name, reply, want string }{
		{"a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"},
		{"no body at all", "HTTP/1.1 204 No Content\r\n\r\n", ""},
		{"chunks with extensions and a trailer", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n", "hello"},
		{"until the end of the connection", "HTTP/1.1 200 OK\r\n\r\nhello", "hello"},
		{"after an interim reply", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for size := 1; size <= len(tc.reply); size = size*3 + 1 { // every kind of split
				s := serve(t, Options{}, func(_ int, c net.Conn, r *bufio.Reader) {
					request(r)
					for b := []byte(tc.reply); len(b) > 0; {
						n := min(size, len(b))
						_, _ = c.Write(b[:n])
						b = b[n:]
					}
				})
				got, err := s.get()
				require.NoError(t, err)
				require.Equal(t, tc.want, got)
			}
		})
	}
}

func TestRepliesThatAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, reply string
		phase       Phase
	}{
		{"nothing", "", Send},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-", Head},
		{"no HTTP", "\x00\xffnot http at all\r\n\r\n", Head},
		{"a header without a colon", "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", Head},
		{"a bad length", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", Head},
		{"a cut body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", Body},
		{"a cut chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello", Body},
		{"a bad chunk size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nhello", Body},
		{"a chunk without its line end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n", Body},
		{"a head of 80 KB", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", Head},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, Options{}, func(_ int, c net.Conn, r *bufio.Reader) {
				request(r)
				_, _ = io.WriteString(c, tc.reply)
			})
			_, err := s.get()
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, tc.phase, e.Phase, "%v", err)
		})
	}
}

func TestBodiesAreSentWholeAndUncopied(t *testing.T) {
	for _, size := range []int{0, 10, 3 << 10, 4 << 20} {
		got := make(chan string, 1)
		s := serve(t, Options{}, func(_ int, c net.Conn, r *bufio.Reader) {
			req := request(r)
			body, _ := io.ReadAll(req.Body)
			got <- fmt.Sprint(req.Header["X-Request-Id"], len(body), string(body[:min(3, len(body))]))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		})
		body := []byte(strings.Repeat("abc", size/3+1)[:size])
		resp, err := s.up.Do(context.Background(), &Call{
			Method: "POST", Path: "/x", Header: []byte("X-Request-Id: 7\r\n"), Body: [][]byte{body[:size/2], body[size/2:]},
		})
		require.NoError(t, err)
		resp.Close()
		require.Equal(t, fmt.Sprint([]string{"7"}, size, string(body[:min(3, size)])), <-got)
	}
}

const okReply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestAConnectionIsUsedAgain(t *testing.T) {
	s := serve(t, Options{}, func(_ int, c net.Conn, r *bufio.Reader) {
		for request(r) != nil {
			_, _ = io.WriteString(c, okReply)
		}
	})
	for range 5 {
		got, err := s.get()
		require.NoError(t, err)
		require.Equal(t, "ok", got)
	}
	require.EqualValues(t, 1, s.conns.Load())
}

func TestACallOnADeadIdleConnectionIsSentAgainOnce(t *testing.T) { // invariant 1
	s := serve(t, Options{}, func(n int, c net.Conn, r *bufio.Reader) {
		for request(r) != nil {
			_, _ = io.WriteString(c, okReply)
			if n == 0 {
				request(r) // swallows the second request and closes
				return
			}
		}
	})
	for range 2 {
		got, err := s.get()
		require.NoError(t, err)
		require.Equal(t, "ok", got)
	}
	require.EqualValues(t, 2, s.conns.Load())
}

// A call that may not be sent twice depends on it.
func TestAnIdleConnectionThatTheOtherSideClosedIsNotUsed(t *testing.T) {
	over := make(chan struct{})
	s := serve(t, Options{}, func(n int, c net.Conn, r *bufio.Reader) {
		request(r)
		_, _ = io.WriteString(c, okReply)
		if n%2 == 1 {
			_, _ = io.WriteString(c, "what nobody asked for")
		}
		_ = c.Close()
		over <- struct{}{}
	})
	for range 4 {
		resp, err := s.up.Do(t.Context(), &Call{Method: "GET", Path: "/", Once: true})
		require.NoError(t, err)
		got, err := resp.ReadAll(100)
		require.NoError(t, err)
		require.Equal(t, "ok", string(got))
		resp.Close()
		<-over
	}
	require.EqualValues(t, 4, s.conns.Load())
}

func TestAFreshCallTakesANewConnection(t *testing.T) {
	s := serve(t, Options{}, func(_ int, c net.Conn, r *bufio.Reader) {
		for request(r) != nil {
			_, _ = io.WriteString(c, okReply)
		}
	})
	_, err := s.get()
	require.NoError(t, err)
	resp, err := s.up.Do(t.Context(), &Call{Method: "POST", Path: "/x", Fresh: true})
	require.NoError(t, err)
	resp.Close()
	require.EqualValues(t, 2, s.conns.Load())
}

func TestACallOnANewConnectionIsNotSentAgain(t *testing.T) {
	s := serve(t, Options{}, func(_ int, c net.Conn, r *bufio.Reader) { request(r) })
	_, err := s.get()
	require.Error(t, err)
	require.EqualValues(t, 1, s.conns.Load())
}

func TestIdleConnectionsAreClosedInTime(t *testing.T) { // invariant 2, in fake time
	synctest.Test(t, func(t *testing.T) {
		u, err := NewUpstream("http://127.0.0.1:1", Options{IdleTimeout: 4 * time.Second})
		require.NoError(t, err)
		var far []net.Conn
		for range 3 {
			near, other := net.Pipe()
			far = append(far, other)
			u.keep(newConn(near))
			time.Sleep(time.Second)
		}
		closed := func(c net.Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			return errors.Is(err, io.EOF)
		}
		time.Sleep(1500 * time.Millisecond) // 4.5 s after the first, 3.5 s after the second
		require.True(t, closed(far[0]))
		require.False(t, closed(far[1]))
		time.Sleep(2 * time.Second)
		require.True(t, closed(far[1]))
		require.True(t, closed(far[2]))
		u.Close()
	})
}

func TestACancelledContextEndsACallInEveryPhase(t *testing.T) { // invariant 3
	gone := errors.New("the client has left")
	for _, tc := range []struct{ name, reply string }{
		{"before the head", ""},
		{"within the head", "HTTP/1.1 200 OK\r\nContent"},
		{"within the body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{}\n\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			closed, begun := make(chan struct{}), make(chan struct{})
			s := serve(t, Options{}, func(_ int, c net.Conn, r *bufio.Reader) {
				request(r)
				_, _ = io.WriteString(c, tc.reply)
				close(begun)
				_, _ = io.Copy(io.Discard, r)
				close(closed)
			})
			ctx, cancel := context.WithCancelCause(context.Background())
			go func() {
				<-begun
				cancel(gone)
			}()
			resp, err := s.up.Do(ctx, &Call{Method: "POST", Path: "/x"})
			if err == nil {
				for err == nil {
					_, err = resp.Line()
				}
				resp.Close()
			}
			require.ErrorIs(t, err, gone)
			<-closed // the other side sees it
		})
	}
}

func TestTimeouts(t *testing.T) { // invariant 4
	hold := make(chan struct{})
	defer close(hold)
	s := serve(t, Options{}, func(n int, c net.Conn, r *bufio.Reader) {
		request(r)
		if n == 1 {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel")
		}
		_, _ = io.Copy(io.Discard, r)
	})
	call := &Call{Method: "GET", Path: "/", HeadTimeout: 50 * time.Millisecond, IdleTimeout: 50 * time.Millisecond}
	_, err := s.up.Do(context.Background(), call)
	require.True(t, IsTimeout(err), "%v", err)
	resp, err := s.up.Do(context.Background(), call)
	require.NoError(t, err)
	defer resp.Close()
	_, err = resp.ReadAll(100)
	require.True(t, IsTimeout(err), "%v", err)
}

func TestLinesAndReadiness(t *testing.T) {
	next := make(chan struct{})
	s := serve(t, Options{}, func(_ int, c net.Conn, r *bufio.Reader) {
		request(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{1}\n\r\n6\r\n{2}\n{3\r\n")
		<-next
		_, _ = io.WriteString(c, "5\r\n}\n{4}\r\n")
		<-next
		_, _ = io.WriteString(c, "0\r\n\r\n")
	})
	resp, err := s.up.Do(context.Background(), &Call{Method: "POST", Path: "/x"})
	require.NoError(t, err)
	defer resp.Close()
	read := func(want string, ready bool) {
		line, err := resp.Line()
		require.NoError(t, err)
		require.Equal(t, want, string(line))
		require.Equal(t, ready, resp.Ready(), "after %s", want)
	}
	read("{1}", true)
	read("{2}", false) // {3 is no whole line
	next <- struct{}{}
	read("{3}", false)
	next <- struct{}{}
	read("{4}", true) // a last line without its line end
	_, err = resp.Line()
	require.ErrorIs(t, err, io.EOF)
	require.True(t, resp.Drain(0))
}

func TestAnEarlyRefusalOfALargeBodyIsSeen(t *testing.T) {
	s := serve(t, Options{}, func(_ int, c net.Conn, r *bufio.Reader) {
		_, _ = r.ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
		_ = c.(*net.TCPConn).CloseWrite()
		time.Sleep(50 * time.Millisecond) // what it does not read is reset
	})
	resp, err := s.up.Do(context.Background(), &Call{Method: "POST", Path: "/x", Body: [][]byte{make([]byte, 32<<20)}, HeadTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer resp.Close()
	require.Equal(t, 413, resp.Status)
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{1}\n\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}\n"))
	f.Add([]byte("HTTP/1.0 200\r\n\r\nx"))
	f.Fuzz(func(t *testing.T, reply []byte) {
		near, far := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = bufio.NewReader(far).ReadString('\n')
			go io.Copy(io.Discard, far)
			_, _ = far.Write(reply)
			far.Close()
		}()
		u, _ := NewUpstream("http://127.0.0.1:1", Options{})
		defer u.Close()
		resp, _, err := newConn(near).roundTrip(context.Background(), u, &Call{Method: "GET", Path: "/"})
		if err == nil {
			for range len(reply) + 1 {
				if _, err = resp.Line(); err != nil {
					break
				}
			}
			if err == nil {
				t.Fatal("more lines than bytes")
			}
			resp.Close()
		}
		<-done
	})
}
