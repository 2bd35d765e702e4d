package nixl

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pd-router/internal/nixl/nixltest"
)

// A child is a receiver in a process of its own: this test binary again. It answers each line on its input with one on its output.
const childVariable = "PD_ROUTER_NIXL_TEST_CHILD" // "name size"

type childHello struct {
	Blob []byte
	Base uint64
}

// child is the main function of the other process.
func child() {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
	}
	var name string
	var size int
	_, err := fmt.Sscan(os.Getenv(childVariable), &name, &size)
	must(err)
	lib, err := Open(Options{Path: nixltest.Path()})
	must(err)
	a, err := lib.NewAgentNamed(context.Background(), name)
	must(err)
	mem, err := NewMemory(size, false)
	must(err)
	r, err := a.Register(context.Background(), mem, 0, size)
	must(err)
	blob, err := a.Metadata(context.Background())
	must(err)
	out := json.NewEncoder(os.Stdout)
	must(out.Encode(childHello{blob, r.Addr()}))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() { // "OFF LEN": the sum of the bytes there
		var off, n int
		_, err := fmt.Sscan(in.Text(), &off, &n)
		must(err)
		must(out.Encode(sum(mem.Bytes()[off : off+n])))
	}
	must(a.Close())
	must(mem.Close())
	os.Exit(0)
}

// other is the child as the test sees it.
type other struct {
	childHello
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func startOther(t testing.TB, name string, size int) *other {
	t.Helper()
	o := &other{t: t, cmd: exec.Command(os.Args[0])}
	o.cmd.Env = append(os.Environ(), childVariable+"="+name+" "+strconv.Itoa(size))
	o.cmd.Stderr = os.Stderr
	var err error
	o.in, err = o.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := o.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, o.cmd.Start())
	t.Cleanup(o.kill)
	o.out = json.NewDecoder(out)
	require.NoError(t, o.out.Decode(&o.childHello))
	return o
}

func sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

// holds wants the child's memory to begin with b.
func (o *other) holds(b []byte) {
	o.t.Helper()
	_, err := fmt.Fprintf(o.in, "0 %d\n", len(b))
	require.NoError(o.t, err)
	var got string
	require.NoError(o.t, o.out.Decode(&got))
	require.Equal(o.t, sum(b), got, "the content of %d bytes", len(b))
}

func (o *other) signal(s os.Signal) {
	o.t.Helper()
	require.NoError(o.t, o.cmd.Process.Signal(s))
}

// stop makes the process hang: connected, and silent.
func (o *other) stop()   { o.signal(syscall.SIGSTOP) }
func (o *other) resume() { o.signal(syscall.SIGCONT) }

// kill ends the process without a word, and is harmless when it has ended.
func (o *other) kill() {
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
}

// end lets the process close its agent, and wants that to go well.
func (o *other) end() {
	o.t.Helper()
	require.NoError(o.t, o.in.Close())
	require.NoError(o.t, o.cmd.Wait())
}
