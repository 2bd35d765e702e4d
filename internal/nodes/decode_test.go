package nodes

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request finds a node dead while its page of capabilities is being read: what was read is of the process before, and the page is
// read again with the next look.
func TestCapabilitiesOfAProcessThatDiedAreReadAgain(t *testing.T) {
	reading, goOn := make(chan struct{}), make(chan struct{})
	var pages atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/capabilities" {
			if pages.Add(1) == 1 {
				close(reading)
				<-goOn
				return // the page of the old process, which could nothing
			}
			fmt.Fprint(w, `{"penalties":true}`)
		}
	}))
	defer s.Close()
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	require.NoError(t, err)
	a := Address{Host: host, CtrlPort: 1}
	a.HTTPPort, err = strconv.Atoi(port)
	require.NoError(t, err)
	d, err := NewDecode(a, Options{ConnectTimeout: time.Second}, func(*Decode, bool, error) {})
	require.NoError(t, err)
	defer d.Close()
	d.health.up = true // as after an earlier look
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Run(ctx)
	}()
	<-reading
	d.Failed(net.ErrClosed)
	close(goOn)
	require.Eventually(t, func() bool { return d.Capabilities().Penalties }, 5*time.Second, time.Millisecond)
	stop()
	<-ended
}
