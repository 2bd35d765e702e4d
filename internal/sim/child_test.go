package sim

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"pd-router/internal/tilert"

	"github.com/stretchr/testify/require"
)

// A child is a decode node in a process of its own: this test binary again. It can be stopped and killed.
const childVariable = "PD_ROUTER_SIM_TEST_CHILD" // its control port, 0 for any

// child is the main function of the other process.
func child() {
	d, err := NewDecode(DecodeOptions{Profile: "tiny", MaxSeqLen: 4096, Transport: TransportNIXL, Age: halfway, Ctrl: "127.0.0.1:" + os.Getenv(childVariable)})
	if err == nil {
		err = d.Listen()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	fmt.Println(d.HTTPAddr(), d.CtrlAddr())
	_ = d.Serve(context.Background()) // which a signal ends
	os.Exit(0)
}

// other is the child as the test sees it.
type other struct {
	*exec.Cmd
	http, ctrl string
}

func startOther(t *testing.T, ctrlPort string) *other {
	t.Helper()
	o := &other{Cmd: exec.Command(os.Args[0])}
	o.Env = append(os.Environ(), childVariable+"="+ctrlPort)
	o.Stderr = os.Stderr
	out, err := o.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, o.Start())
	t.Cleanup(o.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &o.http, &o.ctrl)
	require.NoError(t, err)
	return o
}

// kill ends the process without a word, and is harmless when it has ended.
func (o *other) kill() {
	_ = o.Process.Kill()
	_ = o.Wait()
}

func (o *other) ctrlPort() int {
	addr, _ := net.ResolveTCPAddr("tcp", o.ctrl) // an address, not a name
	return addr.Port
}

// hello is what the node says first.
func (o *other) hello(t *testing.T) *tilert.Hello {
	b, err := tilert.ReadFrame(dial(t, o.ctrl), nil)
	require.NoError(t, err)
	h, err := tilert.ParseHello(b)
	require.NoError(t, err)
	return h
}
