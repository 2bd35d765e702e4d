package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"pd-router/internal/sim"
)

// The request: a prompt that is long enough for its KV to be worth moving, and so many tokens that they are decoded in steps.
const (
	promptWords  = 400
	maxTokens    = 51 // the first comes from the prefill node
	startTimeout = 30 * time.Second
)

var requestBody = []byte(fmt.Sprintf(`{"model":"glm5","messages":[{"role":"user","content":"say:%s"}],"max_tokens":%d,"ignore_eos":true}`,
	strings.Repeat("lorem ipsum ", promptWords/2), maxTokens))

// nodes are the two simulated nodes, and what runs them.
type nodes struct {
	prefill *sim.Prefill
	decode  *sim.Decode
	running errgroup.Group // ended by close
}

// startNodes runs nodes that take as long as c says for a prompt of so many tokens and bytes of KV; 0 tokens take no time.
func startNodes(c proportion, tokens int, kv uint64, transport string) (*nodes, error) {
	po := sim.PrefillOptions{Profile: "tiny", CachedShare: 0, Transport: transport}
	do := sim.DecodeOptions{Profile: "tiny", MaxSeqLen: 8192, Transport: transport}
	if tokens > 0 {
		po.TokensPerSecond = float64(tokens) / c.prefill.Seconds()
		po.TransferGBps = float64(kv) / 1e9 / c.transfer.Seconds()
		do.TokensPerSecond = (maxTokens - 1) / c.decode.Seconds()
	}
	n := new(nodes)
	var err error
	if n.prefill, err = sim.NewPrefill(po); err != nil {
		return nil, err
	}
	if n.decode, err = sim.NewDecode(do); err != nil {
		return nil, err
	}
	if err = n.prefill.Listen(); err != nil {
		return nil, err
	}
	if err = n.decode.Listen(); err != nil {
		return nil, errors.Join(err, n.prefill.Close())
	}
	n.running.Go(func() error { return n.prefill.Serve(context.Background()) })
	n.running.Go(func() error { return n.decode.Serve(context.Background()) })
	return n, nil
}

func (n *nodes) close() error {
	return errors.Join(n.prefill.Close(), n.decode.Close(), n.running.Wait())
}

// world is the two nodes with a router in front of them.
type world struct {
	*nodes
	url    string
	router *exec.Cmd
	log    bytes.Buffer // what the router has to say
	dir    string
	hc     *http.Client
}

func startWorld(ctx context.Context, binary string, n *nodes, clients int, flags []string) (*world, error) {
	w := &world{nodes: n, hc: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}}
	var err error
	if w.dir, err = os.MkdirTemp("", "handoff"); err != nil {
		return nil, err
	}
	if err := sim.WriteTokenizer(filepath.Join(w.dir, "model")); err != nil {
		return nil, errors.Join(err, w.end())
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, w.end())
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_ = ln.Close() // the router takes the port
	w.url = "http://127.0.0.1:" + port
	args := append([]string{"--vllm-url", n.prefill.URL(), "--decode", n.decode.Node(), "--host", "127.0.0.1", "--port", port,
		"--model-path", filepath.Join(w.dir, "model"), "--parser", "none", "--log-level", "warn"}, flags...)
	w.router = exec.CommandContext(ctx, binary, args...)
	w.router.Stderr = &w.log
	if err := w.router.Start(); err != nil {
		w.router = nil
		return nil, errors.Join(err, w.end())
	}
	if err := w.ready(ctx); err != nil {
		return nil, errors.Join(err, w.end())
	}
	return w, nil
}

// ready waits until the router would serve.
func (w *world) ready(ctx context.Context) error {
	for end := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		resp, err := w.hc.Get(w.url + "/health")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("health is %s", resp.Status)
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("the router is not ready: %w\n%s", err, tail(w.log.Bytes()))
		}
	}
}

// end stops the router. The nodes are the caller's.
func (w *world) end() error {
	w.hc.CloseIdleConnections()
	if w.router != nil {
		_ = w.router.Process.Signal(syscall.SIGTERM)
		_ = w.router.Wait() // how it ends is of no interest here
	}
	return os.RemoveAll(w.dir)
}

// ask sends one request and reads the answer to its end.
func (w *world) ask(ctx context.Context) (usage, error) { return post(ctx, w.hc, w.url, requestBody) }

// usage is what matters of an answer.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
}

func post(ctx context.Context, hc *http.Client, url string, body []byte) (usage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return usage{}, err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return usage{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return usage{}, err
	}
	var answer struct{ Usage usage }
	if err := json.Unmarshal(b, &answer); err != nil || resp.StatusCode != http.StatusOK {
		return usage{}, fmt.Errorf("%s: %s", resp.Status, tail(b))
	}
	return answer.Usage, nil
}

// tail is the end of a text.
func tail(b []byte) []byte { return bytes.TrimSpace(b[max(0, len(b)-2000):]) }
