package tilert

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DeriveRID returns the handoff id that belongs to a vLLM request id (spec 3). The connector applies the same rule to
// vLLM's internal id, which is the response id with one more random suffix: the two agree for ids made by NewRequestID
// and for UUIDs, and disagree for ids that themselves end in a short group of hex digits.
func DeriveRID(id string) string {
	if rest, ok := strings.CutPrefix(id, "chatcmpl-"); ok {
		id = rest
	} else {
		id = strings.TrimPrefix(id, "cmpl-")
	}
	if i := strings.LastIndexByte(id, '-'); i >= 0 && isShortHex(id[i+1:]) {
		id = id[:i]
	}
	if i := strings.LastIndexByte(id, '-'); i >= 0 && isShortNumber(id[i+1:]) {
		id = id[:i]
	}
	return id
}

// NewRequestID returns 32 random lower-case hex digits: an id that DeriveRID leaves alone on both sides. The source is
// the runtime's ChaCha8 generator, seeded by the operating system, so an outsider cannot guess the id of a request.
func NewRequestID() string {
	var raw [16]byte
	var text [32]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	hex.Encode(text[:], raw[:])
	return string(text[:])
}

// isShortHex reports at most 8 characters, all of 0-9a-f. An empty tail counts.
func isShortHex(s string) bool {
	if len(s) > 8 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isShortNumber reports one to three digits, counted in characters.
func isShortNumber(s string) bool {
	n := 0
	for _, r := range s {
		if n++; n > 3 || !isDigit(r) {
			return false
		}
	}
	return n > 0
}

// isDigit is the digit test of Python's str.isdigit, which the other side uses: decimal digits of any script and the
// superscripts, circled digits and the like that have a digit value.
func isDigit(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9'
	}
	return unicode.IsDigit(r) || unicode.Is(otherDigits, r)
}

// otherDigits are the characters with Numeric_Type=Digit, which are not in category Nd.
var otherDigits = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0xb2, 0xb3, 1}, {0xb9, 0xb9, 1}, {0x1369, 0x1371, 1}, {0x19da, 0x19da, 1}, {0x2070, 0x2070, 1}, {0x2074, 0x2079, 1},
		{0x2080, 0x2089, 1}, {0x2460, 0x2468, 1}, {0x2474, 0x247c, 1}, {0x2488, 0x2490, 1}, {0x24ea, 0x24ea, 1}, {0x24f5, 0x24fd, 1},
		{0x24ff, 0x24ff, 1}, {0x2776, 0x277e, 1}, {0x2780, 0x2788, 1}, {0x278a, 0x2792, 1},
	},
	R32: []unicode.Range32{
		{0x10a40, 0x10a43, 1}, {0x10e60, 0x10e68, 1}, {0x11052, 0x1105a, 1}, {0x1f100, 0x1f10a, 1},
	},
	LatinOffset: 2,
}
