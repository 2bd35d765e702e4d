package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"pd-router/internal/staging"
	"pd-router/internal/status"
)

// view is how much room there is.
type view struct {
	width, height int // 0: no bound
	colour        bool
}

var plainView = view{}

// pastColumns is how many columns show a slot's last five minutes.
const pastColumns = 60

// phaseLetters show the past of a slot: what took most of a column.
const phaseLetters = "PKDSx"

// topView are the lines of a snapshot. What does not fit the height is left out of the long lists, not of the rest.
func topView(s status.Snapshot, v view) []string {
	if s.Time == "" {
		return []string{"waiting for the first answer"}
	}
	out := head(s, v)
	out = append(out, "", v.bold(fmt.Sprintf("%-28s %-8s %9s %8s %8s %6s  last 5 min (P prefill, K KV wait, D decode, S settle, x down, . free)",
		"SLOT", "PHASE", "FOR", "TOKENS", "TOK/S", "BUSY")))
	for i := range s.Slots {
		out = append(out, slotLine(&s.Slots[i], v))
	}
	room := len(s.Line.First) + len(s.Recent)
	if v.height > 0 {
		room = max(0, v.height-len(out)-5) // two headings with a blank line above, and a hint
	}
	waiters := min(len(s.Line.First), (room+1)/2)
	recent := min(len(s.Recent), room-waiters)
	waiters = min(len(s.Line.First), room-recent)
	out = append(out, "", v.bold(fmt.Sprintf("%-8s %10s %10s %12s", "LINE", "WAITED", "BODY", "STARTS IN")))
	for _, w := range s.Line.First[:waiters] {
		starts := "unknown"
		if w.StartsInS != nil {
			starts = brief(*w.StartsInS)
		}
		out = append(out, fmt.Sprintf("%-8d %10s %10s %12s", w.Position, brief(w.WaitedS), bytesText(w.Bytes), starts))
	}
	if more := s.Line.Waiting - waiters; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	out = append(out, "", v.bold(fmt.Sprintf("%-9s %-16s %4s %-12s %9s %9s %9s %9s %7s  %s",
		"ENDED", "OUTCOME", "CODE", "ENDPOINT", "LINE", "PREFILL", "KV WAIT", "DECODE", "TOKENS", "NODE, RID, ERROR")))
	for i := len(s.Recent) - 1; i >= len(s.Recent)-recent; i-- {
		out = append(out, requestLine(&s.Recent[i], v))
	}
	return out
}

func head(s status.Snapshot, v view) []string {
	up, busy := 0, 0
	for _, slot := range s.Slots {
		if slot.Up {
			up++
		}
		if slot.Phase != "free" && slot.Phase != "down" {
			busy++
		}
	}
	prefill := "up"
	if !s.Prefill.Up {
		prefill = v.bad("down")
	} else if s.Prefill.Trouble != "" {
		prefill += ", " + clean(s.Prefill.Trouble)
	}
	state := s.State
	if state != "ok" {
		state = v.bad(state)
	}
	out := []string{
		fmt.Sprintf("pd-router %s  %s  up %s", clean(s.Version), state, brief(s.UptimeS)),
		fmt.Sprintf("line     %d waiting of %d, %s, longest %s", s.Line.Waiting, s.Line.Max, bytesText(s.Line.Bytes), brief(s.Line.OldestS)),
		fmt.Sprintf("rates    %d requests/min, %.1f tokens/s, %d 429/min", s.Rates.Requests, s.Rates.Tokens, s.Rates.Refused),
		fmt.Sprintf("nodes    prefill %s %s; decode %d of %d up, %d busy", clean(s.Prefill.Addr), prefill, up, len(s.Slots), busy),
	}
	if s.Arena != nil {
		out = append(out, arenaLine(s.Arena))
	}
	for _, m := range s.Missing {
		out = append(out, v.bad("missing  "+clean(m)))
	}
	return out
}

