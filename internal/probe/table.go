package probe

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// tableWords are the statuses as a table shows them: what went wrong stands out.
var tableWords = [numStatuses]string{OK: "ok", Warn: "warn", Fail: "FAIL", Unchecked: "not checked"}

// Table writes the report for people: a line for each check, then one that sums up.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Checks {
		text := c.Detail
		if c.TookMS >= 1000 {
			text += fmt.Sprintf(" (%.1f s)", c.TookMS/1000)
		}
		if c.Advice != "" {
			text += " -> " + c.Advice
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", tableWords[c.Status], c.Node, c.Check, text)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", r.Summary())
	return err
}

// Summary is the report in one line.
func (r *Report) Summary() string {
	parts := []string{fmt.Sprintf("%d ok", r.Count(OK))}
	for _, s := range []Status{Warn, Fail, Unchecked} {
		if n := r.Count(s); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, map[Status]string{Warn: "with a warning", Fail: "failed", Unchecked: "not checked"}[s]))
		}
	}
	took := time.Duration(r.TookMS * float64(time.Millisecond)).Round(time.Millisecond)
	return fmt.Sprintf("%s, in %v", strings.Join(parts, ", "), took)
}
