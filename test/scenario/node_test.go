package scenario

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"pd-router/internal/tilert"
)

// node is one simulated node in a process of its own, which may be killed and come again on the same ports.
type node struct {
	t      testing.TB
	name   string
	args   []string
	http   string // host:port
	ctrl   string // host:port of a decode node
	proc   *process
	stderr tail
	faults told

	viaHTTP, viaCtrl string // host:port of taps before it, where there are any
}

// startPrefill runs a prefill node. All nodes have the small model.
func startPrefill(t testing.TB, args ...string) *node {
	n := &node{t: t, name: "prefill", http: hostPort(lowPort(t))}
	n.args = append([]string{"sim", "prefill", "--listen", n.http, "--model", "tiny", "--senders", "2", "--tokens-per-second", "0", "--latency", "0"}, args...)
	n.start()
	return n
}

func startDecode(t testing.TB, name string, args ...string) *node {
	n := &node{t: t, name: name, http: hostPort(lowPort(t)), ctrl: hostPort(lowPort(t))}
	n.args = append([]string{"sim", "decode", "--http", n.http, "--ctrl", n.ctrl, "--model", "tiny", "--senders", "2", "--max-seq-len", "8192",
		"--poll", "10ms", "--tokens-per-second", "0"}, args...)
	n.start()
	return n
}

var handedOut sync.Map // of lowPort

func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// lowPort is a free port below those that the kernel takes for outgoing connections: a node that comes again finds it free, and nobody
// who dials it in between meets himself.
func lowPort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(20000)
		if _, taken := handedOut.LoadOrStore(port, true); taken {
			continue
		}
		ln, err := net.Listen("tcp", hostPort(port))
		if err == nil {
			must(t, ln.Close())
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// start runs the node, and is over when it listens.
func (n *node) start() {
	n.t.Helper()
	end := time.Now().Add(patience)
	for {
		n.proc = start(n.t, n.name, n.line, n.args...)
		if n.proc.greeting() != "" {
			return
		}
		if <-n.proc.ended; time.Now().After(end) {
			n.t.Fatalf("%s does not start: %s", n.name, n.stderr.String())
		}
		time.Sleep(50 * time.Millisecond) // what was closed a moment ago may still be in the way
	}
}

// line takes a line of the node's log.
func (n *node) line(s string) {
	n.stderr.add(s)
	n.faults.line(s)
}

// receiving says whether KV is on its way into a decode node's buffer, or has stopped half way; err while the node does not answer.
func (n *node) receiving() (bool, error) {
	c, err := net.DialTimeout("tcp", n.ctrl, time.Second)
	if err != nil {
		return false, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	b, err := tilert.ReadFrame(c, nil)
	if err != nil {
		return false, err
	}
	hello, err := tilert.ParseHello(b)
	if err != nil {
		return false, err
	}
	return hello.Busy, nil
}

// flag is the node as the router's --decode takes it.
func (n *node) flag() string {
	ctrl, http := n.ctrl, n.reachedAt()
	if n.viaCtrl != "" {
		ctrl = n.viaCtrl
	}
	_, port, _ := net.SplitHostPort(http)
	return ctrl + ":" + port
}

// reachedAt is the port at which the router finds the node.
func (n *node) reachedAt() string {
	if n.viaHTTP != "" {
		return n.viaHTTP
	}
	return n.http
}

// counters are what the node has counted since it began.
func (n *node) counters() map[string]float64 {
	n.t.Helper()
	var out map[string]float64
	must(n.t, json.Unmarshal(get(n.t, "http://"+n.http+"/sim/counters"), &out))
	return out
}

// idle says whether a decode node works on nothing.
func (n *node) idle() bool {
	n.t.Helper()
	var s struct{ Status string }
	must(n.t, json.Unmarshal(get(n.t, "http://"+n.http+"/decode_status"), &s))
	return s.Status == "idle"
}

// pages reads status pages, a connection each: none is left afterwards.
var pages = http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// get reads a page that must be there.
func get(t testing.TB, url string) []byte {
	t.Helper()
	status, body, err := fetch(url)
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: %d, %v: %s", url, status, err, body)
	}
	return body
}

func fetch(url string) (status int, body []byte, err error) {
	resp, err := pages.Get(url)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, fmt.Errorf("the page is cut: %w", err)
	}
	return resp.StatusCode, body, nil
}
