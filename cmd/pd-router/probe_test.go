package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"pd-router/internal/config"
	"pd-router/internal/probe"
	"pd-router/internal/sim"
)

// simulate runs a node until the test is over.
func simulate(t *testing.T, listen func() error, serve func(context.Context) error, end func() error) {
	t.Helper()
	require.NoError(t, listen())
	ended := make(chan error, 1)
	go func() { ended <- serve(context.Background()) }()
	t.Cleanup(func() {
		assert.NoError(t, end())
		assert.NoError(t, <-ended)
	})
}

func simulatedPrefill(t *testing.T) *sim.Prefill {
	p, err := sim.NewPrefill(sim.PrefillOptions{Profile: "tiny", MaxModelLen: 4096})
	require.NoError(t, err)
	simulate(t, p.Listen, p.Serve, p.Close)
	return p
}

func simulatedDecode(t *testing.T, o sim.DecodeOptions) *sim.Decode {
	o.Profile, o.MaxSeqLen = "tiny", 4096
	d, err := sim.NewDecode(o)
	require.NoError(t, err)
	simulate(t, d.Listen, d.Serve, d.Close)
	return d
}

// freePorts are two that nobody listens on.
func freePorts(t *testing.T) (ctrl, http int) {
	for _, p := range []*int{&ctrl, &http} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		*p = ln.Addr().(*net.TCPAddr).Port
	}
	return ctrl, http
}

