package nixl

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Options says where the library is.
type Options struct {
	// Path is libnixl_capi.so or the folder it is in. Empty: PD_ROUTER_NIXL_LIBRARY, then the nixl wheels in the package folders of
	// this machine's Pythons, then the dynamic linker's path.
	Path string
}

// Library is a loaded libnixl_capi.so with all its functions bound. It is never unloaded: it has threads and hooks of its own. Open it
// once a process; two copies of NIXL or UCX in one process disturb each other.
type Library struct {
	drv  driver
	info Info
}

// Info is what was loaded, for logs and the preflight.
type Info struct {
	Path    string // as the dynamic linker resolved it
	Layout  string // "A" or "B": how the agent configuration lies in memory (spec 1.1)
	Version string // of the C interface, "0.1"; empty before generation 3, which cannot tell
}

// MissingSymbolError is a function that the library does not have.
type MissingSymbolError struct {
	Library, Name string
}

func (e *MissingSymbolError) Error() string { return fmt.Sprintf("%s has no %s", e.Library, e.Name) }

// environment is what the C side must find in its environment before it is loaded. What the operator has set stays.
var environment = []struct{ name, value string }{
	{"UCX_DEBUG_SIGNO", "0"},           // else UCX takes SIGHUP away from Go
	{"UCX_HANDLE_ERRORS", "none"},      // else Go's own fault handling may end in UCX's
	{"UCX_MEM_MMAP_HOOK_MODE", "none"}, // hooks into malloc and mmap: 0.4 s at start, and a leak; host memory needs none
	{"UCX_LOG_FILE", "stderr"},         // UCX's warnings go to stdout by default, where a command's answer may be
}

// Open finds the library, loads it and binds all its functions, or says in one error what was tried and why each failed. A library
// that loads but cannot be used ends the search: a second copy in the same process would be worse than none.
//
// It sets environment variables that UCX reads at load (UCX_DEBUG_SIGNO=0 and others) unless they are set. UCX_TLS and UCX_NET_DEVICES,
// which choose the network, are the operator's.
func Open(o Options) (*Library, error) {
	for _, e := range environment {
		if _, set := os.LookupEnv(e.name); !set {
			if err := os.Setenv(e.name, e.value); err != nil {
				return nil, fmt.Errorf("nixl: %w", err)
			}
		}
	}
	var tried []string
	for _, c := range candidates(o.Path, os.Getenv) {
		drv, info, err := open(c.path)
		if err == nil {
			return &Library{drv: drv, info: info}, nil
		}
		if errors.Is(err, errNoC) {
			return nil, err
		}
		if errors.Is(err, ErrUnsupported) {
			return nil, fmt.Errorf("nixl: %w (from %s; %s=FILE chooses another)", err, c.from, PathVariable)
		}
		tried = append(tried, fmt.Sprintf("%s (from %s): %v", c.path, c.from, err))
	}
	return nil, fmt.Errorf("nixl: %w; %s=FILE names it; tried: %s", ErrNoLibrary, PathVariable, strings.Join(tried, "; "))
}

// Info tells what was loaded.
func (l *Library) Info() Info { return l.info }

// UCX is the version of the UCX that the library uses, such as "1.23.0". It is empty before the first agent, which loads UCX. Peers with
// UCX up to 1.21 and from 1.22 on cannot talk over the loopback device.
func (l *Library) UCX() string { return ucxVersion() }

// NewAgent makes an agent: one identity with its own connections, which its peers know by metadata. Its name is the role with random
// letters, so a process that starts again is never taken for the one before. The first agent of a process takes some 50 ms, later ones 20.
// The caller owns the agent and closes it.
func (l *Library) NewAgent(ctx context.Context, role string) (*Agent, error) {
	var id [16]byte
	rand.Read(id[:]) // does not fail: crypto/rand ends the process instead
	return l.NewAgentNamed(ctx, role+"-"+hex.EncodeToString(id[:]))
}
