package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Other is the label value of what is in no closed set (invariant 1).
const Other = "other"

// counters is a counter for each of a closed set, found without allocation.
type counters struct {
	by    map[string]prometheus.Counter
	other prometheus.Counter
}

func newCounters(reg prometheus.Registerer, name, help, label string, values []string) counters {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	reg.MustRegister(vec)
	return curry(values, func(v string) prometheus.Counter { return vec.WithLabelValues(v) })
}

// curry resolves every value once.
func curry(values []string, at func(string) prometheus.Counter) counters {
	c := counters{by: make(map[string]prometheus.Counter, len(values)), other: at(Other)}
	for _, v := range values {
		c.by[v] = at(v)
	}
	return c
}

func (c *counters) get(value string) prometheus.Counter {
	if found := c.by[value]; found != nil {
		return found
	}
	return c.other
}

// codes are the statuses that get a series of their own; the others count by class.
var codes = []int{200, 400, 401, 404, 405, 408, 413, 415, 422, 429, 499, 500, 501, 502, 503, 504}

// codeNames are the values of the label code: those of codes, then the classes.
var codeNames = func() []string {
	var names []string
	for _, c := range codes {
		names = append(names, string([]byte{'0' + byte(c/100), '0' + byte(c/10%10), '0' + byte(c%10)}))
	}
	return append(names, "2xx", "3xx", "4xx", "5xx", Other)
}()

// codeIndex is the place of a status in codeNames.
func codeIndex(status int) int {
	if i, ok := slices.BinarySearch(codes, status); ok {
		return i
	}
	if class := status / 100; class >= 2 && class <= 5 {
		return len(codes) + class - 2
	}
	return len(codeNames) - 1
}
