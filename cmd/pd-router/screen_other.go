//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd

package main

import (
	"context"
	"io"
	"os"
)

// screen is not there on this system: the view is printed once.
type screen struct{}

func isTerminal(io.Writer) bool                      { return false }
func openScreen(io.Writer, *os.File) (*screen, bool) { return nil, false }
func (*screen) close()                               {}
func (*screen) size() (width, height int)            { return 80, 24 }
func (*screen) draw([]string, int, int)              {}
func (*screen) untilKey(ctx context.Context, _ byte) { <-ctx.Done() }
