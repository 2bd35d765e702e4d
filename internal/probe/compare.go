package probe

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"pd-router/internal/tilert"
)

// compare looks at what no single node shows.
func compare(l *list, p *prefillProbe, ds []*decodeProbe) {
	l.add(checkAddresses, addresses(p.found.URL, ds), 0)
	l.add(checkHellos, hellos(ds), 0)
	l.add(checkWindow, window(p, ds), 0)
}

// addresses finds nodes that are one node in truth, or that a sender would take for one. Each would have its one slot used twice.
func addresses(vllm string, ds []*decodeProbe) finding {
	var shared, doubts []string
	for i, a := range ds {
		for _, b := range ds[:i] {
			if same := sameNode(b, a); same != "" {
				shared = append(shared, fmt.Sprintf("%s and %s %s", b.addr, a.addr, same))
			}
		}
		if a.loopback() && vllm != "" && !loopbackURL(vllm) {
			doubts = append(doubts, a.addr.String())
		}
	}
	switch {
	case len(shared) > 0:
		return bad("give each node once in --decode, each NIXL agent another name (TileRT's is its IP address and process id), and start nodes that were meant to be two",
			"%s", strings.Join(shared, "; "))
	case len(doubts) > 0:
		return doubt("give the address that the prefill node reaches them by", "%s: the prefill node will take this address for itself", strings.Join(doubts, ", "))
	case len(ds) < 2:
		return good("one decode node")
	}
	return good("%d decode nodes, no two alike", len(ds))
}

func (d *decodeProbe) loopback() bool { return len(d.ips) > 0 && d.ips[0].IsLoopback() }

// loopbackURL says whether the prefill node's address is one of this host alone. A name other than localhost counts as another host's.
func loopbackURL(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.IsLoopback() || strings.EqualFold(u.Hostname(), "localhost")
}

// sameNode says in which way two targets are not two nodes, "" when they are.
func sameNode(a, b *decodeProbe) string {
	for _, ip := range a.ips {
		if !slices.Contains(b.ips, ip) {
			continue
		}
		for _, port := range []int{a.addr.CtrlPort, a.addr.HTTPPort} {
			if port == b.addr.CtrlPort || port == b.addr.HTTPPort {
				return "share " + net.JoinHostPort(ip.String(), fmt.Sprint(port))
			}
		}
	}
	ha, hb := a.hello, b.hello
	if ha == nil || hb == nil {
		return ""
	}
	switch {
	case len(ha.NixlMeta) > 0 && string(ha.NixlMeta) == string(hb.NixlMeta):
		return "tell the same NIXL metadata: they are one node"
	case ha.SessionID != "" && ha.SessionID == hb.SessionID:
		return "tell the same mooncake session " + plain(ha.SessionID) + ": they are one node"
	case a.meta != nil && b.meta != nil && a.meta.Agent == b.meta.Agent:
		return "have NIXL agents of one name, " + plain(a.meta.Agent) + ": prefill can send to one of them only"
	}
	return ""
}

// hellos compares what the nodes told. One prefill node has one layout, one number of senders and one transport: where nodes differ, the
// requests of some of them would all fail.
func hellos(ds []*decodeProbe) finding {
	var told []*decodeProbe
	for _, d := range ds {
		if d.hello != nil {
			told = append(told, d)
		}
	}
	if len(told) == 0 {
		return unchecked("no node has told its hello")
	}
	status, advice, differ := OK, "", []string(nil)
	for _, field := range []struct {
		name   string
		of     func(*tilert.Hello) string
		worst  Status
		advice string
	}{
		{"protocol_version", func(h *tilert.Hello) string { return fmt.Sprint(int(h.Protocol)) }, Fail, "give all nodes the same TileRT version"},
		{"layout_version", func(h *tilert.Hello) string { return fmt.Sprint(h.LayoutVersion) }, Fail, "start all nodes with one --model and --kv-cache-dtype"},
		{"transport", func(h *tilert.Hello) string { return plain(h.Transport) }, Fail, "start all nodes with one --transport"},
		{"senders", func(h *tilert.Hello) string { return fmt.Sprint(h.Senders) }, Fail, sameSenders},
		{"max_seq_len", func(h *tilert.Hello) string { return fmt.Sprint(h.MaxSeqLen) }, Warn, "start all nodes with one --max-seq-len: a long prompt fails on those with less"},
	} {
		groups := group(told, field.of)
		if len(groups) == 1 {
			continue
		}
		differ = append(differ, field.name+" is "+strings.Join(groups, ", "))
		if status == OK { // the first that differs is the worst
			status, advice = field.worst, field.advice
		}
	}
	text := strings.Join(differ, "; ")
	if status == OK {
		text = fmt.Sprintf("%d nodes agree", len(told))
		if len(told) == 1 {
			text = "one node has told its hello"
		}
	}
	if n := len(ds) - len(told); n > 0 {
		text += fmt.Sprintf("; %d of %d told none", n, len(ds))
	}
	return finding{status, text, advice}
}

// group says which nodes have which value: "12 on a and b", "10 on the other 14". Only a majority of more than two is not named.
func group(ds []*decodeProbe, of func(*tilert.Hello) string) []string {
	var values []string
	nodes := map[string][]string{}
	for _, d := range ds {
		v := of(d.hello)
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
		nodes[v] = append(nodes[v], d.addr.String())
	}
	slices.SortStableFunc(values, func(a, b string) int { return len(nodes[a]) - len(nodes[b]) })
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = v + " on "
		if n := len(nodes[v]); n > 2 && 2*n > len(ds) {
			out[i] += fmt.Sprintf("the other %d", n)
		} else {
			out[i] += strings.Join(nodes[v], " and ")
		}
	}
	return out
}

// window compares how long a sequence both sides take. vLLM refuses what is too long for it; what is too long for a decode node alone is
// prefilled in vain.
func window(p *prefillProbe, ds []*decodeProbe) finding {
	most := p.window()
	least, short, told := 0, []string(nil), 0
	for _, d := range ds {
		if d.hello == nil {
			continue
		}
		told++
		if n := d.hello.MaxSeqLen; n < most {
			short = append(short, fmt.Sprintf("%d of %s", n, d.addr))
		}
		if least == 0 || d.hello.MaxSeqLen < least {
			least = d.hello.MaxSeqLen
		}
	}
	switch {
	case most == 0:
		return unchecked("vLLM has not told its max_model_len")
	case told == 0:
		return unchecked("no node has told its hello")
	case len(short) > 0:
		return doubt(fmt.Sprintf("start vLLM with --max-model-len %d, or the nodes with a larger --max-seq-len: longer prompts are prefilled in vain", least),
			"vLLM's max_model_len %d is more than max_seq_len %s", most, strings.Join(short, ", "))
	}
	return good("vLLM's max_model_len %d fits into every node (%d and more)", most, least)
}
