package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// family is a row of docs/metrics.md.
type family struct {
	kind   string
	labels []string
}

// families reads docs/metrics.md, which the metrics package writes itself.
func families(t *testing.T) map[string]family {
	t.Helper()
	raw, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]family{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(raw), -1) {
		f := family{kind: m[2]}
		if labels := strings.TrimSpace(m[3]); labels != "" {
			f.labels = strings.Split(labels, ", ")
		}
		out[m[1]] = f
	}
	if len(out) < 20 {
		t.Fatalf("docs/metrics.md has only %d metrics", len(out))
	}
	return out
}

// runtime are the families of the Go runtime and of the process that dashboards may use.
var runtime = map[string]family{
	"go_goroutines": {kind: "gauge"}, "process_cpu_seconds_total": {kind: "counter"}, "process_resident_memory_bytes": {kind: "gauge"},
	"process_open_fds": {kind: "gauge"}, "process_max_fds": {kind: "gauge"}, "process_start_time_seconds": {kind: "gauge"},
}

// expressions gives all expressions of all dashboards, those of annotations and variables included, by where they stand.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(folder, f.name))
		if err != nil {
			t.Fatal(err)
		}
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case map[string]any:
				for k, x := range v {
					if s, ok := x.(string); ok && (k == "expr" || k == "query" && strings.Contains(s, "(")) {
						out[f.name] = append(out[f.name], s)
					}
					walk(x)
				}
			case []any:
				for _, x := range v {
					walk(x)
				}
			}
		}
		var d any
		if err := json.Unmarshal(raw, &d); err != nil {
			t.Fatal(err)
		}
		walk(d)
	}
	return out
}

var (
	name    = regexp.MustCompile(`\b(?:pd_router|vllm|go|process)[_:][a-zA-Z0-9_:]+`)
	matcher = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
	grouped = regexp.MustCompile(`\bby \(([^)]*)\)`)
	growing = regexp.MustCompile(`\b(?:rate|increase)\(([a-zA-Z0-9_:]+)`)
)

// lookUp finds the family of a name in an expression, and whether the name is that of something that only grows.
func lookUp(all map[string]family, name string) (base string, f family, grows, ok bool) {
	if f, ok = all[name]; ok {
		return name, f, f.kind == "counter", f.kind != "histogram"
	}
	if f, ok = runtime[name]; ok {
		return name, f, f.kind == "counter", true
	}
	base, suffix := name, ""
	if i := strings.LastIndexByte(name, '_'); i > 0 {
		base, suffix = name[:i], name[i+1:]
	}
	f, ok = all[base]
	if suffix == "bucket" {
		f.labels = append(slices.Clone(f.labels), "le")
	}
	return base, f, true, ok && f.kind == "histogram" && slices.Contains([]string{"bucket", "sum", "count"}, suffix)
}

func TestEveryNameIsExported(t *testing.T) {
	all := families(t)
	for file, exprs := range expressions(t) {
		for _, expr := range exprs {
			known := []string{"job", "instance", "concurrency"}
			for _, n := range name.FindAllString(expr, -1) {
				_, f, _, ok := lookUp(all, n)
				if !ok {
					t.Errorf("%s: no metric %s, in %s", file, n, expr)
				}
				known = append(known, f.labels...)
			}
			for _, m := range selector.FindAllStringSubmatch(expr, -1) {
				_, f, _, _ := lookUp(all, m[1])
				for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
					if l[1] != "job" && !slices.Contains(f.labels, l[1]) {
						t.Errorf("%s: %s has no label %s, in %s", file, m[1], l[1], expr)
					}
				}
			}
			for _, m := range grouped.FindAllStringSubmatch(expr, -1) {
				for _, l := range strings.Split(m[1], ", ") {
					if !slices.Contains(known, l) {
						t.Errorf("%s: nothing has the label %s, in %s", file, l, expr)
					}
				}
			}
			for _, m := range growing.FindAllStringSubmatch(expr, -1) {
				if _, _, grows, _ := lookUp(all, m[1]); !grows {
					t.Errorf("%s: %s is no counter, in %s", file, m[1], expr)
				}
			}
		}
	}
}

func TestEveryFamilyIsShown(t *testing.T) {
	all := families(t)
	shown := map[string]bool{}
	for _, exprs := range expressions(t) {
		for _, expr := range exprs {
			for _, n := range name.FindAllString(expr, -1) {
				base, _, _, _ := lookUp(all, n)
				shown[base] = true
			}
		}
	}
	for n := range all {
		if !shown[n] {
			t.Errorf("%s is on no dashboard", n)
		}
	}
}
