package probe

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"pd-router/internal/nixl"
	"pd-router/internal/nodes"
	"pd-router/internal/tilert"
)

// decodeProbe looks at one decode node.
type decodeProbe struct {
	addr nodes.Address
	ctrl *list // of the control port; one goroutine
	http *list // of the HTTP port; another, and after both the one of run

	ips   []netip.Addr // that the host resolves to, IPv4 first
	hello *tilert.Hello
	meta  *nixl.Metadata // of the hello; nil when there is none or it could not be read
	caps  *Capabilities
	busy  *bool
	rid   string
}

func newDecode(s *session, a nodes.Address) *decodeProbe {
	return &decodeProbe{addr: a, ctrl: &list{session: s, node: a.String()}, http: &list{session: s, node: a.String()}}
}

// found is what the report says of the node.
func (d *decodeProbe) found() DecodeNode {
	n := DecodeNode{Node: d.addr.String(), IPs: []string{}, Capabilities: d.caps, Busy: d.busy, RID: plain(d.rid)}
	for _, ip := range d.ips {
		n.IPs = append(n.IPs, ip.String())
	}
	if h := d.hello; h != nil {
		n.Hello = &Hello{
			ProtocolVersion: int(h.Protocol), LayoutVersion: h.LayoutVersion, Layout: layoutName(h.LayoutVersion), Transport: plain(h.Transport),
			Senders: h.Senders, MaxSeqLen: h.MaxSeqLen, Shards: len(h.KVBase), Busy: h.Busy,
			NIXLMetaBytes: len(h.NixlMeta), NIXLDev: h.NixlDev, SessionID: plain(h.SessionID),
		}
		if d.meta != nil {
			n.Hello.NIXLAgent = plain(d.meta.Agent)
		}
	}
	return n
}

func (d *decodeProbe) run(ctx context.Context) {
	if !d.ctrl.check(ctx, checkAddress, d.ctrl.opts.Limit, d.resolve) {
		d.ctrl.skip("its host was not found", checkControl, checkHello, checkTransport, checkConnect)
		d.http.skip("its host was not found", checkHealth, checkCapabilities, checkStatus)
		return
	}
	var g sync.WaitGroup
	g.Go(func() { d.control(ctx) })
	g.Go(func() { d.pages(ctx) })
	g.Wait()
	if d.hello != nil && d.hello.Busy && d.busy != nil && !*d.busy {
		d.http.amend(checkStatus, doubt("a node must belong to one router, and its control port to one prefill node: see that no other uses it",
			"idle, but its receive buffer is taken: KV is under way, or was left there less than 120 s ago"))
	}
}

// resolve finds the addresses of the host. The prefill node is told the host as it is given here, and its sender opens IPv4 connections
// only (spec 2.1).
func (d *decodeProbe) resolve(ctx context.Context) finding {
	if ip, err := netip.ParseAddr(d.addr.Host); err == nil {
		d.ips = []netip.Addr{ip.Unmap()}
	} else {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", d.addr.Host)
		if err != nil {
			return bad("correct the host in --decode, or the name service", "%s", why(ctx, err))
		}
		for _, ip := range ips {
			d.ips = append(d.ips, ip.Unmap())
		}
		slices.SortStableFunc(d.ips, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	}
	var names []string
	for _, ip := range d.ips {
		names = append(names, ip.String())
	}
	text := strings.Join(names, ", ")
	if len(d.ips) == 0 || !d.ips[0].Is4() {
		return doubt("give a name or address that is IPv4 on the prefill node: its sender opens no others", "no IPv4 address: %s", text)
	}
	return good("%s", text)
}

// pages reads the pages of the HTTP port.
func (d *decodeProbe) pages(ctx context.Context) {
	limit := d.http.opts.Limit
	up, err := nodes.NewUpstream("http://"+net.JoinHostPort(d.addr.Host, strconv.Itoa(d.addr.HTTPPort)), nodes.Options{ConnectTimeout: 2 * limit})
	if err != nil {
		d.http.add(checkHealth, bad(decodeOrder, "%s", err), 0)
		d.http.skip("the HTTP port cannot be named", checkCapabilities, checkStatus)
		return
	}
	defer up.Close()
	if !d.http.check(ctx, checkHealth, limit, func(ctx context.Context) finding { return decodeHealth(ctx, up) }) {
		d.http.skip("the HTTP port does not answer as it should", checkCapabilities, checkStatus)
		return
	}
	d.http.check(ctx, checkCapabilities, limit, func(ctx context.Context) finding { return d.capabilities(ctx, up) })
	d.http.check(ctx, checkStatus, limit, func(ctx context.Context) finding { return d.status(ctx, up) })
}

const decodeOrder = "see that the node runs and that --decode is host:ctrl_port:http_port, in that order"

func decodeHealth(ctx context.Context, up *nodes.Upstream) finding {
	status, _, err := get(ctx, up, "/health", nil)
	switch {
	case err != nil:
		return bad(decodeOrder, "GET /health: %s", why(ctx, err))
	case status != http.StatusOK:
		return bad("see the node's log; "+decodeOrder, "GET /health answered %d", status)
	}
	return good("200")
}

// capabilities of the engine. A node without the page, or with another answer, counts as having none; such requests are then refused, and
// all others served.
func (d *decodeProbe) capabilities(ctx context.Context, up *nodes.Upstream) finding {
	const none = "penalties, ignore_eos and log-probs are refused for this node until the page can be read"
	status, page, err := get(ctx, up, "/capabilities", nil)
	switch {
	case err != nil:
		return bad("see the node's log", "GET /capabilities: %s", why(ctx, err))
	case status == http.StatusNotFound:
		d.caps = &Capabilities{}
		return good("no such page, as on nodes of protocol 1: no penalties, ignore_eos, log-probs")
	case status != http.StatusOK:
		return doubt(none, "GET /capabilities answered %d", status)
	case !json.Valid(page):
		return doubt(none, "GET /capabilities is not JSON")
	}
	c := nodes.ParseCapabilities(page)
	d.caps = capabilitiesOf(c)
	var has []string
	for _, x := range []struct {
		name string
		on   bool
	}{{"penalties", c.Penalties}, {"ignore_eos", c.IgnoreEOS}, {"log-probs", c.LogProbs}} {
		if x.on {
			has = append(has, x.name)
		}
	}
	if len(has) == 0 {
		return good("none of penalties, ignore_eos, log-probs")
	}
	return good("%s", strings.Join(has, ", "))
}

// status of the slot. A node that works before its router has begun works for somebody else.
func (d *decodeProbe) status(ctx context.Context, up *nodes.Upstream) finding {
	status, page, err := get(ctx, up, "/decode_status", nil)
	switch {
	case err != nil:
		return bad("see the node's log", "GET /decode_status: %s", why(ctx, err))
	case status != http.StatusOK:
		return bad("give a TileRT decode node: the router asks this page when a request was cancelled", "GET /decode_status answered %d", status)
	}
	var s struct {
		Status     string  `json:"status"`
		CurrentRID *string `json:"current_rid"`
	}
	if json.Unmarshal(page, &s) != nil || s.Status != "busy" && s.Status != "idle" {
		return bad("give a TileRT decode node: the router asks this page when a request was cancelled", "GET /decode_status says neither busy nor idle")
	}
	busy := s.Status == "busy"
	d.busy = &busy
	if s.CurrentRID != nil {
		d.rid = *s.CurrentRID
	}
	if busy {
		return doubt("a node must belong to one router: see that no other one uses it, unless this one is running already", "busy with %s", d.rid)
	}
	return good("idle")
}
