package nixl

import (
	"fmt"
	"math"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HugePage is the size of a huge page. From one on NewMemory asks for them: fewer pages, fewer keys in the network card.
const HugePage = 2 << 20

// Memory is a piece of memory that the library may be shown: mapped from the system, page aligned, never moved, never Go's heap. The
// caller owns it and closes it. It may outlive an agent and be registered with another one, which is how bytes that a transfer was
// still going to are made safe: close the agent, keep the memory.
type Memory struct {
	mu    sync.Mutex
	b     []byte // nil once closed
	users int    // registrations
}

// NewMemory maps n zero bytes. With pin it also locks them into RAM, as a card that reads them needs it; the limit is "ulimit -l".
func NewMemory(n int, pin bool) (*Memory, error) {
	if n <= 0 {
		return nil, fmt.Errorf("nixl: memory of %d bytes: %w", n, ErrRange)
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("nixl: map %d bytes: %w", n, os.NewSyscallError("mmap", err))
	}
	if n >= HugePage {
		adviseHuge(b)
	}
	if pin {
		if err := unix.Mlock(b); err != nil {
			_ = unix.Munmap(b) // the first error is the one to tell
			return nil, fmt.Errorf("nixl: lock %d bytes into memory (see ulimit -l): %w", n, os.NewSyscallError("mlock", err))
		}
	}
	return &Memory{b: b}, nil
}

// NewHugeMemory maps n zero bytes, rounded up, in huge pages that the system has reserved for whoever asks for them (vm.nr_hugepages), and
// fails where there are too few. Such pages stay in RAM.
func NewHugeMemory(n int) (*Memory, error) {
	if n <= 0 || n > math.MaxInt-HugePage {
		return nil, fmt.Errorf("nixl: memory of %d bytes: %w", n, ErrRange)
	}
	n = (n + HugePage - 1) / HugePage * HugePage
	b, err := mapHuge(n)
	if err != nil {
		return nil, fmt.Errorf("nixl: map %d huge pages of 2 MiB (has vm.nr_hugepages as many to spare?): %w", n/HugePage, err)
	}
	return &Memory{b: b}, nil
}

// Bytes is all of the memory. It must not be touched after Close.
func (m *Memory) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.b
}

// Close gives the memory back to the system. While it is registered with an agent it fails with ErrBusy and changes nothing.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users > 0 {
		return fmt.Errorf("nixl: unmap memory: %w", ErrBusy)
	}
	if m.b == nil {
		return nil
	}
	b := m.b
	m.b = nil
	return os.NewSyscallError("munmap", unix.Munmap(b))
}

// hold counts a registration of [off, off+n) and returns its address.
func (m *Memory) hold(off, n int) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.b == nil:
		return 0, fmt.Errorf("nixl: register memory: %w", ErrClosed)
	case off < 0 || n <= 0 || off > len(m.b) || n > len(m.b)-off || off%os.Getpagesize() != 0:
		return 0, fmt.Errorf("nixl: register %d bytes at %d of %d (on a page): %w", n, off, len(m.b), ErrRange)
	}
	m.users++
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.b)))) + uint64(off), nil
}

func (m *Memory) letGo() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.users--
}
