package nixl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// MemType is the kind of memory that a registration speaks of, with the library's numbers.
type MemType int32

const (
	DRAM MemType = 0
	VRAM MemType = 1
)

// Metadata is the blob by which an agent makes itself known to others: its name, how to reach it, and what memory it registered.
// The format is the library's own, unversioned and the same in all known versions (spec 3.4).
type Metadata struct {
	Agent    string
	Conns    []Conn
	Sections []Section
}

// Conn is how to reach the agent by one backend. Loading a blob makes the library connect to what Info says.
type Conn struct {
	Backend string
	Info    []byte
}

// Section is the registered memory of one kind.
type Section struct {
	Backend string
	Mem     MemType
	Descs   []Desc
}

// Desc is one registered piece of memory with the key that opens it.
type Desc struct {
	Addr, Len, Dev uint64
	Key            []byte
}

const (
	blobHeader = "nixlSerDes|"
	descFixed  = 24 // bytes of a descriptor before its key
	backendUCX = "UCX"
)

// ParseMetadata reads a blob completely: whatever it does not understand is an error that wraps ErrMetadata. What it returns shares
// memory with b. The library itself is less careful: a damaged blob can make a peer's name unusable for good, or end the process.
func ParseMetadata(b []byte) (*Metadata, error) {
	r := blobReader{all: b}
	if !bytes.HasPrefix(b, []byte(blobHeader)) {
		return nil, fmt.Errorf("nixl: %w: no header", ErrMetadata)
	}
	r.at = len(blobHeader)
	m := &Metadata{Agent: string(r.field("Agent"))}
	for range r.count("Conns") {
		if r.err != nil {
			break
		}
		m.Conns = append(m.Conns, Conn{Backend: string(r.field("t")), Info: r.field("c")})
	}
	r.expect("", "MemSection")
	for range r.count("nixlSecElms") {
		if r.err != nil {
			break
		}
		m.Sections = append(m.Sections, r.section())
	}
	if r.err == nil && r.at != len(b) {
		r.fail("%d bytes after the end", len(b)-r.at)
	}
	if r.err == nil && (m.Agent == "" || strings.IndexByte(m.Agent, 0) >= 0) {
		r.fail("agent name %q", m.Agent)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// Marshal writes the blob; for what ParseMetadata read, the same bytes.
func (m *Metadata) Marshal() []byte {
	b := []byte(blobHeader)
	b = putField(b, "Agent", []byte(m.Agent))
	b = putCount(b, "Conns", len(m.Conns))
	for _, c := range m.Conns {
		b = putField(b, "t", []byte(c.Backend))
		b = putField(b, "c", c.Info)
	}
	b = putField(b, "", []byte("MemSection"))
	b = putCount(b, "nixlSecElms", len(m.Sections))
	for _, s := range m.Sections {
		b = putField(b, "bknd", []byte(s.Backend))
		b = putField(b, "nixlDList", []byte("nixlSDList"))
		b = putField(b, "t", binary.LittleEndian.AppendUint32(nil, uint32(s.Mem)))
		b = putCount(b, "n", len(s.Descs))
		for _, d := range s.Descs {
			fixed := make([]byte, 0, descFixed+len(d.Key))
			for _, v := range []uint64{d.Addr, d.Len, d.Dev} {
				fixed = binary.LittleEndian.AppendUint64(fixed, v)
			}
			b = putField(b, "", append(fixed, d.Key...))
		}
	}
	return b
}

// as returns m with every section once for each of the kinds.
func (m *Metadata) as(kinds []MemType) *Metadata {
	out := &Metadata{Agent: m.Agent, Conns: m.Conns}
	for _, s := range m.Sections {
		for _, k := range kinds {
			out.Sections = append(out.Sections, Section{s.Backend, k, s.Descs})
		}
	}
	return out
}

// ucxInfo returns the address of the UCX backend, or nil.
func (m *Metadata) ucxInfo() []byte {
	i := slices.IndexFunc(m.Conns, func(c Conn) bool { return c.Backend == backendUCX })
	if i < 0 {
		return nil
	}
	return m.Conns[i].Info
}

// blobReader reads fields: a tag, a 64-bit length, the bytes, and a bar. The first error stays; after it, all reads are empty.
type blobReader struct {
	all []byte
	at  int
	err error
}

func (r *blobReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("nixl: %w: at byte %d: %s", ErrMetadata, r.at, fmt.Sprintf(format, args...))
	}
}

func (r *blobReader) field(tag string) []byte {
	if r.err != nil {
		return nil
	}
	b := r.all[r.at:]
	if len(b) < len(tag)+8 || string(b[:len(tag)]) != tag {
		r.fail("no field %q", tag)
		return nil
	}
	n := binary.LittleEndian.Uint64(b[len(tag):])
	b = b[len(tag)+8:]
	if n >= uint64(len(b)) || b[n] != '|' {
		r.fail("field %q claims %d bytes, %d are left", tag, n, len(b))
		return nil
	}
	r.at += len(tag) + 8 + int(n) + 1
	return b[:n:n]
}

func (r *blobReader) expect(tag, want string) {
	if got := r.field(tag); r.err == nil && string(got) != want {
		r.fail("%q instead of %q", got, want)
	}
}

// count reads a number of elements that follow. It cannot be larger than the bytes that are left.
func (r *blobReader) count(tag string) int {
	b := r.field(tag)
	if r.err != nil {
		return 0
	}
	if len(b) != 8 || binary.LittleEndian.Uint64(b) > uint64(len(r.all)-r.at) {
		r.fail("count %q is % x", tag, b)
		return 0
	}
	return int(binary.LittleEndian.Uint64(b))
}

func (r *blobReader) section() Section {
	s := Section{Backend: string(r.field("bknd"))}
	r.expect("nixlDList", "nixlSDList")
	if t := r.field("t"); len(t) == 4 {
		s.Mem = MemType(binary.LittleEndian.Uint32(t))
	} else {
		r.fail("memory type of %d bytes", len(t))
	}
	for range r.count("n") {
		b := r.field("")
		if r.err == nil && len(b) < descFixed {
			r.fail("descriptor of %d bytes", len(b))
		}
		if r.err != nil {
			break
		}
		u := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
		s.Descs = append(s.Descs, Desc{Addr: u(0), Len: u(1), Dev: u(2), Key: b[descFixed:]})
	}
	return s
}

func putField(b []byte, tag string, value []byte) []byte {
	b = append(b, tag...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	b = append(b, value...)
	return append(b, '|')
}

func putCount(b []byte, tag string, n int) []byte {
	return putField(b, tag, binary.LittleEndian.AppendUint64(nil, uint64(n)))
}
