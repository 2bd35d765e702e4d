package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal: what a person has in hand, and what a program gets.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	t.Cleanup(func() { person.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { program.Close() })
	require.NoError(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}))
	return person, program
}

// readUntil reads what the person sees until it has text.
func readUntil(t *testing.T, person *os.File, text string) string {
	t.Helper()
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), text) {
		n, err := person.Read(buf)
		require.NoError(t, err, "%q", seen.String())
		seen.Write(buf[:n])
	}
	return seen.String()
}

func TestTopInATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	for name, end := range map[string]func(person *os.File, cancel context.CancelFunc){
		"q ends it":          func(person *os.File, _ context.CancelFunc) { _, _ = person.WriteString("xq") },
		"and so does Ctrl-C": func(_ *os.File, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshotServer(t, canned(t))
			person, program := terminal(t)
			before, err := unix.IoctlGetTermios(int(program.Fd()), getTermios)
			require.NoError(t, err)
			screen, ok := openScreen(program, program)
			require.True(t, ok)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			ended := make(chan error, 1)
			go func() { ended <- watchTop(ctx, client, s.URL+"/queue", screen) }()
			seen := readUntil(t, person, "\x1b[J")
			assert.True(t, strings.HasPrefix(seen, "\x1b[?1049h\x1b[?25l\x1b[H"), "%q", seen)
			assert.Contains(t, seen, "pd-router 1.2.3")
			for _, line := range strings.Split(strings.ReplaceAll(seen, "\x1b[K", ""), "\r\n") {
				assert.LessOrEqual(t, len([]rune(strings.TrimPrefix(line, "\x1b[?1049h\x1b[?25l\x1b[H"))), 100+len("\x1b[J"))
			}
			end(person, cancel)
			assert.Contains(t, readUntil(t, person, "\x1b[?1049l"), "\x1b[?25h", "the cursor is back")
			select {
			case err := <-ended:
				assert.NoError(t, err)
			case <-time.After(5 * time.Second):
				t.Fatal("top did not end")
			}
			after, err := unix.IoctlGetTermios(int(program.Fd()), getTermios)
			require.NoError(t, err)
			assert.Equal(t, before.Lflag, after.Lflag, "the keyboard is as it was")
		})
	}
}

func TestNoScreenWithoutATerminal(t *testing.T) {
	_, ok := openScreen(&strings.Builder{}, os.Stdin)
	assert.False(t, ok)
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer file.Close()
	_, ok = openScreen(file, os.Stdin)
	assert.False(t, ok)
	t.Setenv("TERM", "dumb")
	_, program := terminal(t)
	_, ok = openScreen(program, program)
	assert.False(t, ok)
}
