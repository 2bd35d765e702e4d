package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// start is how long the router takes to serve and to end, and what it holds when idle: with this benchmark's own tokenizer, and with one as
// large as a model's.
func (b *bench) start() error {
	small := b.dir
	defer func() { b.dir = small }()
	large := filepath.Join(small, "large")
	if err := os.Mkdir(large, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(large, "tokenizer.json"), []byte(largeTokenizer()), 0o600); err != nil {
		return err
	}
	for _, tc := range []struct{ name, dir string }{{"small tokenizer", small}, {"large tokenizer", large}} {
		b.dir = tc.dir
		ready, rss, stop := newRow("start to ready, "+tc.name, "%.0f ms"), newRow("RSS idle, "+tc.name, "%.1f MB"), newRow("SIGTERM to exit, "+tc.name, "%.1f ms")
		for range b.repeats {
			begin := time.Now()
			t, err := b.pdRouter(1).start(b.nodes)
			if err != nil {
				return err
			}
			if err := t.healthy(); err != nil {
				return err
			}
			ready.add(router, float64(time.Since(begin).Microseconds())/1e3)
			if err := t.ready(); err != nil {
				return err
			}
			time.Sleep(3 * time.Second) // what reading the tokenizer took goes back
			rss.add(router, float64(t.rss())/(1<<20))
			stop.add(router, float64(t.stop().Microseconds())/1e3)
		}
		fmt.Println(ready)
		fmt.Println(rss)
		fmt.Println(stop)
	}
	return nil
}

// healthy waits until the router says that it serves.
func (t *target) healthy() error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		resp, err := http.Get("http://" + t.addr + "/health")
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("%s does not become healthy", t.name)
}

// largeTokenizer has 150,000 words and as many merges.
func largeTokenizer() string {
	const words = 150_000
	var merges strings.Builder
	for i := range words {
		if i > 0 {
			merges.WriteByte(',')
		}
		fmt.Fprintf(&merges, `["%d","%d"]`, i/1000, i%1000)
	}
	return strings.Replace(tokenizer(words), `"merges":[]`, `"merges":[`+merges.String()+`]`, 1)
}
