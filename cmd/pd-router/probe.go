package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pd-router/internal/config"
	"pd-router/internal/nixl"
	"pd-router/internal/nodes"
	"pd-router/internal/probe"
)

// longestTokenCall bounds the one-token call: vLLM may be computing long prompts of others first.
const longestTokenCall = time.Minute

// keyVariable is where vLLM's own server takes its API key from.
const keyVariable = "VLLM_API_KEY"

// newProbeCommand looks at all nodes once. It takes the flags of serve, so that a launcher's command line can be tried with one word more.
func newProbeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "probe", Short: "Look at all nodes once and say what is wrong", Args: noWords,
		Long: `Look at the prefill node and at every decode node once, compare what they tell, and say of each thing that requests
rely on whether it holds. Nothing is written to a node: hellos and pages are read, and vLLM makes one token.

It takes the flags, variables and file of serve; what is not listed here is accepted and has no effect. ` + keyVariable + ` in the
environment is sent to vLLM. A check may take as long as --connect-timeout, the one-token call a minute. The exit code is 0 when no check failed, 1 when one did.`,
		Example: `  pd-router probe --vllm-url http://10.0.0.1:8000 --decode 10.0.0.2:5556:5557
  pd-router probe --vllm-url http://10.0.0.1:8000 --decode a:5556:5557 b:5556:5557 --nixl --json`,
	}
	asJSON := cmd.Flags().Bool("json", false, "Print the report as JSON, as docs/probe.md describes it.")
	withNIXL := cmd.Flags().Bool("nixl", false, "Have NIXL on this host take each decode node as a peer, as the prefill node will. Of use on the prefill node's host.")
	flags := config.Declare(cmd.Flags())
	used := []string{"json", "nixl", "vllm-url", "decode", "connect-timeout", "nixl-library", "config"}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(used, f.Name) })
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := flags.LoadNodes(os.LookupEnv)
		if err != nil {
			return err
		}
		return runProbe(cmd, cfg, *asJSON, *withNIXL)
	}
	return cmd
}

func runProbe(cmd *cobra.Command, cfg config.Config, asJSON, withNIXL bool) error {
	o := probeOptions(cfg)
	o.Progress = func(node, check string, since time.Duration) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s %s: no answer for %v\n", node, check, since.Round(time.Second))
	}
	if withNIXL {
		peers := nixlPeers{library: cfg.NIXLLibrary}
		defer peers.close()
		o.Connect = peers.connect
	}
	r := probe.Run(cmd.Context(), targets(cfg), o)
	if err := printReport(cmd.OutOrStdout(), &r, asJSON); err != nil {
		return err
	}
	if err := context.Cause(cmd.Context()); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	if !r.OK {
		return fmt.Errorf("probe: %d of %d checks failed", r.Count(probe.Fail), len(r.Checks))
	}
	return nil
}

func printReport(w io.Writer, r *probe.Report, asJSON bool) error {
	if !asJSON {
		return r.Table(w)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func targets(cfg config.Config) probe.Targets {
	t := probe.Targets{VLLM: cfg.VLLMURL}
	for _, n := range cfg.Decode {
		t.Decode = append(t.Decode, nodes.Address{Host: n.Host, CtrlPort: n.Ctrl, HTTPPort: n.HTTP})
	}
	return t
}

func probeOptions(cfg config.Config) probe.Options {
	return probe.Options{Limit: cfg.ConnectTimeout, TokenLimit: min(cfg.PrefillTimeout, longestTokenCall), APIKey: os.Getenv(keyVariable)}
}

// nixlPeers connects to nodes from one agent, which is made for the first of them.
type nixlPeers struct {
	library string // of --nixl-library

	once  sync.Once
	agent *nixl.Agent
	err   error
}

func (p *nixlPeers) connect(ctx context.Context, metadata []byte) error {
	p.once.Do(func() {
		var lib *nixl.Library
		if lib, p.err = nixl.Open(nixl.Options{Path: p.library}); p.err == nil {
			p.agent, p.err = lib.NewAgent(ctx, "probe")
		}
	})
	if p.err != nil {
		return p.err
	}
	_, err := p.agent.AddPeer(ctx, metadata)
	return err
}

// close gives up the agent and with it the peers. Its errors concern nobody any more.
func (p *nixlPeers) close() {
	if p.agent != nil {
		_ = p.agent.Close()
	}
}
