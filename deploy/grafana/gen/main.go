// Command gen writes the Grafana dashboards of the router, which are committed beside it so that nobody needs Go to use
// them.
//
//	go run .           writes ../*.json
//	go run . -check    fails when a file is not as it would be written, or breaks a rule of lint.go
//
// It is a module of its own: the library that it uses is no part of the router.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// folder is where the dashboards lie, seen from here.
const folder = ".."

// file is one dashboard.
type file struct {
	name  string
	build func() *dashboard.DashboardBuilder
}

var files = []file{
	{"operate.json", operate},
	{"slots-and-kv.json", slotsAndKV},
	{"clients-and-tokens.json", clientsAndTokens},
	{"benchmark-run.json", benchmarkRun},
}

// content is the file as it should be.
func (f file) content() ([]byte, error) {
	d, err := f.build().Build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(d); err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return out.Bytes(), errors.Join(lint(f.name, out.Bytes())...)
}

// run writes or checks all files.
func run(check bool) error {
	var all []error
	for _, f := range files {
		want, err := f.content()
		if err != nil {
			all = append(all, err)
			continue
		}
		path := filepath.Join(folder, f.name)
		if !check {
			all = append(all, os.WriteFile(path, want, 0o644))
			continue
		}
		if got, err := os.ReadFile(path); err != nil {
			all = append(all, err)
		} else if !bytes.Equal(got, want) {
			all = append(all, fmt.Errorf("%s: not as the generator writes it: run `go run .` in deploy/grafana/gen, and change dashboards there", f.name))
		}
	}
	return errors.Join(all...)
}

func main() {
	check := flag.Bool("check", false, "compare the files with what would be written, and write nothing")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
