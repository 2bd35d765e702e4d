package scenario

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is one running program. Its test ends it, if nobody did before.
type process struct {
	t     testing.TB
	name  string
	cmd   *exec.Cmd
	first chan string   // receives the first line of standard output, if there is one; closed at its end
	ended chan struct{} // closed when the process has ended and all its output was read
	code  int           // exit code, -1 after a signal; read it after ended
}

// start runs the program. Each line of its standard error goes to log, from one goroutine.
func start(t testing.TB, name string, log func(line string), args ...string) *process {
	t.Helper()
	sources()
	p := &process{t: t, name: name, cmd: exec.Command(program, args...), first: make(chan string, 1), ended: make(chan struct{})}
	p.cmd.SysProcAttr = attributes()
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	stderr, err := p.cmd.StderrPipe()
	must(t, err)
	must(t, p.cmd.Start())
	var read sync.WaitGroup // both end with the process
	read.Go(func() {
		defer close(p.first)
		lines(stdout, func(line string) {
			select {
			case p.first <- line:
			default:
			}
		})
	})
	read.Go(func() { lines(stderr, log) })
	go func() { // awaited through ended
		read.Wait()
		err := p.cmd.Wait()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Errorf("%s: %v", name, err)
		}
		p.code = p.cmd.ProcessState.ExitCode()
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	return p
}

// lines calls each for every line until the end of r.
func lines(r io.Reader, each func(line string)) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		each(s.Text())
	}
	_, _ = io.Copy(io.Discard, r) // after a line that was too long
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// greeting is the first line that the process prints.
func (p *process) greeting() string {
	p.t.Helper()
	select {
	case line := <-p.first: // "" when it has ended
		return line
	case <-time.After(patience):
		p.t.Fatalf("%s says nothing", p.name)
	}
	return ""
}

// kill ends the process as a crash does, and waits for that. A second call does nothing.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(s))
}

// exit waits for the end of the process and returns its code.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
	return p.code
}

// stop asks the process to end, which it must do well.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		p.t.Errorf("%s ended with code %d", p.name, code)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tail keeps the last lines of a log, for the report of a failure.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (l *tail) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 80 {
		l.lines = append(l.lines[:0], l.lines[40:]...)
	}
	l.lines = append(l.lines, line)
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}
