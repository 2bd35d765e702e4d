package probe

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"pd-router/internal/nodes"
)

// stream is a connection that brings these bytes and then ends.
type stream struct {
	net.Conn
	left []byte
}

func (s *stream) Read(b []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *stream) SetReadDeadline(time.Time) error { return nil }

// Whatever comes on a control port ends in one finding of one printable line, which says what to do unless all is well.
func FuzzHello(f *testing.F) {
	frame := func(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	f.Add(frame([]byte(`{"magic":"tilert-pd","protocol_version":2,"layout_version":10,"transport":"nixl","max_seq_len":256,"busy":false,"nixl_meta":"bml4bFNlckRlc3w=","nixl_dev":0,"senders":2,"kv_base":1,"pe_base":2,"ki_base":3}`)))
	f.Add(frame([]byte(`{"magic":"tilert-pd","layout_version":10,"transport":"mooncake","max_seq_len":256,"session_id":"127.0.0.1:1","kv_base":[1,2],"pe_base":[2,3],"ki_base":[3,4],"nshards":2}`)))
	f.Add(frame([]byte(`{"magic":"tilert-pd","transport":"tcp","data_port":-1,"senders":9,"max_seq_len":1,"kv_base":1,"pe_base":2,"ki_base":3}`)))
	f.Add(frame([]byte(`{"magic":"\u001b[2J"}`)))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := newDecode(newSession(Options{}), nodes.Address{Host: "10.0.0.1", CtrlPort: 1, HTTPPort: 2})
		d.ips = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		d.ctrl.add(checkHello, d.readHello(t.Context(), &stream{left: b}), 0)
		if d.hello != nil {
			assert.Positive(t, d.hello.MaxSeqLen)
			d.ctrl.add(checkTransport, d.transport(), 0)
		}
		all := &list{session: d.ctrl.session, node: groupAll}
		compare(all, newPrefill(d.ctrl.session, "http://10.0.0.2:1"), []*decodeProbe{d, d})
		for _, c := range append(d.ctrl.checks, all.checks...) {
			assert.Equal(t, plain(c.Detail), c.Detail)
			assert.NotEmpty(t, c.Detail)
			assert.Equal(t, c.Status == Warn || c.Status == Fail, c.Advice != "", "%+v", c)
		}
		_ = d.found()
	})
}
