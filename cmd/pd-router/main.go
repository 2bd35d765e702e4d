// Command pd-router is a queueing router in front of a vLLM prefill node and TileRT decode nodes.
//
// This package only wires: each subcommand has a file that says what is built, joined and stopped. Exit codes are 0 for
// a regular end, 1 for a failure, 2 for a command line, variable or file that cannot be used.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"pd-router/internal/config"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitGood    = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := withSignals(context.Background(), func() { os.Exit(exitFailure) })
	code := run(ctx, newRootCommand(serve), os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and gives the exit code. An error becomes one line on stderr, never a usage text: the
// line is what a launcher's log shows, and it must not be scrolled away by flags.
func run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	started, err := execute(ctx, root, args, stdout, stderr)
	if err == nil {
		return exitGood
	}
	fmt.Fprintln(stderr, "pd-router: "+strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
	if bad := (*config.Error)(nil); errors.As(err, &bad) || !started {
		return exitUsage
	}
	return exitFailure
}

// execute tells whether the command's own work began; an error before that is one of usage.
func execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) (started bool, err error) {
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, _, _ := root.Find(args) // a wrong word is root's to refuse, below
	if args, err = config.ExpandArgs(cmd.Flags(), args); err != nil {
		return false, err
	}
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	return started, err
}
