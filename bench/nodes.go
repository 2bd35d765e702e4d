package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
)

// stub is a server that answers as fast as it can: raw sockets, canned bytes, one goroutine a connection.
type stub struct {
	ln     net.Listener
	answer func(path string, body []byte, w *bufio.Writer)
}

// newStub listens on addr.
func newStub(addr string, answer func(path string, body []byte, w *bufio.Writer)) (*stub, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &stub{ln, answer}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s, nil
}

// addr is where the stub is reached.
func (s *stub) addr() string {
	return "127.0.0.1:" + strconv.Itoa(s.port())
}

func (s *stub) port() int { return s.ln.Addr().(*net.TCPAddr).Port }

func (s *stub) serve(c net.Conn) {
	defer c.Close()
	r, w := bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 64<<10)
	var body []byte
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		words := strings.Fields(string(line))
		if len(words) != 3 || words[2] != "HTTP/1.1" { // some routers try HTTP/2 first
			return
		}
		path, _, _ := strings.Cut(words[1], "?")
		length := 0
		for {
			h, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(h) <= 2 {
				break
			}
			if v, ok := header(h, "content-length"); ok {
				length, _ = strconv.Atoi(string(v))
			}
		}
		if cap(body) < length {
			body = make([]byte, length)
		}
		body = body[:length]
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		s.answer(path, body, w)
		if w.Flush() != nil {
			return
		}
	}
}

// header returns the value of a header line if it has that name, in lower case.
func header(line []byte, name string) ([]byte, bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name)+1:]), true
}
