package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// Models is the prefill node's model list as it was last read.
type Models struct {
	Page        []byte // the body of GET /v1/models
	MaxModelLen int    // of the first model; 0 when it is not told
}

// Prefill is the vLLM prefill node.
type Prefill struct {
	*health
	*Upstream

	onChange func(*Prefill, bool, error)
	models   atomic.Pointer[Models]
	modelsAt time.Time // next time to read the list; Run's goroutine only
	sick     atomic.Pointer[string]
}

// modelsRefresh is how often the model list is read again.
const modelsRefresh = 60 * time.Second

// NewPrefill returns the client of the node at url. onChange is told when it becomes reachable or stops to be, from
// the goroutine of Run or of Failed.
func NewPrefill(url string, o Options, onChange func(p *Prefill, up bool, err error)) (*Prefill, error) {
	up, err := NewUpstream(url, o)
	if err != nil {
		return nil, err
	}
	p := &Prefill{Upstream: up, onChange: onChange}
	p.models.Store(&Models{})
	p.health = newHealth(p.look, p.changed)
	return p, nil
}

// Models as they were last read; never nil.
func (p *Prefill) Models() *Models { return p.models.Load() }

// Sick is what the node's own health page complained about last, "" when it was well.
func (p *Prefill) Sick() string {
	if s := p.sick.Load(); s != nil {
		return *s
	}
	return ""
}

func (p *Prefill) changed(up bool, err error) {
	if !up {
		p.modelsAt = time.Time{}
	}
	p.onChange(p, up, err)
}

// look is the probe. Before the node has answered 200 for the first time it is not up, as it may still be loading
// its weights. Later only a node that cannot be reached counts as down: an overloaded engine whose health page
// complains may still answer requests, and tells by their status when it cannot.
func (p *Prefill) look(ctx context.Context) error {
	status, _, err := p.get(ctx, "/health")
	if err != nil {
		return err
	}
	sick := ""
	if status != http.StatusOK {
		sick = fmt.Sprintf("GET /health answered %d", status)
	}
	p.sick.Store(&sick)
	if sick != "" && !p.Seen() {
		return fmt.Errorf("%s: %s", p.Addr(), sick)
	}
	if time.Now().After(p.modelsAt) && sick == "" {
		p.readModels(ctx)
	}
	return nil
}

func (p *Prefill) readModels(ctx context.Context) {
	status, page, err := p.get(ctx, "/v1/models")
	if err != nil || status != http.StatusOK {
		return
	}
	p.modelsAt = time.Now().Add(modelsRefresh)
	var list struct {
		Data []struct {
			MaxModelLen int `json:"max_model_len"`
		} `json:"data"`
	}
	m := &Models{Page: page}
	if json.Unmarshal(page, &list) == nil && len(list.Data) > 0 {
		m.MaxModelLen = list.Data[0].MaxModelLen
	}
	p.models.Store(m)
}

// get reads a small page.
func (u *Upstream) get(ctx context.Context, path string) (status int, page []byte, err error) {
	resp, err := u.Do(ctx, &Call{Method: "GET", Path: path, HeadTimeout: probeTimeout, IdleTimeout: probeTimeout})
	if err != nil {
		return 0, nil, err
	}
	defer resp.Close()
	page, err = resp.ReadAll(smallReply)
	return resp.Status, page, err
}
