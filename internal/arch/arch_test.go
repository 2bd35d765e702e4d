package arch

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRepositoryObeysItsRules holds the whole tree against invariants 1 to 5.
func TestRepositoryObeysItsRules(t *testing.T) {
	pkgs := load(t, root(t))
	if len(pkgs) == 0 {
		t.Fatal("no package found")
	}
	for _, p := range pkgs {
		for _, complaint := range judge(p) {
			t.Error(complaint)
		}
	}
}

// TestEachRuleBites breaks one rule at a time.
func TestEachRuleBites(t *testing.T) {
	const in = "pd-router/internal/"
	for _, tc := range []struct {
		name string
		pkg  pkg
		want string // part of the only complaint; "" for none
	}{
		{"imports go down", pkg{path: in + "router", imports: []string{in + "queue", in + "openai", "context"}}, ""},
		{"a command imports anything", pkg{path: "pd-router/cmd/pd-router", imports: []string{in + "config", in + "server", in + "queue"}}, ""},
		{"config is made of the options below it", pkg{path: in + "config", imports: []string{in + "server", in + "queue"}}, ""},
		{"a form does not import a part", pkg{path: in + "tilert", imports: []string{in + "queue"}}, "imports up: tilert is FORM, queue is PART"},
		{"a part does not import the life", pkg{path: in + "queue", imports: []string{in + "router"}}, "imports up"},
		{"nothing but a command imports config", pkg{path: in + "server", imports: []string{in + "config"}}, "imports up"},
		{"nothing imports a command", pkg{path: in + "server", imports: []string{"pd-router/cmd/pd-router"}}, "imports the program"},
		{"parts do not import each other", pkg{path: in + "engine", imports: []string{in + "nodes"}}, "imports its neighbour nodes"},
		{"a subpackage counts as its parent", pkg{path: in + "engine/tilert", imports: []string{in + "nodes/pool", in + "engine"}}, "imports its neighbour nodes"},
		{"openai imports parser and token", pkg{path: in + "openai", imports: []string{in + "parser", in + "token"}}, ""},
		{"parser does not import token", pkg{path: in + "parser", imports: []string{in + "token"}}, "imports its neighbour token"},
		{"sim does not import the queue", pkg{path: in + "sim", imports: []string{in + "queue"}}, "the other side of the wire"},
		{"what stands at the edge may use its neighbour", pkg{path: in + "server", imports: []string{in + "status"}}, ""},
		{"but not the stand-in nodes", pkg{path: in + "server", imports: []string{in + "sim"}}, "stands in for the nodes"},
		{"the queue knows no metrics library", pkg{path: in + "queue", imports: []string{"github.com/prometheus/client_golang/prometheus"}}, "no metrics library"},
		{"nixl imports C", pkg{path: in + "nixl", imports: []string{"C"}}, ""},
		{"nothing else imports C", pkg{path: in + "staging", imports: []string{"C"}}, "behind one door"},
		{"nodes imports fasthttp", pkg{path: in + "nodes", imports: []string{fasthttpPath}}, ""},
		{"router does not import fasthttp", pkg{path: in + "router", imports: []string{fasthttpPath}}, "only [server sim nodes pd-router/bench/bare] may"},
		{"nor its subpackages", pkg{path: in + "router", imports: []string{fasthttpPath + "/fasthttputil"}}, "only [server sim nodes pd-router/bench/bare] may"},
		{"server uses RequestCtx", pkg{path: in + "server", imports: []string{fasthttpPath}, requestCtx: true}, ""},
		{"nodes does not use RequestCtx", pkg{path: in + "nodes", imports: []string{fasthttpPath}, requestCtx: true}, "dies with the handler"},
		{"a package without a comment", pkg{path: in + "queue", commented: []string{}}, "has 0 package comments"},
		{"a package with two comments", pkg{path: in + "queue", commented: []string{"a.go", "doc.go"}}, "has 2 package comments"},
		{"a package without a layer", pkg{path: in + "helpers"}, "has no layer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.pkg.commented == nil {
				tc.pkg.commented = []string{"doc.go"}
			}
			got := judge(tc.pkg)
			if tc.want == "" && len(got) > 0 {
				t.Errorf("complaints about what is right: %q", got)
			}
			if tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)) {
				t.Errorf("judge = %q, want one complaint with %q", got, tc.want)
			}
		})
	}
}

// TestSourceIsSeenAsItIs checks the reading: build tags do not hide a file, tests are left out, directives are no comment.
func TestSourceIsSeenAsItIs(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"internal/a/doc.go":      "// Package a is first.\npackage a\n",
		"internal/a/other.go":    "//go:build plan9\n\npackage a\n\nimport h \"github.com/valyala/fasthttp\"\n\nvar _ *h.RequestCtx\n",
		"internal/a/directed.go": "//go:debug x=1\npackage a\n",
		"internal/a/a_test.go":   "// Package a again.\npackage a\n\nimport \"pd-router/internal/router\"\n",
		"internal/a/c.go":        "package a\n\n// int x;\nimport \"C\"\n",
		"testdata/b/b.go":        "package b\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pkgs := load(t, dir)
	if len(pkgs) != 1 {
		t.Fatalf("load = %v, want one package", pkgs)
	}
	got := pkgs[0]
	if got.path != "pd-router/internal/a" || !got.requestCtx || !slices.Equal(got.commented, []string{"doc.go"}) ||
		!slices.Equal(got.imports, []string{"C", fasthttpPath}) {
		t.Errorf("load = %+v", got)
	}
}

// TestLayersHaveNames keeps the complaints readable.
func TestLayersHaveNames(t *testing.T) {
	for _, l := range slices.Collect(maps.Values(layers)) {
		if layerNames[l] == "" {
			t.Errorf("layer %d has no name", l)
		}
	}
}
