package metrics

import (
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// Write writes the page in the form that accept, the request's Accept header, asks for: Prometheus text, OpenMetrics or,
// for native histograms, protobuf. It returns the page's content type. On an error what was written is of no use.
func (m *Metrics) Write(w io.Writer, accept string) (contentType string, err error) {
	families, err := m.gather.Gather()
	if err != nil {
		return "", fmt.Errorf("gather metrics: %w", err)
	}
	return encode(w, accept, families)
}

// encode writes families in the form that accept asks for.
func encode(w io.Writer, accept string, families []*dto.MetricFamily) (contentType string, err error) {
	header := http.Header{}
	if accept != "" {
		header.Set("Accept", accept)
	}
	format := expfmt.NegotiateAccept(header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	enc := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return "", fmt.Errorf("write metrics: %w", err)
		}
	}
	if end, ok := enc.(expfmt.Closer); ok { // OpenMetrics has an end mark
		if err := end.Close(); err != nil {
			return "", fmt.Errorf("write metrics: %w", err)
		}
	}
	return string(format), nil
}
