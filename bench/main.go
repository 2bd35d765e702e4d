package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	b := &bench{}
	flag.StringVar(&b.binary, "router", "bin/pd-router", "router binary")
	flag.StringVar(&b.flags, "flags", "", "further flags of the router, such as those for profiles")
	flag.StringVar(&b.only, "only", "", "run the parts whose name holds this")
	flag.IntVar(&b.repeats, "repeats", 5, "repeats of each part; medians are shown")
	flag.Var(&b.peers, "peer", "another router to run beside, as `NAME=COMMAND` with {port}, {port2}, {vllm} and {decode} (addresses of nodes) in it; may be repeated")
	flag.Var(&b.queuePeers, "queue-peer", "another router that lets one request run at a time, for the parts on one slot; as -peer")
	flag.Parse()
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	go func() { // ends with the process
		<-end
		killAll()
		os.Exit(1)
	}()
	if err := b.run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		killAll()
		os.Exit(1)
	}
}

// bench is what is measured.
type bench struct {
	binary, flags     string
	only              string
	repeats           int
	peers, queuePeers launches
	dir               string // for files of this run

	// Of the parts that run now.
	nodes   *nodes
	targets []*target
}

// manySlots is how many decode nodes the router is told of where nobody shall wait; all are the one stub, reached under different addresses.
const manySlots = 64

// set is parts that run on the same routers; the first target is the node itself.
type set struct {
	slots int
	peers launches
	parts []part
}

type part struct {
	name string
	run  func() error
}

func (b *bench) run() error {
	var err error
	if b.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := os.WriteFile(filepath.Join(b.dir, "tokenizer.json"), []byte(tokenizer(ticks)), 0o600); err != nil {
		return err
	}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(b.dir, "bare"), "./bench/bare").CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./bench/bare: %w: %s", err, out)
	}
	for _, s := range []set{
		{manySlots, b.peers, []part{{"ttft", b.ttft}, {"requests", b.requests}, {"tokens", b.tokens}, {"paced", b.paced}}},
		{1, b.queuePeers, []part{{"gap", b.gap}, {"use", b.use}, {"order", b.order}, {"waiters", b.waiters}, {"start", b.start}}},
	} {
		if err := b.runSet(s); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) runSet(s set) (err error) {
	var parts []part
	for _, p := range s.parts {
		if strings.Contains(p.name, b.only) {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	if b.nodes, err = startNodes(); err != nil {
		return err
	}
	defer b.nodes.close()
	b.targets = []*target{{name: direct, addr: b.nodes.dec.addr()}}
	defer func() {
		for _, t := range b.targets {
			t.stop()
		}
	}()
	for _, l := range append(launches{b.pdRouter(s.slots), b.bare(s.slots)}, s.peers...) {
		t, err := l.start(b.nodes)
		if err != nil {
			return err
		}
		b.targets = append(b.targets, t)
	}
	for _, t := range b.targets[1:] {
		if err := t.ready(); err != nil {
			return err
		}
	}
	if err := b.warm(); err != nil {
		return err
	}
	for _, p := range parts {
		if err := p.run(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// warm gives each target some requests that do not count: the first ones pay for pages, connections and room in the heap.
func (b *bench) warm() error {
	const clients, each = 16, 50
	req := chat("", 1<<10, true, 1)
	for _, t := range b.targets {
		if _, err := parallel(t, clients, again(req, each)); err != nil {
			return err
		}
	}
	return nil
}

// pdRouter is how the router is started in front of so many slots.
func (b *bench) pdRouter(slots int) launch {
	words := []string{b.binary, "--vllm-url", "http://{vllm}", "--host", "127.0.0.1", "--port", "{port}", "--model-path", b.dir,
		"--parser", "none", "--queue-timeout", "1800", "--queue-max", "20000", "--log-level", "warn", "--decode"}
	for i := range slots {
		words = append(words, fmt.Sprintf("127.0.0.%d:1:%d", i+1, b.nodes.dec.port()))
	}
	return launch{router, append(words, strings.Fields(b.flags)...)}
}

func (b *bench) bare(slots int) launch {
	return launch{bare, []string{filepath.Join(b.dir, "bare"), "-addr", "127.0.0.1:{port}", "-vllm", "{vllm}", "-decode", "{decode}", "-slots", strconv.Itoa(slots)}}
}

// target returns the target of that name.
func (b *bench) target(name string) *target {
	for _, t := range b.targets {
		if t.name == name {
			return t
		}
	}
	panic(errors.New("BUG: no target " + name))
}

// tokenizer is a byte-level one with so many words, each of which is the number of its id.
func tokenizer(words int) string {
	var out strings.Builder
	out.WriteString(`{"version":"1.0","added_tokens":[],"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},` +
		`"model":{"type":"BPE","dropout":null,"unk_token":null,"byte_fallback":false,"vocab":{"0":0`)
	for i := 1; i < words; i++ {
		fmt.Fprintf(&out, `,"%d":%d`, i, i)
	}
	out.WriteString(`},"merges":[]}}`)
	return out.String()
}
