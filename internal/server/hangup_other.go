//go:build !linux

package server

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollEvery is how often connections are looked at where the kernel cannot tell of a closed side.
const pollEvery = 100 * time.Millisecond

// watcher peeks at each connection now and then.
type watcher struct {
	mu    sync.Mutex
	conns map[uint64]syscall.RawConn
	done  chan struct{} // closed by close
	once  sync.Once
}

func newWatcher() (*watcher, error) {
	return &watcher{conns: map[uint64]syscall.RawConn{}, done: make(chan struct{})}, nil
}

func (w *watcher) add(sc syscall.Conn, id uint64) {
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	w.mu.Lock()
	w.conns[id] = raw
	w.mu.Unlock()
}

func (w *watcher) run(gone func(id uint64)) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-ticker.C:
		}
		for _, id := range w.left() {
			gone(id)
		}
	}
}

// left takes those out whose client has closed, or whose descriptor is closed.
func (w *watcher) left() (ids []uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, raw := range w.conns {
		open := false
		_ = raw.Control(func(fd uintptr) {
			var b [1]byte
			n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
			open = n > 0 || err == unix.EAGAIN || err == unix.EINTR
		})
		if !open {
			delete(w.conns, id)
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *watcher) close() { w.once.Do(func() { close(w.done) }) }
