package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pd-router/internal/tilert"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// load asks one request after the other, as a router does for one slot: whatever becomes of them, while both nodes are well.
type load struct {
	prefill, ctrl    string       // base URL; port
	decode           atomic.Value // base URL
	good, bad, wrong atomic.Int64
	last             atomic.Value // what the last bad one got
	stop             context.CancelFunc
	client           sync.WaitGroup
}

func startLoad(t *testing.T, prefill, ctrl, decode string) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{prefill: prefill, ctrl: ctrl, stop: cancel}
	l.decode.Store(decode)
	l.last.Store("")
	l.client.Go(func() {
		hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
		for n := 0; ctx.Err() == nil; n++ {
			if !healthy(hc, l.prefill) || !healthy(hc, l.decode.Load().(string)) {
				sleep(ctx, 5*time.Millisecond)
				continue
			}
			say := fmt.Sprint("this is number ", n, strings.Repeat(" and so on", 200))
			switch got, err := l.ask(hc, say); {
			case err != nil:
				l.last.Store(err.Error())
				l.bad.Add(1)
			case got != say:
				l.wrong.Add(1)
			default:
				l.good.Add(1)
			}
		}
	})
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.client.Wait()
}

// ask is both legs, on a client's goroutine.
func (l *load) ask(hc *http.Client, say string) (string, error) {
	var a struct {
		ID      string
		Choices []struct {
			LogProbs struct{ Content []struct{ Token string } }
		}
	}
	if err := ask(hc, l.prefill+"/v1/chat/completions", `{"messages":[{"role":"user","content":"say:`+say+`"}],"max_tokens":1,"logprobs":true,`+
		`"kv_transfer_params":{"tilert_host":"127.0.0.1","tilert_ctrl_port":`+l.ctrl+`}}`, &a); err != nil {
		return "", err
	}
	var d struct {
		IDs []int `json:"token_ids"`
	}
	first := strings.TrimPrefix(a.Choices[0].LogProbs.Content[0].Token, "token_id:")
	err := ask(hc, l.decode.Load().(string)+"/pd/decode", `{"rid":"`+tilert.DeriveRID(a.ID)+`","first_token_id":`+first+`,"max_tokens":4000,"timeout_s":1.5}`, &d)
	return vocabulary().decode(d.IDs), err
}

func healthy(hc *http.Client, url string) bool {
	resp, err := hc.Get(url + "/health")
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == 200
}

func ask(hc *http.Client, url, body string, into any) error {
	resp, err := hc.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 {
		return fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	return json.Unmarshal(b, into)
}

// more waits until n more requests have been answered well.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	from := l.good.Load()
	if !assert.Eventually(t, func() bool { return l.good.Load() >= from+n }, 30*time.Second, 5*time.Millisecond) {
		t.Fatalf("%d good before, now %d, and %d bad, %d wrong; the last bad one: %s", from, l.good.Load(), l.bad.Load(), l.wrong.Load(), l.last.Load())
	}
}

// again runs a node at the addresses that another one had.
func again(t *testing.T, listen func() error, run func(context.Context) error, end func() error) {
	t.Helper()
	serve(t, func() (err error) {
		require.Eventually(t, func() bool { err = listen(); return err == nil }, 5*time.Second, 5*time.Millisecond)
		return err
	}, run, end)
}

// halfway is how long a node of these tests keeps its buffer for a request of which only some ranks came, as the others
// were lost with a node.
const halfway = 100 * time.Millisecond

func TestADecodeNodeStartsAgainUnderLoad(t *testing.T) {
	eachTransport(t, func(t *testing.T, transport string) {
		r := newRig(t, PrefillOptions{Transport: transport}, DecodeOptions{Transport: transport, Age: halfway})
		l := startLoad(t, r.p.URL(), fmt.Sprint(r.d.ctrl.port()), r.node(""))
		d := r.d
		for range 2 {
			l.more(t, 5)
			o := d.o
			o.HTTP, o.Ctrl = d.HTTPAddr(), d.CtrlAddr()
			require.NoError(t, d.Close())
			var err error
			d, err = NewDecode(o)
			require.NoError(t, err)
			again(t, d.Listen, d.Serve, d.Close)
		}
		l.more(t, 5)
		l.end()
		assert.Zero(t, l.wrong.Load())
	})
}

func TestAPrefillNodeStartsAgainUnderLoad(t *testing.T) {
	eachTransport(t, func(t *testing.T, transport string) {
		r := newRig(t, PrefillOptions{Transport: transport}, DecodeOptions{Transport: transport, Age: halfway})
		l := startLoad(t, r.p.URL(), fmt.Sprint(r.d.ctrl.port()), r.node(""))
		p := r.p
		for range 2 {
			l.more(t, 5)
			o := p.o
			o.Listen = p.Addr()
			require.NoError(t, p.Close())
			var err error
			p, err = NewPrefill(o)
			require.NoError(t, err)
			again(t, p.Listen, p.Serve, p.Close)
		}
		l.more(t, 5)
		l.end()
		assert.Zero(t, l.wrong.Load())
	})
}

// The node goes without a word, in whatever it does, and comes back at its control port as another process.
func TestADecodeNodeIsKilledUnderLoad(t *testing.T) {
	needNIXL(t)
	r := newRig(t, PrefillOptions{Transport: TransportNIXL}, DecodeOptions{})
	o := startOther(t, "0")
	l := startLoad(t, r.p.URL(), fmt.Sprint(o.ctrlPort()), "http://"+o.http)
	for range 2 {
		l.more(t, 5)
		o.kill()
		o = startOther(t, fmt.Sprint(o.ctrlPort()))
		l.decode.Store("http://" + o.http)
	}
	l.more(t, 5)
	l.end()
	assert.Zero(t, l.wrong.Load())
}
