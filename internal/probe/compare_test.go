package probe

import (
	"fmt"
	"net/netip"
	"testing"

	"pd-router/internal/nixl"
	"pd-router/internal/nodes"
	"pd-router/internal/tilert"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// told is a decode node that has been looked at: n gives it address, ports and a good hello that change may spoil.
func told(n int, change func(*decodeProbe)) *decodeProbe {
	d := newDecode(newSession(Options{}), nodes.Address{Host: fmt.Sprintf("10.0.0.%d", n), CtrlPort: 5556, HTTPPort: 5557})
	d.ips = []netip.Addr{netip.MustParseAddr(d.addr.Host)}
	d.hello = &tilert.Hello{Magic: tilert.Magic, Protocol: 2, LayoutVersion: 10, Transport: "nixl", MaxSeqLen: 4096, Senders: 8, NixlMeta: fmt.Append(nil, n)}
	d.meta = &nixl.Metadata{Agent: fmt.Sprintf("10.0.0.%d:7", n)}
	if change != nil {
		change(d)
	}
	return d
}

// compared are the results of the checks of all nodes together, by name.
func compared(t *testing.T, p *prefillProbe, ds ...*decodeProbe) map[string]CheckResult {
	l := &list{session: newSession(Options{}), node: groupAll}
	compare(l, p, ds)
	require.Len(t, l.checks, len(Names.All))
	out := map[string]CheckResult{}
	for i, c := range l.checks {
		assert.Equal(t, Names.All[i], c.Check)
		out[c.Check] = c
	}
	return out
}

func prefillAt(url string, window int) *prefillProbe {
	p := newPrefill(newSession(Options{}), url)
	p.found.Models = []Model{{"m", window}}
	return p
}

func TestNodesThatAreOneNode(t *testing.T) {
	for _, tc := range []struct {
		name   string
		second func(d *decodeProbe)
		want   string
	}{
		{"two names of one address", func(d *decodeProbe) {
			d.addr.Host = "alias"
			d.ips = []netip.Addr{netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("10.0.0.1")}
		}, "10.0.0.1:5556:5557 and alias:5556:5557 share 10.0.0.1:5556"},
		{"one port for two purposes", func(d *decodeProbe) {
			d.addr.Host, d.addr.CtrlPort, d.addr.HTTPPort = "alias", 5557, 5558
			d.ips = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		}, "share 10.0.0.1:5557"},
		{"one node under two addresses", func(d *decodeProbe) { d.hello.NixlMeta = []byte("1") }, "tell the same NIXL metadata: they are one node"},
		{"one name of two agents", func(d *decodeProbe) { d.meta.Agent = "10.0.0.1:7" }, "have NIXL agents of one name, 10.0.0.1:7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := compared(t, prefillAt("http://10.0.0.9:1", 4096), told(1, nil), told(2, tc.second))[checkAddresses]
			assert.Equal(t, Fail, c.Status)
			assert.Contains(t, c.Detail, tc.want)
		})
	}
	mooncake := func(d *decodeProbe) {
		d.hello.Transport, d.hello.NixlMeta, d.meta, d.hello.SessionID = "mooncake", nil, nil, "10.0.0.1:9"
	}
	c := compared(t, prefillAt("http://10.0.0.9:1", 4096), told(1, mooncake), told(2, mooncake))[checkAddresses]
	assert.Contains(t, c.Detail, "the same mooncake session")
}

func TestNodesThatAreTwoNodes(t *testing.T) {
	same := func(d *decodeProbe) {
		d.addr.Host, d.addr.CtrlPort, d.addr.HTTPPort = "10.0.0.1", 5566, 5567
		d.ips = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	}
	c := compared(t, prefillAt("http://10.0.0.9:1", 4096), told(1, nil), told(2, same), told(3, func(d *decodeProbe) { d.hello, d.meta = nil, nil }))
	assert.Equal(t, OK, c[checkAddresses].Status)
	assert.Equal(t, "3 decode nodes, no two alike", c[checkAddresses].Detail)
	assert.Equal(t, "2 nodes agree; 1 of 3 told none", c[checkHellos].Detail)
}

