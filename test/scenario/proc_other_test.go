//go:build !linux

package scenario

import (
	"syscall"
	"testing"
)

func attributes() *syscall.SysProcAttr { return nil }

// Without /proc these things are not measured: nothing is ever too many.

func resident(testing.TB, int) int64 { return 0 }

func descriptors(testing.TB, int) int { return 0 }

func sockets(testing.TB, string) (server, client int) { return 0, 0 }
