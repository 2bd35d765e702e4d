package scenario

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

// samples are a metrics page: values by series, as they are written.
type samples map[string]float64

func parseMetrics(t testing.TB, page []byte) samples {
	t.Helper()
	s := samples{}
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		must(t, err)
		s[line[:at]] = v
	}
	return s
}

// sum adds up all series of a family that have the labels, each written as name="value".
func (s samples) sum(family string, labels ...string) (total float64) {
	found := false
	for series, v := range s {
		if name, _, _ := strings.Cut(series, "{"); name != family {
			continue
		}
		found = true
		all := true
		for _, l := range labels {
			all = all && (strings.Contains(series, "{"+l) || strings.Contains(series, ","+l))
		}
		if all {
			total += v
		}
	}
	if !found {
		return math.NaN() // equal to nothing
	}
	return total
}

// outcomes are the requests that have ended, by outcome.
func (s samples) outcomes() map[string]int {
	out := map[string]int{}
	for series, v := range s {
		if name, rest, _ := strings.Cut(series, "{"); name == "pd_router_requests_total" && v > 0 {
			_, after, _ := strings.Cut(rest, `outcome="`)
			outcome, _, _ := strings.Cut(after, `"`)
			out[outcome] += int(v)
		}
	}
	return out
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}
