package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesAreAsTheGeneratorWritesThem(t *testing.T) {
	if err := run(true); err != nil {
		t.Error(err)
	}
	found, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(found) != len(files) {
		t.Errorf("%d dashboards lie in %s, the generator writes %d (%v)", len(found), folder, len(files), err)
	}
}

func TestLintFinds(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(folder, files[0].name))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, old, new, want string }{
		{"an unknown field of the dashboard", `"schemaVersion"`, `"schema": 1, "schemaVersion"`, "schema"},
		{"an unknown field of a panel", `"transparent"`, `"transparency": 1, "transparent"`, "transparency"},
		{"an unknown option of a panel", `"graphMode"`, `"graphModus": 1, "graphMode"`, "graphModus"},
		{"an unknown field of a query", `"instant"`, `"instantly": 1, "instant"`, "instantly"},
		{"a description that says nothing", `"description": "Whether the vLLM prefill node answers.`, `"description": "Prefill.", "pluginVersion": "`, "wants a description"},
		{"a panel of a type whose options are not checked", `"type": "stat"`, `"type": "gauge"`, "type gauge"},
		{"a panel outside of the columns", `"x": 21`, `"x": 22`, "leaves the 24 columns"},
		{"a panel on another one", `"x": 21`, `"x": 20`, "lies on another panel"},
		{"a hole in a line", `"w": 3`, `"w": 2`, "columns wide"},
		{"a panel without unit", `"unit": "reqps"`, `"unit": ""`, "wants a unit"},
		{"a refId twice", `"refId": "B"`, `"refId": "A"`, "refId"},
		{"a query without legend", `"legendFormat": "{{outcome}}"`, `"legendFormat": ""`, "wants a legend"},
		{"a data source of one installation", `"uid": "${datasource}"`, `"uid": "abc123"`, "variable datasource"},
		{"a title twice", `"title": "Memory"`, `"title": "CPU"`, "used twice"},
		{"a fixed window", `[$__rate_interval]`, `[5m]`, "does not follow the resolution"},
		{"a selector of any job", `pd_router_prefill_up{job=~\"$job\"}`, `pd_router_prefill_up{}`, "of any job"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			broken := strings.Replace(string(raw), tc.old, tc.new, 1)
			if broken == string(raw) {
				t.Fatalf("the dashboard has no %s", tc.old)
			}
			if !json.Valid([]byte(broken)) {
				t.Fatal("the test breaks the JSON")
			}
			for _, err := range lint("broken", []byte(broken)) {
				if strings.Contains(err.Error(), tc.want) {
					return
				}
			}
			t.Errorf("lint found %v, not %q", lint("broken", []byte(broken)), tc.want)
		})
	}
	if errs := lint("whole", raw); len(errs) != 0 {
		t.Errorf("lint of the whole file: %v", errs)
	}
}
