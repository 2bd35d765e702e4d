package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strings"
	"time"
)

// client sends one request after another on one connection.
type client struct {
	c net.Conn
	r *bufio.Reader
}

func dial(addr string) (*client, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{c, bufio.NewReaderSize(c, 64<<10)}, nil
}

func request(path string, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func chat(size int, stream bool, tokens int) []byte {
	return request("/v1/chat/completions", fmt.Sprintf(
		`{"model":"m","messages":[{"role":"user","content":"%s"}],"stream":%t,"max_completion_tokens":%d,"ignore_eos":true,"stream_options":{"include_usage":true}}`,
		strings.Repeat("lorem ipsum ", size/12), stream, tokens))
}

// roundTrip sends req and reads the whole chunked or sized reply. first is the time to the first byte of the body.
func (c *client) roundTrip(req []byte) (first, total time.Duration, lines int, err error) {
	start := time.Now()
	if _, err = c.c.Write(req); err != nil {
		return
	}
	head, length := true, -1
	for head {
		line, e := c.r.ReadSlice('\n')
		if e != nil {
			return 0, 0, 0, e
		}
		if bytes.HasPrefix(line, []byte("HTTP/1.1 ")) && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return 0, 0, 0, fmt.Errorf("%s", bytes.TrimSpace(line))
		}
		if bytes.HasPrefix(line, []byte("Content-Length:")) {
			fmt.Sscanf(string(line), "Content-Length: %d", &length)
		}
		head = len(line) > 2
	}
	if length >= 0 {
		_, err = c.r.Discard(length)
		return time.Since(start), time.Since(start), 1, err
	}
	for {
		line, e := c.r.ReadSlice('\n')
		if e != nil {
			return 0, 0, 0, e
		}
		var n int
		if _, e := fmt.Sscanf(string(line), "%x", &n); e != nil {
			return 0, 0, 0, e
		}
		for left := n + 2; left > 0; {
			part, e := c.r.Peek(min(left, max(1, c.r.Buffered())))
			if e != nil {
				return 0, 0, 0, e
			}
			lines += bytes.Count(part, []byte("\n\n"))
			left -= len(part)
			_, _ = c.r.Discard(len(part))
		}
		if first == 0 {
			first = time.Since(start)
		}
		if n == 0 {
			return first, time.Since(start), lines, nil
		}
	}
}
