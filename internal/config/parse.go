package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxDuration is the longest time that a setting takes, 100 years: the sum of two still fits a time.Duration.
const MaxDuration = 100 * 365 * 24 * time.Hour

var errDuration = errors.New("want seconds (30, 0.5) or a duration such as 1m30s, from 0 to 100 years")

// ParseDuration reads a time: a decimal number of seconds, or a Go duration. The result is in [0, MaxDuration].
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		// ParseFloat would also take hexadecimal, "inf" and "nan".
		if s == "" || strings.Trim(s, "0123456789.eE+-") != "" {
			return 0, errDuration
		}
		seconds, err := strconv.ParseFloat(s, 64)
		if err != nil || seconds > MaxDuration.Seconds() {
			return 0, errDuration
		}
		d = time.Duration(math.Round(seconds * float64(time.Second)))
		if seconds < 0 {
			d = -1 // however small
		}
	}
	if d < 0 || d > MaxDuration {
		return 0, errDuration
	}
	return d, nil
}

var (
	errSize = errors.New("want a whole number of bytes, KiB, MiB or GiB such as 64MiB, 1 or more")
	units   = []struct {
		suffix string
		shift  uint
	}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}}
)

// ParseSize reads a number of bytes of at least 1: "1024", "64MiB".
func ParseSize(s string) (int64, error) {
	shift := uint(0)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, shift = rest, u.shift
			break
		}
	}
	n, ok := digits(s)
	if !ok || n < 1 || n > math.MaxInt64>>shift {
		return 0, errSize
	}
	return n << shift, nil
}

// digits reads a plain decimal number: no sign, no blanks, no underscores.
func digits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

var errArenaSizes = errors.New("want SLOTSxTOKENS with commas, such as 2x202752,8x32768")

func parseArenaSizes(s string) (sizes []ArenaSize, err error) {
	for part := range strings.SplitSeq(s, ",") {
		slots, tokens, ok := strings.Cut(part, "x")
		n, ok1 := digits(slots)
		room, ok2 := digits(tokens)
		if !ok || !ok1 || !ok2 || n < 1 || n > 1000 || room < 1 || room > math.MaxInt32 || len(sizes) == maxArenaSizes {
			return nil, errArenaSizes
		}
		sizes = append(sizes, ArenaSize{int(n), int(room)})
	}
	return sizes, nil
}

// maxArenaSizes is far more than anybody tells apart, and no more than the line before the arena does.
const maxArenaSizes = 16

func parseShare(s string) (float64, error) {
	return parseFloat(s, 0, 1, errors.New("want a number from 0 to 1"))
}

var errNode = errors.New("want host:ctrl_port:http_port such as 10.0.0.2:5556:5557, ports from 1 to 65535 and different")

// ParseNode reads host:ctrl_port:http_port. It is split from the right, so the host may be an IPv6 address, bare or in
// brackets (TileRT splits the same way, spec 0).
func ParseNode(s string) (Node, error) {
	rest, http, ok1 := cutLast(s)
	host, ctrl, ok2 := cutLast(rest)
	if !ok1 || !ok2 {
		return Node{}, errNode
	}
	var n Node
	var ok bool
	if n.HTTP, ok = port(http, 1); !ok {
		return Node{}, errNode
	}
	if n.Ctrl, ok = port(ctrl, 1); !ok || n.Ctrl == n.HTTP {
		return Node{}, errNode
	}
	if n.Host, ok = parseHost(host); !ok {
		return Node{}, errNode
	}
	return n, nil
}

// cutLast splits at the last colon.
func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// port reads a TCP port of at least lowest.
func port(s string, lowest int64) (int, bool) {
	n, ok := digits(s)
	return int(n), ok && n >= lowest && n <= 65535
}

// parseHost reads a name or an IP address and gives IPv6 without brackets, as dialers and connectors want it.
func parseHost(s string) (string, bool) {
	bracketed := strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]")
	if bracketed {
		s = s[1 : len(s)-1]
	}
	if bracketed || strings.Contains(s, ":") {
		addr, err := netip.ParseAddr(s) // takes any byte in a zone
		return s, err == nil && addr.Is6() && isName(addr.Zone())
	}
	return s, s != "" && isName(s)
}

// isName tells whether s has only characters of host names.
func isName(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == ""
}

// addNode appends one --decode value; a node given twice would have its one slot used twice.
func addNode(nodes []Node, s string) ([]Node, error) {
	n, err := ParseNode(s)
	if err != nil {
		return nil, err
	}
	for _, have := range nodes {
		if strings.EqualFold(have.Host, n.Host) && (have.HTTP == n.HTTP || have.Ctrl == n.Ctrl || have.HTTP == n.Ctrl || have.Ctrl == n.HTTP) {
			return nil, errors.New("shares a port with " + have.String() + "; want each node once")
		}
	}
	return append(nodes, n), nil
}

var errURL = errors.New("want http://host:port or https://host:port, a path is allowed, nothing behind it and no user name")

// parseURL reads the base URL of a node and trims slashes at its end.
func parseURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Opaque != "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(s, "#") {
		return "", errURL
	}
	if p := u.Port(); p != "" || strings.HasSuffix(u.Host, ":") {
		if _, ok := port(p, 1); !ok {
			return "", errURL
		}
	}
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		host = "[" + host + "]"
	}
	if _, ok := parseHost(host); !ok {
		return "", errURL
	}
	return strings.TrimRight(u.String(), "/"), nil
}

var errAddr = errors.New("want host:port such as 0.0.0.0:9090 or :9090")

// parseAddr reads the address of a listener; an empty host is every interface.
func parseAddr(s string) (string, error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", errAddr
	}
	if _, ok := port(p, 1); !ok {
		return "", errAddr
	}
	if host != "" {
		var ok bool
		if host, ok = parseHost(host); !ok {
			return "", errAddr
		}
	}
	return net.JoinHostPort(host, p), nil
}

var errObject = errors.New(`want a JSON object such as {"enable_thinking":false}`)

// parseObject reads a JSON object and keeps its bytes.
func parseObject(s string) (json.RawMessage, error) {
	b := bytes.TrimSpace([]byte(s))
	if !json.Valid(b) || b[0] != '{' {
		return nil, errObject
	}
	return b, nil
}

// parseFolder checks that a folder is there, so that a wrong path is told before anything starts.
func parseFolder(s string) (string, error) {
	if info, err := os.Stat(s); err != nil || !info.IsDir() {
		return "", errors.New("no such folder")
	}
	return s, nil
}

// parseFloat reads a decimal number within [low, high].
func parseFloat(s string, low, high float64, want error) (float64, error) {
	if s == "" || strings.Trim(s, "0123456789.eE+-") != "" {
		return 0, want
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < low || f > high {
		return 0, want
	}
	return f, nil
}

// parseChoice reads one of a few words.
func parseChoice(s string, words []string) (string, error) {
	if !slices.Contains(words, s) {
		return "", errors.New("want " + strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1])
	}
	return s, nil
}
