package server

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher learns from the kernel which clients have closed their side. It has an epoll of its own, as nothing
// reads from a connection while its request runs; that epoll is itself polled by the runtime, so that waiting
// costs no thread.
type watcher struct {
	epoll *os.File
}

func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else the runtime would not poll it
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &watcher{epoll: os.NewFile(uintptr(fd), "hang-up watcher")}, nil
}

// add watches sc under id for the rest of its life: a closed descriptor leaves the epoll by itself. A descriptor that
// cannot be watched is served without.
func (w *watcher) add(sc syscall.Conn, id uint64) {
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = w.control(func(epfd int) error {
		return raw.Control(func(fd uintptr) {
			event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: int32(id), Pad: int32(id >> 32)}
			_ = unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, int(fd), &event)
		})
	})
}

func (w *watcher) control(f func(epfd int) error) error {
	raw, err := w.epoll.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { err = f(int(fd)) })
}

// run calls gone for each connection whose client has left, until close.
func (w *watcher) run(gone func(id uint64)) {
	raw, err := w.epoll.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:n] {
			gone(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32)
		}
	}
}

func (w *watcher) close() { _ = w.epoll.Close() }
