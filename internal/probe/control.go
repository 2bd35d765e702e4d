package probe

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

// control looks at the control port: connects as a sender would, reads the hello, and leaves without a word, which has no effect on
// the node (spec 2.2).
func (d *decodeProbe) control(ctx context.Context) {
	o := &d.ctrl.opts
	var c net.Conn
	if !d.ctrl.check(ctx, checkControl, o.Limit, func(ctx context.Context) (f finding) { c, f = d.dial(ctx); return f }) {
		d.ctrl.skip("the control port cannot be reached", checkHello, checkTransport, checkConnect)
		return
	}
	ok := d.ctrl.check(ctx, checkHello, o.Limit, func(ctx context.Context) finding { return d.readHello(ctx, c) })
	_ = c.Close() // before Connect, which may take long
	if !ok {
		d.ctrl.skip("there is no usable hello", checkTransport, checkConnect)
		return
	}
	ok = d.ctrl.check(ctx, checkTransport, o.Limit, func(context.Context) finding { return d.transport() })
	switch {
	case !ok:
		d.ctrl.skip("the hello does not say how to reach the node's memory", checkConnect)
	case d.hello.Transport != transportNIXL:
		d.ctrl.skip("the transport is not NIXL", checkConnect)
	case o.Connect == nil:
		d.ctrl.skip("nobody asked for it (--nixl does)", checkConnect)
	default:
		d.connect(ctx, o)
	}
}

// dial opens the connection as the sender does: to the first IPv4 address, where there is one.
func (d *decodeProbe) dial(ctx context.Context) (net.Conn, finding) {
	var dialer net.Dialer
	to := netip.AddrPortFrom(d.ips[0], uint16(d.addr.CtrlPort)).String()
	c, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, bad("start the decode node, open port "+strconv.Itoa(d.addr.CtrlPort)+" to this host and to the prefill node, or correct --decode",
			"%s: %s", to, why(ctx, err))
	}
	return c, good("%s takes connections", to)
}

// readHello reads the first frame.
func (d *decodeProbe) readHello(ctx context.Context, c net.Conn) finding {
	defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })() // long ago: ends the read
	frame, err := tilert.ReadFrame(c, nil)
	if err != nil {
		return bad(decodeOrder, "no hello: %s", why(ctx, err))
	}
	h, err := tilert.ParseHello(frame)
	if corrupt := base64.CorruptInputError(0); errors.As(err, &corrupt) {
		return bad("see the node's log: the prefill node cannot use this metadata either", "hello: nixl_meta is not base64")
	}
	if err != nil {
		return bad(decodeOrder, "%s", err)
	}
	f := judgeHello(h)
	if f.status != Fail {
		d.hello = h
	}
	return f
}

// judgeHello looks at one hello alone (spec 2.2). What a sender compares with its own settings cannot be known here.
func judgeHello(h *tilert.Hello) finding {
	switch {
	case h.Magic != tilert.Magic:
		return bad(decodeOrder, "hello: magic is %q, want %q", h.Magic, tilert.Magic)
	case h.Protocol < tilert.Protocol1:
		return bad("update the node", "hello: protocol_version is %d", h.Protocol)
	case h.Senders < 1:
		return bad(sameSenders, "hello: senders is %d", h.Senders)
	case h.MaxSeqLen < 1:
		return bad("start the node with --max-seq-len", "hello: max_seq_len is %d", h.MaxSeqLen)
	}
	layout := layoutName(h.LayoutVersion)
	if layout == "" {
		layout = "of a model that this version does not know"
	}
	text := fmt.Sprintf("protocol %d, layout %d (%s), %s, %s, max_seq_len %d", h.Protocol, h.LayoutVersion, layout, h.Transport, count(h.Senders, "sender"), h.MaxSeqLen)
	if n := len(h.KVBase); n > 1 {
		text += ", " + count(n, "shard")
	}
	switch {
	case h.Protocol > tilert.Protocol2:
		return doubt("see whether there is a newer pd-router: this one knows protocols 1 and 2", "%s", text)
	case h.Senders > tilert.DefaultSenders:
		return doubt(sameSenders, "%s", text)
	}
	return good("%s", text)
}

