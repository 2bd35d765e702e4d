//go:build cgo && linux

package nixl

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/nixl/nixltest"
)

// The other end is a program that is not ours: a Python peer that obeys JSON lines, through the Python API of the wheel or through the C
// API. test/nixl-interop.sh says where it is.
const (
	peerVariable       = "PD_ROUTER_NIXL_PEER"        // the program
	peerPythonVariable = "PD_ROUTER_NIXL_PEER_PYTHON" // what runs it
	peerImplsVariable  = "PD_ROUTER_NIXL_PEER_IMPLS"  // "capi api"
)

type object map[string]any

// script is a running peer.
type script struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    *json.Encoder
	out   *bufio.Scanner
	hello struct {
		Name string
		Addr uint64
		MD   []byte
	}
}

func startScript(t *testing.T, args ...string) *script {
	t.Helper()
	args = append([]string{os.Getenv(peerVariable), "--size", strconv.Itoa(large)}, args...)
	s := &script{t: t, cmd: exec.Command(os.Getenv(peerPythonVariable), args...)}
	s.cmd.Env = append(os.Environ(), "NIXL_LIB="+filepath.Dir(nixltest.Path()))
	s.cmd.Stderr = os.Stderr
	in, err := s.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(s.kill)
	s.in, s.out = json.NewEncoder(in), bufio.NewScanner(out)
	s.out.Buffer(nil, 1<<20)
	s.ask("hello", nil, &s.hello)
	return s
}

func (s *script) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// ask sends a request and reads its answer into out, which may be nil. An answer that is not ok ends the test.
func (s *script) ask(op string, fields object, out any) {
	s.t.Helper()
	request := object{"op": op}
	for k, v := range fields {
		request[k] = v
	}
	require.NoError(s.t, s.in.Encode(request))
	require.True(s.t, s.out.Scan(), "%s: the peer has gone", op)
	var answer struct {
		OK    bool
		Error string
	}
	require.NoError(s.t, json.Unmarshal(s.out.Bytes(), &answer))
	require.True(s.t, answer.OK, "%s: %s", op, answer.Error)
	if out != nil {
		require.NoError(s.t, json.Unmarshal(s.out.Bytes(), out))
	}
}

func (s *script) sum(off, n int) string {
	var answer struct{ SHA256 string }
	s.ask("sum", object{"off": off, "len": n}, &answer)
	return answer.SHA256
}

func TestInterop(t *testing.T) {
	if os.Getenv(peerVariable) == "" {
		t.Skip("test/nixl-interop.sh runs this")
	}
	lib := realLibrary(t)
	for _, impl := range strings.Fields(os.Getenv(peerImplsVariable)) {
		kinds := map[string][]string{impl: {"--impl", impl}}
		if impl == "api" {
			kinds["api as vLLM sets it"] = []string{"--impl", impl, "--threads", "4", "--telemetry", "--prog-thread"}
		}
		for name, args := range kinds {
			t.Run(name+" receives", func(t *testing.T) { interopReceives(t, lib, args) })
			t.Run(name+" sends", func(t *testing.T) { interopSends(t, lib, args) })
			t.Run(name+" dies and comes back under its name", func(t *testing.T) { interopDies(t, lib, args) })
			t.Run(name+" sends to a router that starts again", func(t *testing.T) { interopRestart(t, lib, args) })
		}
	}
}

func interopReceives(t *testing.T, lib *Library, args []string) {
	other := startScript(t, append(args, "--name", "receiver")...)
	from := newSide(t, lib, "prefill", large)
	p := from.peer(t, other.hello.MD)
	require.Equal(t, "receiver", p.Name())
	want := make([]byte, large)
	for i, spans := range [][]Span{{{Off: 5, Len: 4096, Addr: other.hello.Addr + 9}}, {{Len: large, Addr: other.hello.Addr}}, layerwise(other.hello.Addr)} {
		fill(from.mem.Bytes(), byte(i))
		want = image(want, from.mem.Bytes(), other.hello.Addr, spans)
		require.NoError(t, p.Write(soon(t), from.region, spans))
		require.Equal(t, sum(want), other.sum(0, large), "content %d", i)
	}
}

func interopSends(t *testing.T, lib *Library, args []string) {
	other := startScript(t, append(args, "--name", "sender", "--sync", "rw")...)
	to := newSide(t, lib, "decode", large)
	other.ask("load", object{"md": to.metadata(t, DRAM, VRAM)}, nil)
	scattered := func() (local, remote [][]uint64) {
		for _, s := range layerwise(to.region.Addr()) {
			local = append(local, []uint64{uint64(s.Off), uint64(s.Len)})
			remote = append(remote, []uint64{s.Addr, uint64(s.Len), 0})
		}
		return local, remote
	}
	for i, mem := range []string{"DRAM", "VRAM"} {
		other.ask("fill", object{"len": large, "seed": 40 + i}, nil)
		request := object{"peer": to.Name(), "remote_mem": mem, "local": [][]int{{0, large}}, "remote": [][]uint64{{to.region.Addr(), large, 0}}}
		other.ask("write", request, nil)
		require.Equal(t, other.sum(0, large), sum(to.mem.Bytes()), "one descriptor, described as %s", mem)

		clear(to.mem.Bytes())
		request["local"], request["remote"] = scattered()
		request["notif"] = "nobody reads this"
		other.ask("write", request, nil)
		for _, s := range layerwise(to.region.Addr())[:9] {
			at := int(s.Addr - to.region.Addr())
			require.Equal(t, other.sum(s.Off, s.Len), sum(to.mem.Bytes()[at:at+s.Len]))
		}
	}
}

func interopDies(t *testing.T, lib *Library, args []string) {
	args = append(args, "--name", "10.0.0.7:1")
	other := startScript(t, args...)
	from := newSide(t, lib, "prefill", large)
	fill(from.mem.Bytes(), 1)
	p := from.peer(t, other.hello.MD)
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 4096, Addr: other.hello.Addr}}))
	require.NoError(t, other.in.Encode(object{"op": "stall", "s": 60})) // connected, and silent
	ended := make(chan error, 1)
	ctx := within(t, 30*time.Second)
	go func() { ended <- p.Write(ctx, from.region, []Span{{Len: large, Addr: other.hello.Addr}}) }()
	other.kill()
	require.ErrorIs(t, <-ended, ErrPeerLost)
	again := startScript(t, args...)
	p = from.peer(t, again.hello.MD)
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: large, Addr: again.hello.Addr}}))
	require.Equal(t, sum(from.mem.Bytes()), again.sum(0, large))
}

// TileRT's sender never forgets a peer's metadata: only a new name is a new peer to it.
func interopRestart(t *testing.T, lib *Library, args []string) {
	other := startScript(t, append(args, "--name", "sender")...)
	other.ask("fill", object{"len": 1 << 20, "seed": 7}, nil)
	for range 3 {
		to := newSide(t, lib, "decode", 1<<20)
		other.ask("load", object{"md": to.metadata(t)}, nil)
		other.ask("write", object{"peer": to.Name(), "local": [][]int{{0, 1 << 20}}, "remote": [][]uint64{{to.region.Addr(), 1 << 20, 0}}}, nil)
		require.Equal(t, other.sum(0, 1<<20), sum(to.mem.Bytes()))
		require.NoError(t, to.Close())
	}
}