func arenaLine(a *status.Arena) string {
	var states []string
	for st := range staging.NumStates {
		states = append(states, fmt.Sprintf("%d %s", a.Slots[st.String()], st))
	}
	return fmt.Sprintf("arena    %s, %s; %d wait with their KV ready", bytesText(a.Bytes), strings.Join(states, ", "), a.KVReady)
}

func slotLine(s *status.Slot, v view) string {
	phase := fmt.Sprintf("%-8s", clean(s.Phase))
	if !s.Up {
		phase = v.bad(phase)
	}
	busy := 1 - s.Shares["free"] - s.Shares["down"]
	if len(s.Shares) == 0 {
		busy = 0
	}
	return fmt.Sprintf("%-28s %s %9s %8d %8.1f %5.0f%%  %s", clean(s.Node), phase, brief(s.SinceS), s.Tokens, s.TokensS, 100*busy, past(&s.Past))
}

// past draws the timeline, newest on the right.
func past(t *status.Timeline) string {
	out := []byte(strings.Repeat(" ", pastColumns))
	const seconds = 300 / pastColumns
	for column := range out {
		end := t.Seconds - (pastColumns-1-column)*seconds
		if end <= 0 {
			continue // before the router began
		}
		out[column] = '.'
		free := 9 * (end - max(0, end-seconds))
		most := 0
		for i, digits := range []string{t.Prefill, t.KVWait, t.Decode, t.Settle, t.Down} {
			sum := 0
			for at := max(0, end-seconds); at < min(end, len(digits)); at++ {
				sum += int(digits[at] - '0')
			}
			free -= sum
			if sum > most {
				most, out[column] = sum, phaseLetters[i]
			}
		}
		if free > most {
			out[column] = '.'
		}
	}
	return string(out)
}

func requestLine(r *status.Request, v view) string {
	ended := r.Ended
	if t, err := time.Parse(time.RFC3339, r.Ended); err == nil {
		ended = t.Local().Format(time.TimeOnly)
	}
	outcome := fmt.Sprintf("%-16s", clean(r.Outcome))
	if r.Outcome != "ok" {
		outcome = v.bad(outcome)
	}
	var rest []string
	for _, part := range []string{r.Node, r.RID, r.ErrorType, r.Param, r.Error} {
		if part != "" && part != r.Outcome {
			rest = append(rest, clean(part))
		}
	}
	return fmt.Sprintf("%-9s %s %4d %-12s %9s %9s %9s %9s %7d  %s", clean(ended), outcome, r.Status, clean(r.Endpoint),
		orDash(r.Phases.Queue), orDash(r.Phases.Prefill), orDash(r.Phases.KVWait), orDash(r.Phases.Decode), r.Completion, strings.Join(rest, " "))
}

func orDash(s float64) string {
	if s == 0 {
		return "-"
	}
	return brief(s)
}

// brief is a time in at most eight characters.
func brief(s float64) string {
	switch d := time.Duration(s * float64(time.Second)); {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", s)
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(s)/86400, int(s)/3600%24)
}

func bytesText(n int64) string {
	x := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB"} {
		if x < 1024 {
			if unit == "B" {
				return fmt.Sprintf("%d B", n)
			}
			return fmt.Sprintf("%.1f %s", x, unit)
		}
		x /= 1024
	}
	return fmt.Sprintf("%.1f GiB", x)
}

// clean takes out what a terminal would obey: the text came over the network.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func (v view) bold(s string) string { return v.styled(s, "1") }
func (v view) bad(s string) string  { return v.styled(s, "31") }

func (v view) styled(s, code string) string {
	if !v.colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// clip cuts a line to width columns, which escape sequences do not take up.
func clip(line string, width int) string {
	var out strings.Builder
	column := 0
	for i := 0; i < len(line); {
		if line[i] == '\x1b' {
			end := strings.IndexByte(line[i:], 'm')
			out.WriteString(line[i : i+end+1])
			i += end + 1
			continue
		}
		_, n := utf8.DecodeRuneInString(line[i:])
		if column < width {
			out.WriteString(line[i : i+n])
		}
		column++
		i += n
	}
	return out.String()
}
