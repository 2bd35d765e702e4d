package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Result is how one request went.
type Result struct {
	Status int           // HTTP status, 0 when there was no reply
	Err    string        // why a reply was not whole
	Wait   time.Duration // in the router's line, as its Server-Timing header says
	TTFT   time.Duration // to the first content
	Total  time.Duration
}

// Report is how a session went.
type Report struct {
	Results []Result
	Wall    time.Duration
	Busy    time.Duration // of the slot, filled in by the caller
}

// Run plays one session against the router at base. progress is told of each request that has ended.
func Run(ctx context.Context, base string, progress func(done, of int)) *Report {
	p := &player{base: base, progress: progress, of: session().size(), client: &http.Client{Transport: &http.Transport{}}}
	defer p.client.CloseIdleConnections()
	start := time.Now()
	p.play(ctx, session())
	return &Report{Results: p.results, Wall: time.Since(start)}
}

// player sends a session.
type player struct {
	base     string
	client   *http.Client
	progress func(done, of int)
	of       int

	mu      sync.Mutex // guards results
	results []Result
}

// play runs an agent to its end, sub-agents included.
func (p *player) play(ctx context.Context, a agent) {
	for i, t := range a.turns {
		r := p.ask(ctx, t)
		p.mu.Lock()
		p.results = append(p.results, r)
		p.progress(len(p.results), p.of)
		p.mu.Unlock()
		var round sync.WaitGroup
		for _, child := range a.children[i] {
			round.Go(func() { p.play(ctx, child) })
		}
		round.Wait()
	}
}

// ask sends one request and reads its stream.
func (p *player) ask(ctx context.Context, t turn) (r Result) {
	start := time.Now()
	defer func() { r.Total = time.Since(start) }()
	body, err := json.Marshal(map[string]any{
		"model": "glm5", "stream": true, "max_completion_tokens": t.output, "ignore_eos": true,
		"stream_options": map[string]bool{"include_usage": true},
		"messages":       []map[string]string{{"role": "user", "content": t.prompt}},
	})
	if err != nil {
		return Result{Err: err.Error()}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return Result{Err: err.Error()}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return Result{Err: err.Error()}
	}
	defer resp.Body.Close()
	r.Status = resp.StatusCode
	if r.Status != http.StatusOK {
		_, _ = io.Copy(io.Discard, resp.Body)
		return r
	}
	r.Wait = waited(resp.Header.Get("Server-Timing"))
	r.TTFT, r.Err = read(resp.Body, start)
	return r
}

// read takes a stream to its [DONE] and says when the first content came.
func read(body io.Reader, start time.Time) (ttft time.Duration, problem string) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	done := false
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "event: error"):
			problem = "error event"
		case line == "data: [DONE]":
			done = true
		case ttft == 0 && strings.Contains(line, `"content":"`):
			ttft = time.Since(start)
		}
	}
	if err := lines.Err(); err != nil {
		return ttft, err.Error()
	}
	if !done && problem == "" {
		problem = "no [DONE]"
	}
	return ttft, problem
}

// waited reads the queue's part of a Server-Timing header.
func waited(timing string) time.Duration {
	for part := range strings.SplitSeq(timing, ", ") {
		if ms, ok := strings.CutPrefix(part, "queue;dur="); ok {
			if f, err := strconv.ParseFloat(ms, 64); err == nil {
				return time.Duration(f * float64(time.Millisecond))
			}
		}
	}
	return 0
}

// Served is how many requests got a whole reply.
func (r *Report) Served() int {
	return r.count(func(x Result) bool { return x.Status == http.StatusOK && x.Err == "" })
}

// Refused is how many got 429.
func (r *Report) Refused() int {
	return r.count(func(x Result) bool { return x.Status == http.StatusTooManyRequests })
}

func (r *Report) count(match func(Result) bool) (n int) {
	for _, x := range r.Results {
		if match(x) {
			n++
		}
	}
	return n
}

// Failure is the first result that is neither served nor refused, or "".
func (r *Report) Failure() string {
	for _, x := range r.Results {
		if x.Status != http.StatusTooManyRequests && (x.Status != http.StatusOK || x.Err != "") {
			return fmt.Sprintf("status %d %s", x.Status, x.Err)
		}
	}
	return ""
}
