// Command deploy checks what the chart renders for the Prometheus operator, with the operator's own types: no field that it
// does not know, and in PrometheusRule the very rules of the file that is its argument. The manifests come on stdin.
package main

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := check(os.Stdin, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(manifests io.Reader, rulesFile string) error {
	all, err := io.ReadAll(manifests)
	if err != nil {
		return err
	}
	file, err := os.ReadFile(rulesFile)
	if err != nil {
		return err
	}
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(file, &want); err != nil {
		return fmt.Errorf("%s: %w", rulesFile, err)
	}
	var rule monitoring.PrometheusRule
	var monitor monitoring.ServiceMonitor
	for kind, into := range map[string]any{"PrometheusRule": &rule, "ServiceMonitor": &monitor} {
		doc := documentOf(string(all), kind)
		if doc == "" {
			return fmt.Errorf("no %s", kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	if !reflect.DeepEqual(rule.Spec, want) {
		return fmt.Errorf("the PrometheusRule has other rules than %s", rulesFile)
	}
	if len(monitor.Spec.Endpoints) != 1 || monitor.Spec.Endpoints[0].Port != "http" {
		return fmt.Errorf("ServiceMonitor: endpoints %+v; want one, of the port http", monitor.Spec.Endpoints)
	}
	return nil
}

// documentOf gives the YAML document of that kind, or nothing.
func documentOf(manifests, kind string) string {
	for _, doc := range strings.Split("\n"+manifests, "\n---\n") {
		if strings.Contains(doc, "\nkind: "+kind+"\n") {
			return doc
		}
	}
	return ""
}