// sameSenders is the advice where a number of senders is wrong: the prefill node compares it with its own, and a node that waits for a rank
// that does not send waits for ever (spec 2.2, 2.3).
const sameSenders = "set TILERT_PD_SENDERS to one number, 1 to 8, on the prefill node and on all decode nodes"

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Transports of the wire.
const (
	transportNIXL     = "nixl"
	transportMooncake = "mooncake"
	transportTCP      = "tcp" // of this project's simulated nodes
)

// transport looks at what a sender needs to reach the node's memory.
func (d *decodeProbe) transport() finding {
	switch h := d.hello; h.Transport {
	case transportNIXL:
		return d.metadata()
	case transportMooncake:
		host, port, err := net.SplitHostPort(h.SessionID)
		if n, _ := strconv.Atoi(port); err != nil || host == "" || n < 1 || n > 65535 {
			return bad("see the node's log", "mooncake: session_id is %q, want host:port", h.SessionID)
		}
		if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() && !d.ips[0].IsLoopback() {
			return doubt("set TILERT_PD_PROBE_ADDR on the node to an address that lies beyond the network towards prefill", "mooncake: session %s is reachable on the node itself only", h.SessionID)
		}
		return good("mooncake: session %s", h.SessionID)
	case transportTCP:
		if h.DataPort < 1 || h.DataPort > 65535 {
			return bad("start the simulated node anew", "tcp: data_port is %d", h.DataPort)
		}
		return good("tcp, data port %d: a simulated node", h.DataPort)
	default:
		return doubt("start the node with --transport as the prefill node has tilert_transport", "%q is unknown to this version", h.Transport)
	}
}

// metadata looks at the NIXL blob: what it says, and whether the memory it names is the memory that the hello names.
func (d *decodeProbe) metadata() finding {
	h := d.hello
	if len(h.NixlMeta) == 0 {
		return bad("see the node's log: it has no NIXL agent", "nixl: the hello has no nixl_meta")
	}
	size := fmt.Sprintf("nixl: %d bytes of metadata (base64)", len(h.NixlMeta))
	m, err := nixl.ParseMetadata(h.NixlMeta)
	if err != nil {
		return doubt("see that both nodes have the same NIXL version", "%s, of a form that is unknown: %s", size, err)
	}
	d.meta = m
	regions, bytes, kinds := 0, uint64(0), map[nixl.MemType]bool{}
	for _, s := range m.Sections {
		for _, r := range s.Descs {
			regions, bytes, kinds[s.Mem] = regions+1, bytes+r.Len, true
		}
	}
	kind := "DRAM"
	switch {
	case kinds[nixl.VRAM] && kinds[nixl.DRAM]:
		kind = "DRAM and VRAM"
	case kinds[nixl.VRAM]:
		kind = "VRAM"
	}
	text := fmt.Sprintf("%s, agent %s, %s of %s with %d bytes", size, m.Agent, count(regions, "region"), kind, bytes)
	for _, base := range h.KVBase {
		if !registered(m, base) {
			return doubt("restart the node: its metadata and its buffer are not of one run", "%s, none of which holds kv_base %#x", text, base)
		}
	}
	return good("%s", text)
}

// registered says whether a peer may write at addr. The device is not compared: of a sharded buffer the hello tells one only.
func registered(m *nixl.Metadata, addr uint64) bool {
	for _, s := range m.Sections {
		for _, r := range s.Descs {
			if addr >= r.Addr && addr-r.Addr < r.Len {
				return true
			}
		}
	}
	return false
}

// connect has NIXL take the node as a peer.
func (d *decodeProbe) connect(ctx context.Context, o *Options) {
	d.ctrl.check(ctx, checkConnect, o.ConnectLimit, func(ctx context.Context) finding {
		err := o.Connect(ctx, d.hello.NixlMeta)
		switch {
		case errors.Is(err, nixl.ErrNoLibrary) || errors.Is(err, nixl.ErrUnsupported):
			return bad("set "+nixl.PathVariable+" to libnixl_capi.so of the NIXL that vLLM uses, or do not ask for this check", "%s", err)
		case err != nil:
			return bad("run this on the prefill node's host, with its UCX_TLS and UCX_NET_DEVICES, and see that the network between the two is there",
				"%s", why(ctx, err))
		}
		return good("NIXL of this host takes the node as a peer; nothing was written")
	})
}
