package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"pd-router/internal/nixl"
)

// goWriter is the Go side: testdata/bench.c's writer, by the package that is measured.
type goWriter struct {
	region *nixl.Region
	peer   *nixl.Peer
	in     *bufio.Reader
	out    *bufio.Writer
}

// serveWriter does what it is told on stdin until that ends.
func serveWriter(library string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	lib, err := nixl.Open(nixl.Options{Path: library})
	if err != nil {
		return err
	}
	mem, err := nixl.NewMemory(memory, false)
	if err != nil {
		return err
	}
	b := mem.Bytes()
	for i := range b { // as the C side does: no page is missing when it is read
		b[i] = 1
	}
	agent, err := lib.NewAgent(ctx, "writer")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, agent.Close()) }()
	w := &goWriter{in: bufio.NewReaderSize(os.Stdin, 1<<20), out: bufio.NewWriterSize(os.Stdout, 1<<20)}
	if w.region, err = agent.Register(ctx, mem, 0, memory); err != nil {
		return err
	}
	for {
		line, err := w.in.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch f := strings.Fields(line); f[0] {
		case "peer":
			blob, err := hex.DecodeString(f[1])
			if err != nil {
				return err
			}
			if w.peer, err = agent.AddPeer(ctx, blob); err != nil {
				return err
			}
		case "write":
			if err := w.write(ctx, f[1:]); err != nil {
				return err
			}
		}
	}
}

// write is "COUNT BASE N OFF LEN ADDR ...".
func (w *goWriter) write(ctx context.Context, words []string) error {
	numbers := make([]int, len(words))
	for i := range words {
		var err error
		if numbers[i], err = strconv.Atoi(words[i]); err != nil {
			return err
		}
	}
	took, base := make([]time.Duration, numbers[0]), numbers[1]
	spans := make([]nixl.Span, numbers[2])
	for i := range spans {
		of := numbers[3+3*i:]
		spans[i] = nixl.Span{Off: of[0], Len: of[1], Addr: uint64(base + of[2])}
	}
	for i := range took {
		began := time.Now()
		if err := w.peer.Write(ctx, w.region, spans); err != nil {
			return err
		}
		took[i] = time.Since(began)
	}
	for _, d := range took {
		fmt.Fprintf(w.out, "%d ", d.Nanoseconds())
	}
	fmt.Fprintln(w.out)
	return w.out.Flush()
}
