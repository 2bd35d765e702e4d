package scenario

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// attributes let a process end with the tests, also when those are killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// resident is how much memory a process has, in bytes.
func resident(t testing.TB, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, after, _ := bytes.Cut(status, []byte("VmRSS:"))
	kb, err := strconv.ParseInt(string(bytes.Fields(after)[0]), 10, 64)
	must(t, err)
	return kb << 10
}

// descriptors is how many files and sockets a process has open.
func descriptors(t testing.TB, pid int) int {
	t.Helper()
	list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	must(t, err)
	return len(list)
}

// States of a socket in the kernel's table: those in which somebody holds it open.
const (
	established = "01"
	closeWait   = "08"
)

// sockets counts the connections to a port that are held open, at either end.
func sockets(t testing.TB, hostPort string) (server, client int) {
	t.Helper()
	port, err := strconv.Atoi(hostPort[strings.LastIndexByte(hostPort, ':')+1:])
	must(t, err)
	suffix := fmt.Sprintf(":%04X", port)
	table, err := os.ReadFile("/proc/net/tcp")
	must(t, err)
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line) // number, local, remote, state, …
		if len(f) < 4 || f[3] != established && f[3] != closeWait {
			continue
		}
		if strings.HasSuffix(f[1], suffix) {
			server++
		}
		if strings.HasSuffix(f[2], suffix) {
			client++
		}
	}
	return server, client
}
