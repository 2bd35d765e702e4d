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

// writer is one side of the comparison: a process that writes to the receiver, and talks in lines as testdata/bench.c says.
type writer struct {
	process
	base uint64 // address of the receiver's memory
}

// process is a child that talks in lines.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// sides are a receiver and both writers, all of them new: how the system lays out and places processes changes the figures more than
// what is measured, and is another in each of them.
type sides struct {
	receiver process
	c, g     writer
}

// compile makes the C program, in folder.
func compile(ctx context.Context, folder string) (program string, err error) {
	_, here, _, _ := runtime.Caller(0)
	program = filepath.Join(folder, "bench")
	build := exec.CommandContext(ctx, "cc", "-std=gnu11", "-O2", "-o", program, filepath.Join(filepath.Dir(here), "testdata/bench.c"), "-ldl")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return program, nil
}

func startSides(ctx context.Context, program, library string) (s *sides, err error) {
	s = &sides{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err = s.receiver.start(ctx, program, library, "target"); err != nil {
		return nil, err
	}
	line, err := s.receiver.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the receiver: %w", err)
	}
	var text string
	var base uint64
	if _, err := fmt.Sscan(line, &text, &base); err != nil {
		return nil, err
	}
	blob, err := hex.DecodeString(text)
	if err != nil {
		return nil, err
	}
	m, err := nixl.ParseMetadata(blob)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.c.base, s.g.base = base, base
	if err := s.c.start(ctx, program, library, "writer"); err != nil {
		return nil, err
	}
	if err := s.g.start(ctx, self, library, "writer"); err != nil {
		return nil, err
	}
	for _, w := range []*writer{&s.c, &s.g} {
		if _, err := fmt.Fprintf(w.in, "peer %s %s\n", text, m.Agent); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *sides) close() {
	for _, p := range []*process{&s.c.process, &s.g.process, &s.receiver} {
		if p.cmd != nil {
			p.in.Close()
			_ = p.cmd.Wait() // it has done its work, or an error of its own is on stderr
		}
	}
}

func (p *process) start(ctx context.Context, program, library, role string) error {
	cmd := exec.CommandContext(ctx, program, library, role, strconv.Itoa(memory))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	*p = process{cmd, in, bufio.NewReaderSize(out, 1<<20)}
	return nil
}

// write has spans written n times and returns how long each write took.
func (w *writer) write(spans []nixl.Span, n int) ([]time.Duration, error) {
	line := fmt.Appendf(nil, "write %d %d %d", n, w.base, len(spans))
	for _, s := range spans {
		line = fmt.Appendf(line, " %d %d %d", s.Off, s.Len, s.Addr)
	}
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	answer, err := w.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("a writer: %w", err)
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
