package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// version is the one version of the program: of --version, of the metrics and of a release.
const version = "0.1.0"

// versionLine is all that --version prints. Launchers record it, so it holds nothing that a rebuild would change.
const versionLine = "pd-router " + version + "\n"

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionLine)
			return err
		},
	}
}
