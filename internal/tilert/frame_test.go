package tilert

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFrames(t *testing.T) {
	b, err := AppendFrame(nil, map[string]int{"a": 1})
	require.NoError(t, err)
	assert.Equal(t, "\x00\x00\x00\x07{\"a\":1}", string(b))

	r := iotest.OneByteReader(strings.NewReader("\x00\x00\x00\x08{\"a\": 1}\x00\x00\x00\x00"))
	got, err := ReadFrame(r, nil)
	require.NoError(t, err)
	assert.Equal(t, `{"a": 1}`, string(got))
	got, err = ReadFrame(r, got)
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = ReadFrame(r, got)
	assert.Equal(t, io.EOF, err, "the end between two frames")
}

func TestFramesThatAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     error
	}{
		{"half a length", "\x00\x00", io.ErrUnexpectedEOF},
		{"no payload", "\x00\x00\x00\x08", io.ErrUnexpectedEOF},
		{"half a payload", "\x00\x00\x00\x08{\"a\"", io.ErrUnexpectedEOF},
		{"one byte over the limit", "\x01\x00\x00\x01x", ErrFrameTooLong},
		{"the largest length there is", "\xff\xff\xff\xffx", ErrFrameTooLong},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ReadFrame(strings.NewReader(tc.in), nil)
			assert.ErrorIs(t, err, tc.want)
		})
	}
}

// greedy notes the largest read that was asked of it.
type greedy struct {
	io.Reader
	most int
}

func (g *greedy) Read(p []byte) (int, error) {
	g.most = max(g.most, len(p))
	return g.Reader.Read(p)
}

// A stranger who declares 16 MiB and sends nothing costs a small buffer.
func TestMemoryFollowsTheBytesThatCame(t *testing.T) {
	r := &greedy{Reader: bytes.NewReader(append([]byte{0x01, 0, 0, 0}, make([]byte, 100)...))}
	_, err := ReadFrame(r, nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.LessOrEqual(t, r.most, 64<<10)
}

func TestALargeFrameArrivesWhole(t *testing.T) {
	in := strings.Repeat("x", 3<<20)
	b, err := AppendFrame(nil, in)
	require.NoError(t, err)
	got, err := ReadFrame(bytes.NewReader(b), nil)
	require.NoError(t, err)
	assert.Equal(t, `"`+in+`"`, string(got))
	_, err = AppendFrame(nil, strings.Repeat("x", MaxFrame))
	assert.ErrorIs(t, err, ErrFrameTooLong)
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"), 1)
	f.Add([]byte("\x00\x00\x00\x08{\"a\": 1}rest"), 3)
	f.Fuzz(func(t *testing.T, in []byte, step int) {
		got, err := ReadFrame(iotest.HalfReader(bytes.NewReader(in)), nil)
		if err == nil && string(got) != string(in[4:4+len(got)]) {
			t.Errorf("%q gave %q", in, got)
		}
	})
}
