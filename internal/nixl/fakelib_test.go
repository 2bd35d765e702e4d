//go:build cgo && linux

package nixl

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeLibrary compiles testdata/fake.c with the flags.
func fakeLibrary(t *testing.T, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler in PATH")
	}
	file := filepath.Join(t.TempDir(), "libnixl_capi.so")
	args := append([]string{"-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", file, "testdata/fake.c"}, flags...)
	text, err := exec.Command(cc, args...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return file
}

func TestBridgeCompilesWithoutWarnings(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler in PATH")
	}
	text, err := exec.Command(cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only", "bridge.c").CombinedOutput()
	require.NoError(t, err, "%s", text)
}

func TestOpenDecidesTheLayout(t *testing.T) {
	for _, tc := range []struct {
		name, flag      string
		layout, version string
	}{
		{"before generation 3", "-DOLD", "A", ""},
		{"generation 3", "-DVERSION=0,1", "B", "0.1"},
		{"an earlier minor version of it", "-DVERSION=0,0", "B", "0.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := fakeLibrary(t, tc.flag)
			lib, err := Open(Options{Path: filepath.Dir(file)})
			require.NoError(t, err)
			require.Equal(t, Info{Path: file, Layout: tc.layout, Version: tc.version}, lib.Info())
			s := newSide(t, lib, "fake", 1<<20) // the fake looks at each field of the configuration
			to := newSide(t, lib, "fake", 1<<20)
			require.NotEqual(t, s.Name(), to.Name(), "random names")
		})
	}
}

// Invariant 1.
func TestOpenRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, flag string
		says       []string
	}{
		{"a stub", "-DSTUB", []string{"stub"}},
		{"a newer minor version", "-DVERSION=0,2", []string{"version 0.2", "known is up to 0.1"}},
		{"a newer major version", "-DVERSION=1,0", []string{"version 1.0"}},
		{"missing functions, all in one error", "-DINCOMPLETE", []string{"has no nixl_capi_create_xfer_req", "has no nixl_capi_post_xfer_req"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := fakeLibrary(t, tc.flag)
			lib, err := Open(Options{Path: file})
			require.ErrorIs(t, err, ErrUnsupported)
			require.NotErrorIs(t, err, ErrNoLibrary)
			require.Nil(t, lib)
			for _, s := range append(tc.says, file, "from option", PathVariable) {
				require.ErrorContains(t, err, s)
			}
			if tc.flag == "-DINCOMPLETE" {
				missing := new(MissingSymbolError)
				require.ErrorAs(t, err, &missing)
				require.Equal(t, "nixl_capi_create_xfer_req", missing.Name)
			}
		})
	}
}

func TestOpenTellsWhatWasTried(t *testing.T) {
	text := filepath.Join(t.TempDir(), "libnixl_capi.so")
	require.NoError(t, os.WriteFile(text, bytes.Repeat([]byte("not a library"), 99), 0o600))
	_, err := Open(Options{Path: text})
	require.ErrorIs(t, err, ErrNoLibrary)
	require.ErrorContains(t, err, text+" (from option): ")
	require.ErrorContains(t, err, "invalid ELF header", "the words of dlerror")

	t.Setenv(PathVariable, "/nowhere/at/all.so")
	_, err = Open(Options{})
	require.ErrorIs(t, err, ErrNoLibrary)
	require.ErrorContains(t, err, "/nowhere/at/all.so (from "+PathVariable+"): ")
}

func TestOpenSetsTheEnvironmentOfTheLibrary(t *testing.T) {
	for _, e := range environment {
		t.Setenv(e.name, "")
		os.Unsetenv(e.name)
	}
	t.Setenv("UCX_LOG_FILE", "chosen")
	_, err := Open(Options{Path: fakeLibrary(t)})
	require.NoError(t, err)
	require.Equal(t, "chosen", os.Getenv("UCX_LOG_FILE"), "the operator's value stays")
	require.Equal(t, "0", os.Getenv("UCX_DEBUG_SIGNO"))
}

