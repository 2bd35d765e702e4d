package config

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "-0": 0, "0s": 0, "1800": 30 * time.Minute, "0.5": 500 * time.Millisecond, "1.25": 1250 * time.Millisecond, ".5": 500 * time.Millisecond,
		"1e3": 1000 * time.Second, "30s": 30 * time.Second, "1m30s": 90 * time.Second, "1.5h": 90 * time.Minute, "+5": 5 * time.Second, "5ms": 5 * time.Millisecond,
		"3153600000": MaxDuration, "1e-12": 0, "1e-999": 0,
	} {
		got, err := ParseDuration(in)
		assert.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", " ", "-1", "-1s", "-1e-300", "nan", "NaN", "inf", "+Inf", "infinity", "-inf", "1e999", "1e10", "3153600001", "876001h", "9223372036854775807",
		"0x10", "0x1p4", "1_000", "1,5", "5 s", "5sec", "soon", "1e", "--5", "1h-2m", "٣"} {
		_, err := ParseDuration(in)
		assert.Error(t, err, in)
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"1": 1, "67108864": 64 << 20, "64MiB": 64 << 20, "4GiB": 4 << 30, "1KiB": 1024, "9223372036854775807": math.MaxInt64, "8589934591GiB": 8589934591 << 30} {
		got, err := ParseSize(in)
		assert.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "0", "0GiB", "-1", "+1", "1.5GiB", "64MB", "64mib", "64 MiB", "MiB", "9223372036854775808", "8589934592GiB", "1e6", "1_0", "1KiBKiB"} {
		_, err := ParseSize(in)
		assert.Error(t, err, in)
	}
}

func TestParseNode(t *testing.T) {
	for in, want := range map[string]Node{
		"127.0.0.1:5556:5557":     {"127.0.0.1", 5556, 5557},
		"node-7.rack_2.lan.:1:2":  {"node-7.rack_2.lan.", 1, 2},
		"[::1]:5556:5557":         {"::1", 5556, 5557},
		"::1:5556:5557":           {"::1", 5556, 5557},
		"2001:db8::7:5556:5557":   {"2001:db8::7", 5556, 5557},
		"fe80::1%eth0:5556:65535": {"fe80::1%eth0", 5556, 65535},
		"[::ffff:10.0.0.1]:1:2":   {"::ffff:10.0.0.1", 1, 2},
	} {
		got, err := ParseNode(in)
		assert.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", ":", ":::", "127.0.0.1", "127.0.0.1:5557", "127.0.0.1:a:b", "127.0.0.1:1:99999", "h:0:1", "h:1:0", "h:1:65536", "h:+1:2", "h:-1:2",
		"h: 1:2", "h:1:2 ", ":1:2", "[]:1:2", "[h]:1:2", "[10.0.0.1]:1:2", "[::1:1:2", "::1]:1:2", "http://h:1:2", "h/x:1:2", "a:b:1:2", "h:1:1", "h:1:2,", "h,g:1:2", "ü:1:2", "h\x00:1:2",
		"h:00000000000000000000001:x", "1:2:3:4:5:6:7:1:2", "::% :1:2"} {
		_, err := ParseNode(in)
		assert.Error(t, err, in)
	}
}

func TestNodeAddresses(t *testing.T) {
	n := Node{"::1", 5556, 5557}
	assert.Equal(t, "[::1]:5556:5557", n.String())
	assert.Equal(t, "[::1]:5557", n.HTTPAddr())
	assert.Equal(t, "[::1]:5556", n.CtrlAddr())
	assert.Equal(t, "h:5556:5557", Node{"h", 5556, 5557}.String())
	assert.Equal(t, "[::]:1", Config{Host: "::", Port: 1}.Addr())
}

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://p:8000": "http://p:8000", "http://p:8000/": "http://p:8000", "http://p:8000//": "http://p:8000", "https://p": "https://p", "HTTP://p": "http://p",
		"http://[::1]:8000/base/": "http://[::1]:8000/base", "http://10.0.0.1:8000/v1": "http://10.0.0.1:8000/v1",
	} {
		got, err := parseURL(in)
		assert.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "p:8000", "10.0.0.1:8000", "ftp://p", "http://", "http:///x", "http://p:0", "http://p:99999", "http://p:", "http://p:x", "http://u:p@h", "http://p?x=1", "http://p?",
		"http://p#x", "http://p#", "http:p", "//p", "http://p q", "http://p,q", "http://a:1,http://b:2", "http://p/%zz", "http://p\n"} {
		_, err := parseURL(in)
		assert.Error(t, err, in)
	}
}

func TestParseAddr(t *testing.T) {
	for in, want := range map[string]string{":9090": ":9090", "0.0.0.0:9090": "0.0.0.0:9090", "[::]:9090": "[::]:9090", "localhost:1": "localhost:1"} {
		got, err := parseAddr(in)
		assert.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "9090", ":0", ":x", "h:65536", "a b:1", "::1:1"} {
		_, err := parseAddr(in)
		assert.Error(t, err, in)
	}
}

func TestParseObject(t *testing.T) {
	for _, in := range []string{"{}", ` {"a":{"B":[1.0]}} `} {
		got, err := parseObject(in)
		assert.NoError(t, err, in)
		assert.Equal(t, strings.TrimSpace(in), string(got), "the bytes are kept")
	}
	for _, in := range []string{"", " ", "null", "[]", "1", `"{}"`, "{", "{}{}", "{'a':1}"} {
		_, err := parseObject(in)
		assert.Error(t, err, in)
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"0", "1800", "0.5", "1m30s", "-1", "nan", "1e999", "1e-999", "0x1p4", "9223372036854775807", "100000000000h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			return
		}
		if d < 0 || d > MaxDuration || d+d < 0 { // invariant 4
			t.Fatalf("ParseDuration(%q) = %d", s, d)
		}
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Fatalf("ParseDuration(%q) = %v, and of that %v, %v", s, d, again, err)
		}
	})
}

func FuzzParseNode(f *testing.F) {
	for _, s := range []string{"h:1:2", "[::1]:5556:5557", "::1:5556:5557", ":::", "fe80::1%eth0:1:2", "h:1:99999", "[::1]]:1:2", "h:\xff:2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNode(s)
		if err != nil {
			return
		}
		if n.Host == "" || strings.ContainsAny(n.Host, "[]/, \t\n") || n.Ctrl < 1 || n.Ctrl > 65535 || n.HTTP < 1 || n.HTTP > 65535 || n.Ctrl == n.HTTP {
			t.Fatalf("ParseNode(%q) = %+v", s, n)
		}
		if again, err := ParseNode(n.String()); err != nil || again != n {
			t.Fatalf("ParseNode(%q) = %v, and of that %v, %v", s, n, again, err)
		}
	})
}
