package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const docsPath = "../../docs/config.md"

// The table in docs/config.md is this package's table: go test ./internal/config -update writes it.
func TestDocsAreTheTable(t *testing.T) {
	want := markdown()
	if *update {
		require.NoError(t, os.MkdirAll("../../docs", 0o755))
		require.NoError(t, os.WriteFile(docsPath, []byte(want), 0o644))
	}
	got, err := os.ReadFile(docsPath)
	require.NoError(t, err)
	assert.Equal(t, want, string(got), "run go test ./internal/config -update")
}

func markdown() string {
	var b strings.Builder
	b.WriteString(`# Settings

Written by ` + "`go test ./internal/config -update`" + ` from the table in internal/config; do not edit.

A setting comes from its flag, else from the environment, else from the file given by ` + "`--config`" + ` (YAML, TOML or
JSON; its keys are the flags without dashes in front), else it has its default. Lists are not merged.

* A **duration** is a number of seconds (` + "`1800`, `0.5`" + `) or a Go duration (` + "`1m30s`" + `). A **size** is a number of bytes or of KiB,
  MiB, GiB (` + "`64MiB`" + `).
* ` + "`--decode a b c`, `--decode a --decode b` and `--decode=a`" + ` all work; in the environment blanks divide nodes, in the file they are a list.
* An empty variable is the same as none, and so is an empty value of a setting without default. ` + "`PD_ROUTER_PORT=tcp://...`" + `, which
  Kubernetes sets for a Service called pd-router, is ignored.
* A value that cannot be used, an unknown flag and an unknown key in the file end the program with exit code 2 and one line that says what
  is wanted. Exit code 1 is a failure later on, 0 a regular end.

A file for ` + "`pd-router --config router.yaml`" + `:

` + "```yaml" + `
vllm-url: http://10.0.0.1:8000
decode: [10.0.0.2:5556:5557, 10.0.0.3:5556:5557]
model-path: /models/GLM-5-FP8
parser: glm47
queue-timeout: 30m
` + "```" + `
`)
	group := ""
	for _, f := range fields {
		if f.group != group {
			group = f.group
			fmt.Fprintf(&b, "\n## %s\n\n| flag | value | default | meaning | environment |\n|---|---|---|---|---|\n", group)
		}
		def := "-"
		if f.def != "" {
			def = "`" + f.def + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s | `%s` |\n", f.name, strings.ReplaceAll(f.kind, "|", `\|`), def, f.help, f.env())
	}
	return b.String()
}

// A field of Config says in its comment what its flag says in its help, and every field has its flag.
func TestCommentsOfConfigAreTheHelp(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	require.NoError(t, err)
	comments := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Config" {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			comments[strings.ToLower(f.Names[0].Name)] = strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
		return false
	})
	helps := map[string]string{}
	for _, f := range fields {
		helps[strings.ReplaceAll(f.name, "-", "")] = f.help
	}
	assert.Equal(t, helps, comments)
}

func TestHelpIsFitForPrinting(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range fields {
		assert.NotContains(t, f.help, "`", f.name) // pflag would take it for the name of the value
		assert.True(t, strings.HasSuffix(f.help, "."), f.name)
		assert.False(t, seen[f.name], f.name)
		seen[f.name] = true
		assert.Regexp(t, `^PD_ROUTER_[A-Z0-9_]+$`, f.env())
	}
	assert.Equal(t, configFlag, fields[len(fields)-1].name, "Load reads the file first, so its row is the last")
}
