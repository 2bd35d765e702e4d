package main

import (
	"os"
	"strconv"

	"pd-router/internal/config"

	"github.com/spf13/cobra"
)

const (
	short = "Queueing router for vLLM prefill and TileRT decode nodes"
	long  = short + `.

A request waits until a decode slot is free, is prefilled by vLLM and decoded by TileRT.
Every flag can also be set in the environment (--queue-timeout is PD_ROUTER_QUEUE_TIMEOUT)
and in the file given by --config. Without a subcommand pd-router serves.`
	example = `  pd-router --vllm-url http://10.0.0.1:8000 --decode 10.0.0.2:5556:5557 --model-path /models/GLM-5-FP8
  pd-router --vllm-url http://10.0.0.1:8000 --decode a:5556:5557 b:5556:5557 --parser none --queue-timeout 1800`
)

// serveFunc runs the router until its context ends.
type serveFunc func(cmd *cobra.Command, cfg config.Config) error

// newRootCommand is the whole command tree. The root serves too, as launchers begin with flags and not with a word.
func newRootCommand(serve serveFunc) *cobra.Command {
	root := serving(serve, &cobra.Command{Use: "pd-router", Short: short, Long: long, Example: example, Version: version})
	root.SetVersionTemplate(versionLine)
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.DisableSuggestions = true // they take further lines
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return config.FlagError(err) })
	root.AddCommand(
		serving(serve, &cobra.Command{Use: "serve", Short: "Serve, as without a subcommand", Long: long}),
		newSimCommand(),
		newDemoCommand(),
		newProbeCommand(),
		newTopCommand(),
		newVersionCommand(),
	)
	return root
}

// serving makes cmd take every setting and serve with them.
func serving(serve serveFunc, cmd *cobra.Command) *cobra.Command {
	flags := config.Declare(cmd.Flags())
	cmd.Args = noWords
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := flags.Load(os.LookupEnv)
		if err != nil {
			return err
		}
		return serve(cmd, cfg)
	}
	return cmd
}

// noWords refuses arguments that belong to no flag.
func noWords(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &config.Error{Setting: strconv.Quote(args[0]), Text: "neither a command nor the value of a flag; --help lists both"}
}
