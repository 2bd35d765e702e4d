package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// row is one quantity: a figure of each repeat for each target.
type row struct {
	name    string
	format  string // of a figure, with its unit
	targets []string
	figures map[string][]float64
}

func newRow(name, format string) *row {
	return &row{name: name, format: format, figures: map[string][]float64{}}
}

func (r *row) add(target string, v float64) {
	if _, known := r.figures[target]; !known {
		r.targets = append(r.targets, target)
	}
	r.figures[target] = append(r.figures[target], v)
}

// String is the median of each target, and how the router stands to the others: the median of the ratios of each repeat.
func (r *row) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-34s", r.name)
	for _, t := range r.targets {
		fmt.Fprintf(&out, "  %s "+r.format, t, median(r.figures[t]))
	}
	ours := r.figures[router]
	for _, t := range r.targets {
		if theirs := r.figures[t]; t != router && t != direct && len(theirs) == len(ours) {
			ratios := make([]float64, len(ours))
			for i := range ours {
				ratios[i] = ours[i] / theirs[i]
			}
			slices.Sort(ratios)
			fmt.Fprintf(&out, "\n%34s  /%s %.2f (%.2f to %.2f)", "", t, median(ratios), ratios[0], ratios[len(ratios)-1])
		}
	}
	return out.String()
}

func median[T cmp.Ordered](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