func TestALoopbackAddressIsOfNoUseToAPrefillNodeElsewhere(t *testing.T) {
	loop := func(d *decodeProbe) { d.ips = []netip.Addr{netip.MustParseAddr("127.0.0.1")} }
	for url, want := range map[string]Status{"http://10.0.0.9:1": Warn, "http://127.0.0.1:1": OK, "http://localhost:1": OK, "http://[::1]:1": OK, "http://gpu7": Warn} {
		assert.Equal(t, want, compared(t, prefillAt(url, 4096), told(1, loop))[checkAddresses].Status, url)
	}
}

func TestHellosThatDisagreeNameTheirNodes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(h *tilert.Hello)
		status Status
		want   string
	}{
		{"protocol", func(h *tilert.Hello) { h.Protocol = 1 }, Fail, "protocol_version is 2 on 10.0.0.1:5556:5557, 1 on 10.0.0.2:5556:5557"},
		{"layout", func(h *tilert.Hello) { h.LayoutVersion = 50 }, Fail, "layout_version is 10 on 10.0.0.1:5556:5557, 50 on 10.0.0.2:5556:5557"},
		{"transport", func(h *tilert.Hello) { h.Transport = "moon\ncake" }, Fail, "transport is nixl on 10.0.0.1:5556:5557, moon cake on 10.0.0.2:5556:5557"},
		{"senders", func(h *tilert.Hello) { h.Senders = 1 }, Fail, "senders is 8 on 10.0.0.1:5556:5557, 1 on 10.0.0.2:5556:5557"},
		{"window", func(h *tilert.Hello) { h.MaxSeqLen = 8192 }, Warn, "max_seq_len is 4096 on 10.0.0.1:5556:5557, 8192 on 10.0.0.2:5556:5557"},
		{"window and then senders", func(h *tilert.Hello) { h.MaxSeqLen, h.Senders = 8192, 1 }, Fail,
			"senders is 8 on 10.0.0.1:5556:5557, 1 on 10.0.0.2:5556:5557; max_seq_len is 4096 on 10.0.0.1:5556:5557, 8192 on 10.0.0.2:5556:5557"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := compared(t, prefillAt("http://10.0.0.9:1", 4096), told(1, nil), told(2, func(d *decodeProbe) { tc.change(d.hello) }))[checkHellos]
			assert.Equal(t, tc.status, c.Status)
			assert.Equal(t, tc.want, c.Detail)
			assert.NotEmpty(t, c.Advice)
		})
	}
}

func TestOneOfManyIsNamedAndTheMajorityIsNot(t *testing.T) {
	ds := []*decodeProbe{}
	for i := range 64 {
		ds = append(ds, told(i+1, func(d *decodeProbe) {
			if i == 9 || i == 40 {
				d.hello.Senders = 2
			}
		}))
	}
	c := compared(t, prefillAt("http://10.0.0.9:1", 4096), ds...)[checkHellos]
	assert.Equal(t, "senders is 2 on 10.0.0.10:5556:5557 and 10.0.0.41:5556:5557, 8 on the other 62", c.Detail)
}

func TestVLLMsWindowAgainstTheNodes(t *testing.T) {
	small := func(d *decodeProbe) { d.hello.MaxSeqLen = 1024 }
	c := compared(t, prefillAt("http://10.0.0.9:1", 4096), told(1, nil), told(2, small))[checkWindow]
	assert.Equal(t, Warn, c.Status)
	assert.Equal(t, "vLLM's max_model_len 4096 is more than max_seq_len 1024 of 10.0.0.2:5556:5557", c.Detail)
	assert.Contains(t, c.Advice, "--max-model-len 1024")
	assert.Equal(t, OK, compared(t, prefillAt("http://10.0.0.9:1", 1024), told(1, nil), told(2, small))[checkWindow].Status)
	assert.Equal(t, Unchecked, compared(t, prefillAt("http://10.0.0.9:1", 0), told(1, nil))[checkWindow].Status)
	assert.Equal(t, Unchecked, compared(t, prefillAt("http://10.0.0.9:1", 1), told(1, func(d *decodeProbe) { d.hello = nil }))[checkWindow].Status)
}

func TestLayoutsAreNamed(t *testing.T) {
	for version, want := range map[int]string{10: "glm5 fp8_ds_mla", 50: "glm5 bf16", 252: "glm5_2 fp8_rocm", 111: "dsv32 fp8_ds_mla, tiled KI",
		1010: "glm5 fp8_ds_mla, without draft layer", 9008: "tiny, of simulated nodes", 9009: ""} {
		assert.Equal(t, want, layoutName(version), version)
	}
}
