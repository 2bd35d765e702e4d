package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// proportion is how long the parts of a request take.
type proportion struct {
	name                      string
	prefill, transfer, decode time.Duration
}

// parseCase reads P=nD, P=D or D=nP.
func parseCase(s string, unit time.Duration, share float64) (proportion, error) {
	c := proportion{name: s, prefill: unit, transfer: time.Duration(share * float64(unit)), decode: unit}
	longer, rest, _ := strings.Cut(strings.TrimSpace(s), "=")
	other := map[string]string{"P": "D", "D": "P"}[longer]
	factor, ok := strings.CutSuffix(rest, other)
	n := 1.0
	var err error
	if factor != "" {
		n, err = strconv.ParseFloat(factor, 64)
	}
	if other == "" || !ok || err != nil || n < 1 {
		return c, fmt.Errorf("-cases: %q: want P=nD, P=D or D=nP with n of 1 or more", s)
	}
	if longer == "P" {
		c.prefill = time.Duration(n * float64(unit))
	} else {
		c.decode = time.Duration(n * float64(unit))
	}
	return c, nil
}

// held is the time for each request when a slot is held through all of it.
func (c proportion) held() time.Duration { return c.prefill + c.transfer + c.decode }

// staged is the time for each request when only transfer and decode hold a slot.
func (c proportion) staged() time.Duration { return max(c.prefill, c.transfer+c.decode) }

func (c proportion) title() string {
	return fmt.Sprintf("%s: P %v, T %v, D %v; P+T+D %v, max(P, T+D) %v", c.name, c.prefill, c.transfer, c.decode, c.held(), c.staged())
}

// result is what one mode did in one case.
type result struct {
	requests int
	wall     time.Duration // in which they ended
	taken    time.Duration // of the node's slot meanwhile, as the node counts it
}

const header = "mode       requests/min  s/request  /(P+T+D)  /max(P,T+D)  slot decodes  slot taken"

// row is one line of the table. The slot decodes for D in each request; it is taken from the decode request to the end of the reply.
func (r result) row(name string, c proportion) string {
	each := r.wall / time.Duration(r.requests)
	return fmt.Sprintf("%-10s %12.1f %10.3f %9.2f %12.2f %11.0f %% %9.0f %%", name, 60/each.Seconds(), each.Seconds(),
		ratio(each, c.held()), ratio(each, c.staged()), 100*ratio(c.decode, each), 100*ratio(r.taken, r.wall))
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
