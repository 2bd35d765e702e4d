package demo

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"
)

// Column is one run in the table.
type Column struct {
	Title  string
	Report *Report
}

// Table writes the runs side by side.
func Table(w io.Writer, cols ...Column) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(name string, cell func(*Report) string) {
		fmt.Fprintf(t, "%s\t", name)
		for _, c := range cols {
			fmt.Fprintf(t, "%s\t", cell(c.Report))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprint(t, "\t")
	for _, c := range cols {
		fmt.Fprintf(t, "%s\t", c.Title)
	}
	fmt.Fprintln(t)
	row("requests", func(r *Report) string { return fmt.Sprint(len(r.Results)) })
	row("served", func(r *Report) string { return fmt.Sprint(r.Served()) })
	row("refused with 429", func(r *Report) string { return fmt.Sprint(r.Refused()) })
	for _, q := range []struct {
		name string
		of   func(Result) time.Duration
	}{
		{"wait for a slot", func(x Result) time.Duration { return x.Wait }},
		{"time to first token", func(x Result) time.Duration { return x.TTFT }},
		{"end to end", func(x Result) time.Duration { return x.Total }},
	} {
		row(q.name+", p50", func(r *Report) string { return seconds(r.quantile(0.5, q.of)) })
		row(q.name+", max", func(r *Report) string { return seconds(r.quantile(1, q.of)) })
	}
	row("whole run", func(r *Report) string { return seconds(r.Wall) })
	row("slot in use", func(r *Report) string { return fmt.Sprintf("%.0f %%", 100*r.Busy.Seconds()/r.Wall.Seconds()) })
	return t.Flush()
}

// quantile of a time over the served requests.
func (r *Report) quantile(q float64, of func(Result) time.Duration) time.Duration {
	var all []time.Duration
	for _, x := range r.Results {
		if x.Status == http.StatusOK && x.Err == "" {
			all = append(all, of(x))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
