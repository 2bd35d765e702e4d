package staging

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/nixl"
	"pd-router/internal/nixl/nixltest"
	"pd-router/internal/tilert"
)

// Some tests need the other side to be a process of its own, which can be stopped and killed: this program again, with a role in its
// environment. It ends when its standard input does.
const childVariable = "PD_ROUTER_STAGING_TEST_CHILD"

// large is room for a transfer of 50 MB, which does not fit into the buffers of sockets.
const large = 8192

func child() {
	role, arg, _ := strings.Cut(os.Getenv(childVariable), " ")
	lib, err := nixl.Open(nixl.Options{Path: nixltest.Path()})
	if err == nil {
		switch role {
		case "node":
			err = childNode(lib)
		case "prefill":
			err = childPrefill(lib, arg)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childNode is a decode node. It says its port, and each rid that has arrived.
func childNode(lib *nixl.Library) error {
	n, err := makeNode(lib, nodeOptions{room: large})
	if err != nil {
		return err
	}
	fmt.Println(n.target().Port)
	go func() {
		for t := range n.complete {
			fmt.Println(t.RID)
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// childPrefill sends the request of one rid to the port of a slot and writes its KV again and again: it is always in the middle. It says so
// when it is let in, and when a write has failed.
func childPrefill(lib *nixl.Library, arg string) error {
	port, err := strconv.Atoi(arg)
	if err != nil {
		return err
	}
	s, err := makeSide(lib, "prefill", tiny.Bytes(large))
	if err != nil {
		return err
	}
	p := &prefill{s, tiny, large, 1}
	p.fill(66)
	sender := &tilert.Sender{
		Request: tilert.Request{RID: rid(66), SeqLen: large},
		Want:    tilert.Want{Protocol: tilert.Protocol2, LayoutVersion: tiny.Version, Transport: "nixl"},
	}
	conn, err := net.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	err = sender.Converse(conn, func(h *tilert.Hello) error {
		for i := 0; ; i++ {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err := p.write(ctx, h, 0, large)
			cancel()
			if err != nil {
				return err
			}
			if i == 0 {
				fmt.Println("in")
			}
		}
	})
	fmt.Println("out:", err)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// process is a running child.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

func startChild(t testing.TB, role string) *process {
	t.Helper()
	library(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// line reads what the child says next.
func (p *process) line(t testing.TB) string {
	t.Helper()
	s, err := p.out.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(s)
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// stop returns when the child stands still.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return fmt.Errorf("the child ended: %v", status)
	}
	return nil
}

// gate stands before a node's control port and runs full once the node has let in all of its senders, before the last of them is told.
type gate struct {
	ln    net.Listener
	port  int
	full  func()
	work  sync.WaitGroup
	mu    sync.Mutex
	let   int                   // senders that were let in
	conns map[net.Conn]struct{} // of senders; left open by them
}

func newGate(t testing.TB, port, senders int, full func()) *gate {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	g := &gate{ln: ln, port: port, conns: map[net.Conn]struct{}{}}
	g.full = func() {
		g.mu.Lock()
		g.let++
		now := g.let == senders
		g.mu.Unlock()
		if now {
			full()
		}
	}
	g.work.Go(func() {
		for {
			front, err := ln.Accept()
			if err != nil {
				return
			}
			g.work.Go(func() { g.pass(front) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		g.mu.Lock()
		for c := range g.conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		g.work.Wait()
	})
	return g
}

func (g *gate) target() Target {
	return Target{Host: "127.0.0.1", Port: g.ln.Addr().(*net.TCPAddr).Port}
}

// open is how many senders have not closed their connections.
func (g *gate) open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

// pass carries one conversation: hello, request, answer, then what the sender says.
func (g *gate) pass(front net.Conn) {
	g.mu.Lock()
	g.conns[front] = struct{}{}
	g.mu.Unlock()
	defer func() {
		_ = front.Close()
		g.mu.Lock()
		delete(g.conns, front)
		g.mu.Unlock()
	}()
	back, err := net.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(g.port)))
	if err != nil {
		return
	}
	defer back.Close()
	for i, way := range [][2]net.Conn{{back, front}, {front, back}, {back, front}} {
		var frame bytes.Buffer
		if _, err := tilert.ReadFrame(io.TeeReader(way[0], &frame), nil); err != nil {
			return
		}
		if i == 2 {
			g.full()
		}
		if _, err := way[1].Write(frame.Bytes()); err != nil {
			return
		}
	}
	_, _ = io.Copy(back, front)
}
