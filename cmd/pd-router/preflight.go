package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"pd-router/internal/probe"
	"pd-router/internal/router"
)

// preflightPause lies between a preflight that failed and the next.
const preflightPause = 5 * time.Second

// withhold keeps a router from being ready that is to pass a preflight. It is called before the router runs.
func withhold(r *router.Router) { r.Withhold("the preflight (--preflight) has not been made yet") }

// preflight looks at all nodes once they have answered, and lets the router be ready when nothing fails, or goes on trying until ctx ends.
func preflight(ctx context.Context, r *router.Router, t probe.Targets, o probe.Options, pause time.Duration, log *zap.Logger) {
	select {
	case <-r.Answered():
	case <-ctx.Done():
		return
	}
	var told map[string]bool // of the run before: what is still so is not logged again
	for {
		report := probe.Run(ctx, t, o)
		if ctx.Err() != nil {
			return
		}
		told = logPreflight(log, &report, told)
		if report.OK {
			log.Info("preflight passed", zap.String("checks", report.Summary()))
			r.Allow()
			return
		}
		r.Withhold("the preflight (--preflight) fails: " + failures(&report))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// logPreflight writes a line for each check that is not well, and returns what they say.
func logPreflight(log *zap.Logger, r *probe.Report, told map[string]bool) map[string]bool {
	now := map[string]bool{}
	for _, c := range append(r.Of(probe.Fail), r.Of(probe.Warn)...) {
		line := c.Node + c.Check + c.Detail
		now[line] = true
		if told[line] {
			continue
		}
		text := "preflight check failed"
		if c.Status == probe.Warn {
			text = "preflight warning"
		}
		log.Warn(text, zap.String("node", c.Node), zap.String("check", c.Check), zap.String("detail", c.Detail), zap.String("advice", c.Advice))
	}
	return now
}

// failures are the failed checks in a line for GET /health.
func failures(r *probe.Report) string {
	var out []string
	for _, c := range r.Of(probe.Fail) {
		out = append(out, fmt.Sprintf("%s %s: %s", c.Node, c.Check, c.Detail))
	}
	return strings.Join(out, "; ")
}
