package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// target is what a load goes to: the decode node itself, or a router as a process of its own.
type target struct {
	name string
	addr string
	cmd  *exec.Cmd    // nil for the node itself
	says bytes.Buffer // what the process wrote
}

// The names of targets that are always there.
const (
	direct = "direct"
	router = "pd-router"
	bare   = "bare Go"
)

// launch is how a router is started: words with {port}, {port2}, {vllm} and {decode} in them.
type launch struct {
	name  string
	words []string
}

// launches is a flag that may be given several times, as NAME=COMMAND.
type launches []launch

func (l *launches) String() string { return "" }

func (l *launches) Set(s string) error {
	name, command, ok := strings.Cut(s, "=")
	if !ok || strings.TrimSpace(command) == "" {
		return fmt.Errorf("%q: want NAME=COMMAND", s)
	}
	*l = append(*l, launch{name, strings.Fields(command)})
	return nil
}

// start runs the router in front of nodes. It returns at once: see ready.
func (l launch) start(n *nodes) (*target, error) {
	t := &target{name: l.name, addr: freeAddr()}
	_, port, _ := net.SplitHostPort(t.addr)
	_, port2, _ := net.SplitHostPort(freeAddr())
	fill := strings.NewReplacer("{port}", port, "{port2}", port2, "{vllm}", n.pre.addr(), "{decode}", n.dec.addr())
	words := make([]string, len(l.words))
	for i, w := range l.words {
		words[i] = fill.Replace(w)
	}
	t.cmd = exec.Command(words[0], words[1:]...)
	t.cmd.Stdout, t.cmd.Stderr = &t.says, &t.says
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", l.name, err)
	}
	running.Store(t.cmd.Process, nil)
	return t, nil
}

// running are the processes that were started and not ended yet, for killAll.
var running sync.Map

// killAll leaves no process behind when this one is told to end.
func killAll() {
	running.Range(func(p, _ any) bool {
		_ = p.(*os.Process).Kill()
		return true
	})
}

// ready waits until a request is served.
func (t *target) ready() error {
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var c *client
		if c, err = dial(t.addr); err != nil {
			continue
		}
		_, _, err = c.roundTrip(chat("", 100, true, 1))
		c.c.Close()
		if err == nil {
			return nil
		}
	}
	t.stop()
	said := t.says.Bytes()
	return fmt.Errorf("%s did not become ready: %w; it said: %s", t.name, err, said[max(0, len(said)-1000):])
}

// stop ends the process, and returns how long that took.
func (t *target) stop() time.Duration {
	if t.cmd == nil {
		return 0
	}
	start := time.Now()
	_ = t.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(10*time.Second, func() { _ = t.cmd.Process.Kill() }) // some wait for idle connections to end
	defer kill.Stop()
	_ = t.cmd.Wait()
	running.Delete(t.cmd.Process)
	return time.Since(start)
}

func freeAddr() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// cpu is the CPU time that the process has used, to the nanosecond: /proc counts in steps of 10 ms.
func (t *target) cpu() time.Duration {
	if t.cmd == nil {
		return 0
	}
	const perProcess = 2 // clock_getcpuclockid(3)
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^t.cmd.Process.Pid)<<3|perProcess, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// rss is the process's resident memory in bytes.
func (t *target) rss() int {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", t.cmd.Process.Pid))
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb << 10
		}
	}
	return 0
}
