package metrics

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// WriteMerged is Write with the families of another page, in the text format, among our own: a family that both have is one block,
// as readers take the last of two for the whole. A foreign family of another type than ours is left out, and so is what would
// repeat one of our series.
func (m *Metrics) WriteMerged(w io.Writer, accept string, page []byte) (contentType string, err error) {
	own, err := m.gather.Gather()
	if err != nil {
		return "", fmt.Errorf("gather metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	foreign, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return "", fmt.Errorf("the other metrics page: %w", err)
	}
	return encode(w, accept, merge(own, foreign))
}

// merge adds foreign families to own; the result is sorted by name.
func merge(own []*dto.MetricFamily, foreign map[string]*dto.MetricFamily) []*dto.MetricFamily {
	for _, f := range own {
		other := foreign[f.GetName()]
		if other == nil {
			continue
		}
		delete(foreign, f.GetName())
		if other.GetType() != f.GetType() {
			continue
		}
		have := map[string]bool{}
		for _, s := range f.GetMetric() {
			have[labelsOf(s)] = true
		}
		for _, s := range other.GetMetric() {
			if !have[labelsOf(s)] {
				f.Metric = append(f.Metric, s)
			}
		}
	}
	for name, f := range foreign {
		if !strings.HasPrefix(name, "dynamo_") { // such a name makes result pipelines take the page for Dynamo's
			own = append(own, f)
		}
	}
	slices.SortFunc(own, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return own
}

// labelsOf is the identity of a series within its family.
func labelsOf(s *dto.Metric) string {
	pairs := make([]string, 0, len(s.GetLabel()))
	for _, l := range s.GetLabel() {
		pairs = append(pairs, l.GetName()+"\xff"+l.GetValue())
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "\xfe")
}
