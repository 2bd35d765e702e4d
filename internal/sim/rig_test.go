package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pd-router/internal/tilert"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rig is a prefill node and a decode node, and a client that does what a router does.
type rig struct {
	t  *testing.T
	p  *Prefill
	d  *Decode
	hc *http.Client

	mu   sync.Mutex
	told []string // by both nodes
}

func (r *rig) hear(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, line)
}

func (r *rig) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}

func newRig(t *testing.T, po PrefillOptions, do DecodeOptions) *rig {
	fill(&po.Profile, "tiny")
	fill(&do.Profile, "tiny")
	fill(&do.MaxSeqLen, 4096)
	fill(&do.CancelPoll, 10*time.Millisecond)
	fill(&po.MaxModelLen, 4096)
	if po.CachedShare == 0 {
		po.CachedShare = -1
	}
	r := &rig{t: t, hc: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(r.hc.CloseIdleConnections)
	var err error
	r.p, err = NewPrefill(po)
	require.NoError(t, err)
	r.d, err = NewDecode(do)
	require.NoError(t, err)
	r.p.Tell(r.hear)
	r.d.Tell(r.hear)
	serve(t, r.p.Listen, r.p.Serve, r.p.Close)
	serve(t, r.d.Listen, r.d.Serve, r.d.Close)
	return r
}

// serve runs a node until the test is over.
func serve(t *testing.T, listen func() error, serve func(context.Context) error, end func() error) {
	t.Helper()
	require.NoError(t, listen())
	ended := make(chan error, 1)
	go func() { ended <- serve(t.Context()) }()
	t.Cleanup(func() {
		assert.NoError(t, end())
		assert.NoError(t, <-ended)
	})
}

type object = map[string]any

// post sends a JSON body and returns status and body of the answer.
func (r *rig) post(url string, body any, header ...string) (int, []byte) {
	r.t.Helper()
	raw, isText := body.(string)
	if !isText {
		b, err := json.Marshal(body)
		require.NoError(r.t, err)
		raw = string(b)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, url, strings.NewReader(raw))
	require.NoError(r.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.hc.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return -resp.StatusCode, got // broken off
	}
	return resp.StatusCode, got
}

// get returns the body of a page.
func (r *rig) get(url string) (int, string) {
	resp, err := r.hc.Get(url)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp.StatusCode, string(b)
}

func (r *rig) node(path string) string { return "http://" + r.d.HTTPAddr() + path }

// kvParams name the decode node.
func (r *rig) kvParams() object {
	host, _, _ := net.SplitHostPort(r.d.CtrlAddr())
	return object{"tilert_host": host, "tilert_ctrl_port": r.d.ctrl.port()}
}

// prefilled is what a router takes from a prefill answer.
type prefilled struct {
	ID, RID string
	First   int
	Prompt  int
	Cached  int
}

// prefill sends a chat request for one token.
func (r *rig) prefill(message string, extra object) prefilled {
	r.t.Helper()
	id := tilert.NewRequestID()
	body := object{
		"model": "glm5", "messages": []object{{"role": "user", "content": message}}, "max_tokens": 1, "logprobs": true, "top_logprobs": 1,
		"kv_transfer_params": r.kvParams(),
	}
	for k, v := range extra {
		body[k] = v
	}
	status, b := r.post(r.p.URL()+"/v1/chat/completions", body, "X-Request-Id", id)
	require.Equal(r.t, 200, status, string(b))
	var a struct {
		ID      string
		Choices []struct {
			LogProbs struct{ Content []struct{ Token string } }
		}
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	require.NoError(r.t, json.Unmarshal(b, &a))
	p := prefilled{ID: a.ID, RID: tilert.DeriveRID(a.ID), Prompt: a.Usage.Prompt, Cached: a.Usage.Details.Cached}
	require.Equal(r.t, id, p.RID)
	_, err := fmt.Sscanf(a.Choices[0].LogProbs.Content[0].Token, "token_id:%d", &p.First)
	require.NoError(r.t, err)
	return p
}

// decoded is the end of a decode request.
type decoded struct {
	Status  int
	Lines   []string
	IDs     []int
	N       int
	SeqLen  int
	Finish  string
	Error   string
	ErrType string
	Body    string
}

func (d decoded) text() string { return vocabulary().decode(d.IDs) }

// decode asks for a stream.
func (r *rig) decode(rid string, first int, extra object) decoded {
	r.t.Helper()
	body := object{"rid": rid, "first_token_id": first, "max_tokens": 400, "stream": true}
	for k, v := range extra {
		body[k] = v
	}
	status, b := r.post(r.node("/pd/decode"), body)
	return r.read(status, b)
}

func (r *rig) read(status int, b []byte) decoded {
	r.t.Helper()
	out := decoded{Status: status, Body: string(b)}
	if status != 200 || !bytes.HasSuffix(b, []byte("\n")) {
		var e struct {
			Error     string `json:"error"`
			ErrorType string `json:"error_type"`
		}
		_ = json.Unmarshal(b, &e) // what is no error has none
		out.Error, out.ErrType = e.Error, e.ErrorType
		return out
	}
	var l tilert.Line
	for line := range strings.Lines(string(b)) {
		out.Lines = append(out.Lines, line)
		if err := l.Parse([]byte(line)); err != nil {
			out.Error = err.Error()
			continue
		}
		out.IDs = append(out.IDs, l.IDs...)
		if l.Kind == tilert.DoneLine {
			out.N, out.SeqLen, out.Finish = l.N, l.SeqLen, l.FinishReason
		} else if l.Kind == tilert.ErrorLine {
			out.Error, out.ErrType = l.Error, l.ErrorType
		}
	}
	return out
}

// ask is both legs of a request.
func (r *rig) ask(message string, prefill, decode object) decoded {
	r.t.Helper()
	p := r.prefill(message, prefill)
	return r.decode(p.RID, p.First, decode)
}

// idle waits until the decode node says that it is idle.
func (r *rig) idle() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		_, body := r.get(r.node("/decode_status"))
		return body == `{"current_rid":null,"status":"idle"}`
	}, 5*time.Second, 2*time.Millisecond)
}
