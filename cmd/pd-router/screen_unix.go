//go:build linux || darwin || freebsd || netbsd || openbsd

package main

import (
	"context"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// keyPause is how long a look for a key waits, in milliseconds: the end of the program is noticed that soon.
const keyPause = 100

// screen is a terminal that is drawn in place: on its alternate screen, so that what was there comes back.
type screen struct {
	out   *os.File
	in    int
	saved *unix.Termios // of in, nil when in is no terminal
}

// isTerminal tells whether w is one: then what is written may go back to the beginning of a line.
func isTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), getTermios)
	return err == nil
}

// openScreen takes over the terminal that w is, with its keyboard. ok is false when it is none, or cannot be drawn in place.
func openScreen(w io.Writer, keyboard *os.File) (s *screen, ok bool) {
	if !isTerminal(w) || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	out := w.(*os.File)
	s = &screen{out: out, in: int(keyboard.Fd())}
	if before, err := unix.IoctlGetTermios(s.in, getTermios); err == nil {
		s.saved = before
		keys := *before
		keys.Lflag &^= unix.ICANON | unix.ECHO // keys at once and unseen; Ctrl-C stays a signal
		_ = unix.IoctlSetTermios(s.in, setTermios, &keys)
	}
	_, _ = io.WriteString(out, "\x1b[?1049h\x1b[?25l") // alternate screen, no cursor
	return s, true
}

func (s *screen) close() {
	_, _ = io.WriteString(s.out, "\x1b[?25h\x1b[?1049l")
	if s.saved != nil {
		_ = unix.IoctlSetTermios(s.in, setTermios, s.saved)
	}
}

func (s *screen) size() (width, height int) {
	if ws, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col > 0 && ws.Row > 0 {
		return int(ws.Col), int(ws.Row)
	}
	return 80, 24
}

// draw shows lines, cut to the size, in one write: nothing flickers.
func (s *screen) draw(lines []string, width, height int) {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(clip(line, width))
		b.WriteString("\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, _ = io.WriteString(s.out, b.String())
}

// untilKey returns when key was pressed or ctx has ended. Without a keyboard only the latter happens.
func (s *screen) untilKey(ctx context.Context, key byte) {
	if s.saved == nil {
		<-ctx.Done()
		return
	}
	var buf [16]byte
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(s.in), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, keyPause); err != nil && err != unix.EINTR || n <= 0 {
			continue
		}
		n, err := unix.Read(s.in, buf[:])
		if err != nil && err != unix.EINTR || n == 0 { // the terminal is gone
			<-ctx.Done()
			return
		}
		if strings.IndexByte(string(buf[:max(0, n)]), key) >= 0 {
			return
		}
	}
}
