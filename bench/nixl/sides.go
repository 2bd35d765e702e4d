package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"pd-router/internal/nixl"
)

// cSide is the C program twice: the receiver of both sides, and the writer.
type cSide struct {
	target, writer *process
	folder         string
	blob           []byte // the receiver's metadata
	base           uint64 // and address
}

// process is a child that talks in lines.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startC(ctx context.Context, library string) (c *cSide, err error) {
	folder, err := os.MkdirTemp("", "bench-nixl-")
	if err != nil {
		return nil, err
	}
	c = &cSide{folder: folder}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	_, here, _, _ := runtime.Caller(0)
	program := filepath.Join(folder, "bench")
	build := exec.CommandContext(ctx, "cc", "-std=gnu11", "-O2", "-o", program, filepath.Join(filepath.Dir(here), "testdata/bench.c"), "-ldl")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	if c.target, err = spawn(ctx, program, library, "target"); err != nil {
		return nil, err
	}
	line, err := c.target.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the receiver: %w", err)
	}
	var text string
	if _, err := fmt.Sscan(line, &text, &c.base); err != nil {
		return nil, err
	}
	if c.blob, err = hex.DecodeString(text); err != nil {
		return nil, err
	}
	m, err := nixl.ParseMetadata(c.blob)
	if err != nil {
		return nil, err
	}
	if c.writer, err = spawn(ctx, program, library, "writer"); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(c.writer.in, "peer %s %s\n", text, m.Agent)
	return c, err
}

func spawn(ctx context.Context, program, library, role string) (*process, error) {
	cmd := exec.CommandContext(ctx, program, library, role, strconv.Itoa(memory))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewReaderSize(out, 1<<20)}, nil
}

func (c *cSide) close() {
	for _, p := range []*process{c.writer, c.target} {
		if p != nil {
			p.in.Close()
			_ = p.cmd.Wait() // it has done its work, or an error of its own is on stderr
		}
	}
	os.RemoveAll(c.folder)
}

func (c *cSide) write(spans []nixl.Span, n int) ([]time.Duration, error) {
	line := fmt.Appendf(nil, "write %d %d %d", n, c.base, len(spans))
	for _, s := range spans {
		line = fmt.Appendf(line, " %d %d %d", s.Off, s.Len, s.Addr)
	}
	if _, err := c.writer.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	answer, err := c.writer.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the C writer: %w", err)
	}
	var took []time.Duration
	for _, f := range strings.Fields(answer) {
		ns, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil, err
		}
		took = append(took, time.Duration(ns))
	}
	return took, nil
}

// goSide writes by the package that is measured.
type goSide struct {
	agent  *nixl.Agent
	mem    *nixl.Memory
	region *nixl.Region
	peer   *nixl.Peer
	base   uint64
}

func startGo(ctx context.Context, lib *nixl.Library, blob []byte, base uint64) (g *goSide, err error) {
	g = &goSide{base: base}
	if g.mem, err = nixl.NewMemory(memory, false); err != nil {
		return nil, err
	}
	b := g.mem.Bytes()
	for i := range b { // as the C side does: no page is missing when it is read
		b[i] = 1
	}
	if g.agent, err = lib.NewAgent(ctx, "writer"); err != nil {
		return nil, err
	}
	if g.region, err = g.agent.Register(ctx, g.mem, 0, memory); err != nil {
		return nil, err
	}
	g.peer, err = g.agent.AddPeer(ctx, blob)
	return g, err
}

func (g *goSide) close() {
	if err := g.agent.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (g *goSide) write(spans []nixl.Span, n int) ([]time.Duration, error) {
	there := make([]nixl.Span, len(spans))
	for i, s := range spans {
		there[i] = nixl.Span{Off: s.Off, Len: s.Len, Addr: s.Addr + g.base}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		if err := g.peer.Write(ctx, g.region, there); err != nil {
			return nil, err
		}
		took[i] = time.Since(began)
	}
	return took, nil
}
