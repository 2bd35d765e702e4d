package main

import (
	"fmt"

	"pd-router/internal/config"
	"pd-router/internal/sim"

	"github.com/spf13/cobra"
)

// newSimCommand holds the simulated nodes, for trying the router out and for tests without cards.
func newSimCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sim", Short: "Simulate a node that the router works with", Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // without one cobra takes any word for a wish for help
	}
	cmd.AddCommand(newSimPrefillCommand(), newSimDecodeCommand(), newSimTokenizerCommand())
	return cmd
}

func newSimPrefillCommand() *cobra.Command {
	o := sim.DefaultPrefillOptions()
	cmd := &cobra.Command{Use: "prefill", Short: "Simulate a vLLM prefill node", Args: noWords}
	o.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		node, err := sim.NewPrefill(o)
		if err != nil {
			return err
		}
		node.Tell(func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) })
		if err := node.Listen(); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "prefill node at %s, KV by %s\n", node.URL(), node.Transport())
		return node.Serve(cmd.Context()) // which the first signal ends
	}
	return cmd
}

func newSimDecodeCommand() *cobra.Command {
	o := sim.DefaultDecodeOptions()
	cmd := &cobra.Command{Use: "decode", Short: "Simulate a TileRT decode node", Args: noWords}
	o.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		node, err := sim.NewDecode(o)
		if err != nil {
			return err
		}
		node.Tell(func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) })
		if err := node.Listen(); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "decode node %s (host:ctrl_port:http_port), http://%s, KV by %s\n", node.Node(), node.HTTPAddr(), node.Transport())
		return node.Serve(cmd.Context()) // which the first signal ends
	}
	return cmd
}

// oneFolder is the argument of the tokenizer command.
func oneFolder(_ *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return &config.Error{Setting: "sim tokenizer", Text: "want one folder to write to, such as /tmp/model"}
}

func newSimTokenizerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "tokenizer FOLDER", Short: "Write the simulated model's tokenizer as a folder for --model-path", Args: oneFolder,
		Example: "  pd-router sim tokenizer /tmp/model",
		RunE:    func(_ *cobra.Command, args []string) error { return sim.WriteTokenizer(args[0]) },
	}
}
