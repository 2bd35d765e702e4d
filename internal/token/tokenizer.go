package token

import (
	"fmt"
	"os"
	"path/filepath"
)

// Tokenizer is the decode side of one model's vocabulary. It is immutable and safe for concurrent use.
type Tokenizer struct {
	arena    []byte   // what each id leaves, one after the other
	offsets  []uint32 // id's part of arena is offsets[id] to offsets[id+1]
	flags    []flag   // by id
	specials []special
	plan     *plan
}

// flag is what the hot path asks about an id.
type flag uint8

const (
	present   flag = 1 << iota // the id is in the vocabulary
	isSpecial                  // a special token, which a Skip may leave out
	isByte                     // its part of the arena is one byte of a byte-fallback run
	isBroken                   // its part of the arena is not whole UTF-8 by itself
)

// special is a special token by name, for SkipAllBut.
type special struct {
	id      int
	content string
}

// maxID bounds the tables that a single wrong number in a file could ask for. Vocabularies have some 10^5 ids.
const maxID = 1<<24 - 1

// Load reads tokenizer.json in dir. Its errors name the file and what in it is not supported.
func Load(dir string) (*Tokenizer, error) {
	file := filepath.Join(dir, "tokenizer.json")
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// Size is the highest id of the vocabulary plus one.
func (t *Tokenizer) Size() int { return len(t.flags) }

// IsSpecial tells whether id is a special token, one that SkipSpecial leaves out.
func (t *Tokenizer) IsSpecial(id int) bool {
	return uint(id) < uint(len(t.flags)) && t.flags[id]&isSpecial != 0
}

// bytes is what id leaves by itself, before the bytes of several ids are joined.
func (t *Tokenizer) bytes(id int) []byte { return t.arena[t.offsets[id]:t.offsets[id+1]] }

// Decode gives the text of ids, as the reference library's decode does for the whole list. The one difference: a special
// token is skipped whatever a normalizer makes of its content (the library then fails to recognise it).
func (t *Tokenizer) Decode(ids []int, skip Skip) string {
	d := Detokenizer{t: t, skip: skip}
	d.init()
	var out []byte
	for _, id := range ids {
		out = d.Append(out, id)
	}
	return string(d.Flush(out))
}

// AppendText appends what id decodes to alone, special tokens included (spec 6.7).
func (t *Tokenizer) AppendText(dst []byte, id int) []byte {
	d := Detokenizer{t: t}
	d.init()
	return d.Flush(d.Append(dst, id))
}

// Text is AppendText as a string.
func (t *Tokenizer) Text(id int) string { return string(t.AppendText(nil, id)) }

// Skip says which special tokens leave no text. The zero value skips none.
type Skip struct {
	specials bool
	but      []int // ids of special tokens that are kept all the same
}

var (
	SkipNone    = Skip{}               // every token leaves its text
	SkipSpecial = Skip{specials: true} // no special token does
)

// SkipAllBut skips the special tokens, except those whose content is one of markers: the marks that an output parser has to
// see. A marker that is an ordinary or a non-special added token is never skipped and needs no mention.
func (t *Tokenizer) SkipAllBut(markers []string) Skip {
	skip := SkipSpecial
	for _, s := range t.specials {
		for _, m := range markers {
			if s.content == m {
				skip.but = append(skip.but, s.id)
				break
			}
		}
	}
	return skip
}

// skips tells whether the special token id leaves no text.
func (s *Skip) skips(id int) bool {
	for _, kept := range s.but {
		if kept == id {
			return false
		}
	}
	return s.specials
}
