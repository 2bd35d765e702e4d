package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"pd-router/internal/config"
	"pd-router/internal/parser"
)

// The words of --parser are those of the parsers that there are.
func TestEveryParserCanBeChosen(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Declare(flags)
	words := strings.Split(flags.Lookup("parser").Value.Type(), "|")
	require.ElementsMatch(t, parser.Names(), words)
}
