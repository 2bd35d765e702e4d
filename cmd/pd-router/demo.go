package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"pd-router/internal/config"
	"pd-router/internal/demo"
	"pd-router/internal/sim"
)

func newDemoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Play a burst of 27 agent requests on one simulated slot, without a queue and with one",
		Args:  noWords,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), cmd.OutOrStdout()) },
	}
}

// runDemo plays the session twice, each time with a router of its own in front of the same two nodes.
func runDemo(ctx context.Context, out io.Writer) error {
	model, err := os.MkdirTemp("", "pd-router-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(model)
	if err := sim.WriteTokenizer(model); err != nil {
		return err
	}
	n, err := startNodes(ctx)
	if err != nil {
		return err
	}
	defer n.stop()
	fmt.Fprintf(out, "One prefill node (%s) and one decode node with one slot (%s), simulated.\n", n.prefill.URL(), n.decode.Node())
	fmt.Fprint(out, "A session of 27 requests: a main agent whose sub-agents run side by side. Its client does not retry.\n\n")
	var cols []demo.Column
	for _, wait := range []string{"0", "1800"} {
		report, err := n.play(ctx, model, wait, out)
		if err != nil {
			return err
		}
		cols = append(cols, demo.Column{Title: "--queue-timeout " + wait, Report: report})
	}
	fmt.Fprintln(out)
	if err := demo.Table(out, cols...); err != nil {
		return err
	}
	queued := cols[1].Report
	fmt.Fprintf(out, "\nWithout a queue %d of 27 requests were lost; with one %d of 27 were served.\n", cols[0].Report.Refused(), queued.Served())
	if queued.Served() != len(queued.Results) {
		return fmt.Errorf("a request was lost in spite of the queue: %s", queued.Failure())
	}
	return nil
}

// demoNodes are the two simulated nodes.
type demoNodes struct {
	prefill *sim.Prefill
	decode  *sim.Decode
	stop    func()
}

func startNodes(ctx context.Context) (*demoNodes, error) {
	po := sim.PrefillOptions{Profile: "tiny", TokensPerSecond: 30000, Latency: 20 * time.Millisecond, CachedShare: -1, Pipeline: true, Jitter: 0.1}
	do := sim.DecodeOptions{Profile: "tiny", TokensPerSecond: 500, Poll: 20 * time.Millisecond, MaxSeqLen: 32768, Jitter: 0.1}
	n := &demoNodes{}
	var err error
	if n.prefill, err = sim.NewPrefill(po); err != nil {
		return nil, err
	}
	if n.decode, err = sim.NewDecode(do); err != nil {
		return nil, err
	}
	if err := errors.Join(n.prefill.Listen(), n.decode.Listen()); err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return n.prefill.Serve(serving) })
	g.Go(func() error { return n.decode.Serve(serving) })
	n.stop = func() {
		stop()
		_ = g.Wait()
	}
	return n, nil
}

// play runs the session through a router that holds requests for wait seconds.
func (n *demoNodes) play(ctx context.Context, model, wait string, out io.Writer) (*demo.Report, error) {
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	flags := config.Declare(fs)
	if err := fs.Parse([]string{"--vllm-url", n.prefill.URL(), "--decode", n.decode.Node(), "--host", "127.0.0.1",
		"--port", "0", "--model-path", model, "--parser", "none", "--queue-timeout", wait}); err != nil {
		return nil, err
	}
	cfg, err := flags.Load(func(string) (string, bool) { return "", false })
	if err != nil {
		return nil, err
	}
	p, err := build(cfg, nil, zap.NewNop())
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", cfg.Addr())
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return p.run(running, cfg, ln, zap.NewNop()) })
	var report *demo.Report
	select {
	case <-p.router.Ready():
		before := n.decode.Counters().BusySeconds
		live := isTerminal(out)
		report = demo.Run(ctx, "http://"+ln.Addr().String(), func(done, of int) {
			if live {
				fmt.Fprint(out, "\r")
			} else if done < of {
				return
			}
			fmt.Fprintf(out, "--queue-timeout %-4s  %2d of %d requests ended", wait, done, of)
		})
		report.Busy = time.Duration((n.decode.Counters().BusySeconds - before) * float64(time.Second))
		fmt.Fprintln(out)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	stop()
	return report, errors.Join(err, g.Wait())
}