func TestFakeWrite(t *testing.T) {
	lib, err := Open(Options{Path: fakeLibrary(t)})
	require.NoError(t, err)
	to, from := newSide(t, lib, "decode", 16<<20), newSide(t, lib, "prefill", 16<<20)
	fill(from.mem.Bytes(), 1)
	p := from.peer(t, to.metadata(t))
	spans := layerwise(to.region.Addr())
	want := image(to.mem.Bytes(), from.mem.Bytes(), to.region.Addr(), spans)
	require.NoError(t, p.Write(soon(t), from.region, spans))
	require.Equal(t, sum(want), sum(to.mem.Bytes()))
	require.NoError(t, p.Close())
	require.NoError(t, from.region.Close())
	require.NoError(t, from.Close(), "the fake says what is left over")
	require.NoError(t, to.Close())
}

// Each function that fails gives an error with its name and code, of the right kind, and leaves nothing behind: the fake's agent does not
// go without complaint otherwise.
func TestEachFailureOfTheLibrary(t *testing.T) {
	lib, err := Open(Options{Path: fakeLibrary(t)})
	require.NoError(t, err)
	t.Setenv("FAKE_NIXL_ONE_AGENT", "1")
	for _, tc := range []struct {
		call string
		kind error
	}{
		{"create_configured_agent", ErrRefused}, {"get_plugin_params", ErrRefused}, {"create_backend", ErrRefused},
		{"create_reg_dlist", ErrRefused}, {"reg_dlist_add_desc", ErrRefused}, {"register_mem", ErrRefused},
		{"get_local_md", ErrRefused}, {"load_remote_md", ErrRefused}, {"another_name", ErrMetadata},
		{"create_xfer_dlist", ErrRefused}, {"xfer_dlist_add_desc", ErrRefused}, {"create_xfer_req", ErrRefused},
		{"post_xfer_req", ErrPeerLost}, {"get_xfer_status", ErrPeerLost}, {"deregister_mem", ErrRefused},
	} {
		t.Run(tc.call, func(t *testing.T) {
			t.Setenv("FAKE_NIXL_FAIL", tc.call+"=-8")
			err := everything(t, lib)
			require.ErrorIs(t, err, tc.kind)
			call := new(CallError)
			if tc.kind != ErrMetadata {
				require.ErrorAs(t, err, &call)
				require.Equal(t, tc.call, call.Call)
				require.ErrorIs(t, err, Mismatch)
			}
		})
	}
	require.NoError(t, everything(t, lib))
}

// everything does each thing once and returns the first error; then it cleans up without failures.
func everything(t *testing.T, lib *Library) (err error) {
	a, err := lib.NewAgent(soon(t), "fake")
	if err != nil {
		return err
	}
	mem, merr := NewMemory(1<<20, false)
	require.NoError(t, merr)
	defer func() {
		os.Unsetenv("FAKE_NIXL_FAIL")
		require.NoError(t, a.Close())
		require.NoError(t, mem.Close())
	}()
	r, err := a.Register(soon(t), mem, 0, 1<<20)
	if err != nil {
		return err
	}
	if _, err = a.Metadata(soon(t)); err != nil {
		return err
	}
	blob := fakeBlob("peer", 1)
	m, _ := ParseMetadata(blob)
	m.Sections[0].Descs[0].Addr = r.Addr()
	p, err := a.AddPeer(soon(t), m.Marshal())
	if err != nil {
		return err
	}
	for _, n := range []int{1, smallWrite + 1} {
		if err := p.Write(soon(t), r, []Span{{Len: n, Addr: r.Addr() + 512<<10}}); err != nil {
			return err
		}
	}
	return errors.Join(p.Close(), r.Close())
}

func TestCloseTellsThatTheAgentDidNotGo(t *testing.T) {
	lib, err := Open(Options{Path: fakeLibrary(t)})
	require.NoError(t, err)
	a, err := lib.NewAgent(within(t, time.Second), "fake")
	require.NoError(t, err)
	t.Setenv("FAKE_NIXL_FAIL", "destroy_agent=-2")
	require.ErrorIs(t, a.Close(), Backend)
}
