package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
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

// chat is a request with a prompt of so many bytes, which begins with first.
func chat(first string, size int, stream bool, tokens int) []byte {
	options := ""
	if stream {
		options = `,"stream_options":{"include_usage":true}`
	}
	return request("/v1/chat/completions", fmt.Sprintf(
		`{"model":"stub","messages":[{"role":"user","content":"%s%s"}],"stream":%t,"max_completion_tokens":%d,"ignore_eos":true%s}`,
		first, strings.Repeat("lorem ipsum ", size/12), stream, tokens, options))
}

// send writes req and reads the head of the reply, which must be a 200. length is -1 if chunks follow.
func (c *client) send(req []byte) (length int, err error) {
	if _, err = c.c.Write(req); err != nil {
		return 0, err
	}
	length = -1
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return 0, fmt.Errorf("%s", bytes.TrimSpace(line))
		}
		if v, ok := header(line, "content-length"); ok {
			length, _ = strconv.Atoi(string(v))
		}
		if len(line) <= 2 {
			return length, nil
		}
	}
}

// roundTrip sends req and reads the whole reply. first is the time to the first bytes of the body.
func (c *client) roundTrip(req []byte) (first time.Duration, events int, err error) {
	start := time.Now()
	length, err := c.send(req)
	if err != nil {
		return 0, 0, err
	}
	if length >= 0 {
		_, err = c.r.Discard(length)
		return time.Since(start), 1, err
	}
	var before byte
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return 0, 0, err
		}
		if first == 0 {
			first = time.Since(start)
		}
		for left := int(n); left > 0; {
			if _, err := c.r.Peek(1); err != nil {
				return 0, 0, err
			}
			part, _ := c.r.Peek(min(left, c.r.Buffered()))
			if events += bytes.Count(part, []byte("\n\n")); before == '\n' && part[0] == '\n' {
				events++ // an event's end may be cut in two
			}
			before = part[len(part)-1]
			left -= len(part)
			_, _ = c.r.Discard(len(part))
		}
		if _, err := c.r.Discard(2); err != nil || n == 0 {
			return first, events, err
		}
	}
}

var content = []byte(`"content":"`)

// delays sends req and returns how long each paced token was on its way.
func (c *client) delays(req []byte) ([]time.Duration, error) {
	if _, err := c.send(req); err != nil {
		return nil, err
	}
	var out []time.Duration
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if string(line) == "0\r\n" {
			_, err := c.r.Discard(2)
			return out, err
		}
		_, rest, _ := bytes.Cut(line, content)
		text, _, _ := bytes.Cut(rest, []byte{'"'})
		if id, err := strconv.Atoi(string(text)); err == nil {
			out = append(out, since(id))
		}
	}
}

// again is a client that sends the same request n times, one after the other.
func again(req []byte, n int) func(*client) error {
	return func(c *client) error {
		for range n {
			if _, _, err := c.roundTrip(req); err != nil {
				return err
			}
		}
		return nil
	}
}
