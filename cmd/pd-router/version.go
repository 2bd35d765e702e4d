package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is the one version of the program: of --version, of the metrics and of a release.
const version = "0.1.0"

// versionLine is all that --version prints. Launchers record it, so it holds nothing that a rebuild would change.
const versionLine = "pd-router " + version + "\n"

// revision is the commit that the program was built from, for the metrics page; "" when the build did not look.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return revisionIn(info.Settings)
}

func revisionIn(settings []debug.BuildSetting) string {
	var commit, changed string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + changed
}

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