func TestProbeOfGoodNodesIsExitCode0(t *testing.T) {
	p, d := simulatedPrefill(t), simulatedDecode(t, sim.DecodeOptions{})
	// The command line of serve, as launchers give it: no model path for the default parser is none of its business.
	code, stdout, stderr := program(nil, "probe", "--vllm-url", p.URL(), "--decode", d.Node(), "--queue-timeout", "1800", "--preflight")
	assert.Equal(t, exitGood, code, stdout+stderr)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "ok           "+d.Node()+"  hello         protocol 2, layout 9008")
	assert.Contains(t, stdout, "not checked  "+d.Node()+"  nixl-connect  ")
	assert.NotContains(t, stdout, "FAIL")

	code, stdout, stderr = program(nil, "probe", "--vllm-url", p.URL(), "--decode", d.Node(), "--json")
	assert.Equal(t, []any{exitGood, ""}, []any{code, stderr})
	var r struct {
		OK     bool
		Format int
		Checks []struct{ Node, Check, Status string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	assert.True(t, r.OK)
	assert.Equal(t, probe.Format, r.Format)
	assert.Len(t, r.Checks, len(probe.Names.Prefill)+len(probe.Names.Decode)+len(probe.Names.All))
}

func TestProbeThatFindsAFaultIsExitCode1(t *testing.T) {
	p, good, bad := simulatedPrefill(t), simulatedDecode(t, sim.DecodeOptions{}), simulatedDecode(t, sim.DecodeOptions{Senders: 2})
	code, stdout, stderr := program(nil, "probe", "--vllm-url", p.URL(), "--decode", good.Node(), bad.Node())
	assert.Equal(t, exitFailure, code)
	assert.Equal(t, "pd-router: probe: 1 of 24 checks failed\n", stderr)
	assert.Contains(t, stdout, "senders is 8 on "+good.Node()+", 2 on "+bad.Node())
}

func TestProbeWithoutNodesIsBadUsage(t *testing.T) {
	for _, args := range [][]string{{"probe"}, {"probe", "--vllm-url", "http://p"}, {"probe", "--nixl", "word"}} {
		code, stdout, stderr := program(nil, args...)
		assert.Equal(t, []any{exitUsage, ""}, []any{code, stdout}, args)
		assert.Equal(t, 1, strings.Count(stderr, "\n"))
	}
}

func TestHelpOfProbeListsWhatItUses(t *testing.T) {
	_, stdout, _ := program(nil, "probe", "--help")
	for _, flag := range []string{"--json", "--nixl", "--vllm-url", "--decode", "--connect-timeout", "--nixl-library", "--config"} {
		assert.Contains(t, stdout, flag)
	}
	assert.NotContains(t, stdout, "--queue-timeout")
	_, stdout, _ = program(nil, "serve", "--help")
	assert.Contains(t, stdout, "--queue-timeout")
}

func TestProbeWithoutTheLibraryFailsThatCheckAlone(t *testing.T) {
	t.Setenv("PD_ROUTER_NIXL_LIBRARY", t.TempDir()+"/none.so")
	var peers nixlPeers
	for range 2 {
		assert.ErrorContains(t, peers.connect(t.Context(), nil), "none.so")
	}
	peers.close()
	t.Setenv("PD_ROUTER_NIXL_LIBRARY", "")
	asked := nixlPeers{library: t.TempDir() + "/other.so"}
	assert.ErrorContains(t, asked.connect(t.Context(), nil), "other.so", "--nixl-library")
}

// built is a router in front of these nodes, with further flags.
func built(t *testing.T, log *zap.Logger, args ...string) (*parts, config.Config) {
	t.Helper()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags := config.Declare(fs)
	args, err := config.ExpandArgs(fs, append(args, "--host", "127.0.0.1", "--port", "0", "--parser", "none", "--preflight"))
	require.NoError(t, err)
	require.NoError(t, fs.Parse(args))
	cfg, err := flags.Load(func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	require.True(t, cfg.Preflight)
	p, err := build(cfg, nil, log)
	require.NoError(t, err)
	return p, cfg
}

func TestPreflightHoldsReadinessUntilEveryNodeIsWell(t *testing.T) {
	vllm, good := simulatedPrefill(t), simulatedDecode(t, sim.DecodeOptions{})
	ctrl, httpPort := freePorts(t)
	late := "127.0.0.1:" + strconv.Itoa(ctrl) + ":" + strconv.Itoa(httpPort)
	core, logs := observer.New(zapcore.InfoLevel)
	p, cfg := built(t, zap.NewNop(), "--vllm-url", vllm.URL(), "--decode", good.Node(), late)
	ctx, cancel := context.WithCancel(t.Context())
	withhold(p.router)
	ended := make(chan struct{}, 2)
	go func() { p.router.Run(ctx); ended <- struct{}{} }()
	go func() {
		preflight(ctx, p.router, targets(cfg), probeOptions(cfg), time.Millisecond, zap.New(core))
		ended <- struct{}{}
	}()

	await(t, func() bool { return vllm.Counters().Requests >= 3 }) // runs that failed
	select {
	case <-p.router.Ready():
		t.Fatal("ready though a node is not there")
	default:
	}
	health, ok := p.router.Health()
	assert.False(t, ok)
	assert.Contains(t, strings.Join(health.Missing, "\n"), "the preflight (--preflight) fails: "+late+" control: ")
	var told []string
	for _, e := range logs.FilterMessage("preflight check failed").All() {
		told = append(told, e.ContextMap()["node"].(string)+" "+e.ContextMap()["check"].(string))
	}
	assert.Equal(t, []string{late + " control", late + " health"}, told, "each failure is logged once, however often it is found")

	simulatedDecode(t, sim.DecodeOptions{Ctrl: "127.0.0.1:" + strconv.Itoa(ctrl), HTTP: "127.0.0.1:" + strconv.Itoa(httpPort)})
	select {
	case <-p.router.Ready():
	case <-time.After(20 * time.Second):
		t.Fatal("not ready though all is well")
	}
	await(t, func() bool { return logs.FilterMessage("preflight passed").Len() == 1 })
	cancel()
	<-ended
	<-ended
}

func TestPreflightThatNeverPassesEndsTheRouter(t *testing.T) {
	vllm, good := simulatedPrefill(t), simulatedDecode(t, sim.DecodeOptions{})
	ctrl, httpPort := freePorts(t)
	p, cfg := built(t, zap.NewNop(), "--vllm-url", vllm.URL(), "--startup-timeout", "2",
		"--decode", good.Node(), "127.0.0.1:"+strconv.Itoa(ctrl)+":"+strconv.Itoa(httpPort))
	ln, err := net.Listen("tcp", cfg.Addr())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- p.run(t.Context(), cfg, ln, zap.NewNop()) }()
	await(t, func() bool { return vllm.Counters().Requests == 1 }) // the preflight runs
	status, err := statusOf("http://" + ln.Addr().String() + "/health")
	require.NoError(t, err)
	require.Equal(t, 503, status)
	err = <-ended
	require.ErrorIs(t, err, errNotReady)
	assert.ErrorContains(t, err, "the preflight (--preflight) fails: ")
}

func TestServeWithAPreflightThatPasses(t *testing.T) {
	vllm, good := simulatedPrefill(t), simulatedDecode(t, sim.DecodeOptions{})
	p, cfg := built(t, zap.NewNop(), "--vllm-url", vllm.URL(), "--decode", good.Node())
	ln, err := net.Listen("tcp", cfg.Addr())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx, cfg, ln, zap.NewNop()) }()
	await(t, func() bool {
		status, err := statusOf("http://" + ln.Addr().String() + "/health")
		return err == nil && status == 200
	})
	assert.EqualValues(t, 1, vllm.Counters().Requests)
	cancel()
	require.NoError(t, <-ended)
}

func statusOf(url string) (int, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	require.Eventually(t, done, 20*time.Second, time.Millisecond)
}
