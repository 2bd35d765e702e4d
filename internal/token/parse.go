package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Parse reads the decode side of a tokenizer.json: the vocabulary of a BPE, WordPiece, WordLevel or Unigram model, the added
// tokens and the decoder. Merges, scores, pre-tokenizer and post-processor are walked over. The buffer is not kept.
//
// Supported decoders: none, ByteLevel, ByteFallback, Metaspace, Replace of a string, Strip at the start, Fuse, and Sequence
// of these in any order that a released tokenizer has.
func Parse(tokenizerJSON []byte) (*Tokenizer, error) {
	if len(tokenizerJSON) > math.MaxInt32 {
		return nil, errors.New("larger than 2 GiB")
	}
	f := file{scanner: scanner{b: tokenizerJSON}}
	if err := f.read(); err != nil {
		return nil, err
	}
	added, err := f.placeAdded()
	if err != nil {
		return nil, err
	}
	p, err := compile(f.decoder)
	if err != nil {
		return nil, err
	}
	return f.build(p, added)
}

// file is a tokenizer.json on its way in.
type file struct {
	scanner
	entries              []entry // the model's vocabulary, in file order
	model                bool    // the model was there
	added, decoder, norm []byte  // raw values
}

// entry is one token of the model.
type entry struct {
	text
	id uint32
}

func (f *file) read() error {
	if f.peek() != '{' {
		return errors.New("not a JSON object")
	}
	err := f.object(func(key text) (err error) {
		switch {
		case f.is(key, "model"):
			return f.readModel()
		case f.is(key, "added_tokens"):
			f.added, err = f.skip()
		case f.is(key, "decoder"):
			f.decoder, err = f.skip()
		case f.is(key, "normalizer"):
			f.norm, err = f.skip()
		default:
			_, err = f.skip()
		}
		return err
	})
	if err == nil && f.peek() != 0 {
		err = f.errorf("text after the JSON object")
	}
	if err == nil && !f.model {
		err = errors.New("no model")
	}
	return err
}

// readModel reads model.vocab: {"token": id} for most types, [["token", score]] for Unigram.
func (f *file) readModel() error {
	f.model, f.entries = true, f.entries[:0]
	vocab := false
	err := f.object(func(key text) (err error) {
		switch {
		case f.is(key, "type"):
			var raw []byte
			if raw, err = f.skip(); err != nil {
				return err
			}
			switch string(raw) {
			case `"BPE"`, `"WordPiece"`, `"WordLevel"`, `"Unigram"`:
				return nil
			}
			return fmt.Errorf("model type %s is not supported", raw)
		case f.is(key, "vocab"):
			vocab = true
			if f.peek() == '[' {
				return f.readPieces()
			}
			return f.readVocab()
		default:
			_, err = f.skip()
			return err
		}
	})
	if err == nil && !vocab {
		err = errors.New("no vocabulary: model.vocab is missing")
	}
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

func (f *file) readVocab() error {
	// A token takes some 18 bytes of the file, its merges as much again.
	f.entries = make([]entry, 0, min(len(f.b)/32, maxID))
	return f.object(func(key text) error {
		id, err := f.uint(maxID)
		f.entries = append(f.entries, entry{key, uint32(id)})
		return err
	})
}

func (f *file) readPieces() error {
	return f.array(func() error {
		if len(f.entries) > maxID {
			return fmt.Errorf("more than %d tokens", maxID)
		}
		first := true
		return f.array(func() error {
			if !first {
				_, err := f.skip()
				return err
			}
			first = false
			piece, err := f.string()
			f.entries = append(f.entries, entry{piece, uint32(len(f.entries))})
			return err
		})
	})
}

// addedToken is one element of added_tokens. The id in the file is not read: see placeAdded.
type addedToken struct {
	Content    string `json:"content"`
	Special    bool   `json:"special"`
	Normalized bool   `json:"normalized"`
}

// placed is an added token with its id.
type placed struct {
	content string // as it stands in the file; markers and specials go by it
	token   []byte // what the decoder sees
	special bool
}

// placeAdded gives the added tokens their ids, by the library's rule: a content that the model knows keeps the model's id,
// every other one gets the next id from the model's size on. (The ids in the file agree with that; where they do not, the
// library only warns.) A content is special when any of its entries is.
func (f *file) placeAdded() (map[int]placed, error) {
	if len(f.added) == 0 || string(f.added) == "null" {
		return nil, nil
	}
	var tokens []addedToken
	if err := json.Unmarshal(f.added, &tokens); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	normalizer, err := parseNormalizer(f.norm)
	if err != nil {
		return nil, err
	}
	ids, err := f.find(tokens)
	if err != nil {
		return nil, err
	}
	specials := make(map[string]bool, len(tokens))
	out := make(map[int]placed, len(tokens))
	normalized := make(map[int][]byte) // stays with the id when a later entry of the same content is not normalized
	next := len(f.entries)
	for _, t := range tokens {
		if t.Content == "" {
			continue
		}
		id := ids[t.Content]
		if id < 0 {
			if id = next; id > maxID {
				return nil, fmt.Errorf("added_tokens: more than %d tokens", maxID)
			}
			next++
			ids[t.Content] = id
		}
		specials[t.Content] = specials[t.Content] || t.Special
		out[id] = placed{content: t.Content, token: []byte(t.Content)}
		if t.Normalized && normalizer != nil {
			if normalized[id], err = normalize([]byte(t.Content), normalizer); err != nil {
				return nil, err
			}
		}
	}
	for id, p := range out {
		p.special = specials[p.content]
		if form, ok := normalized[id]; ok {
			p.token = form
		}
		out[id] = p
	}
	return out, nil
}

// find looks up the contents of tokens in the model: content -> id, or -1.
func (f *file) find(tokens []addedToken) (map[string]int, error) {
	ids := make(map[string]int, len(tokens))
	for _, t := range tokens {
		ids[t.Content] = -1
	}
	var scratch []byte
	for _, e := range f.entries {
		b, err := f.decode(scratch, e.text)
		if err != nil {
			return nil, fmt.Errorf("model: vocab: %w", err)
		}
		if e.escaped {
			scratch = b
		}
		if _, ok := ids[string(b)]; ok {
			ids[string(b)] = int(e.id)
		}
	}
	return ids, nil
}

// build lays out the arena.
func (f *file) build(p *plan, added map[int]placed) (*Tokenizer, error) {
	size, room := 0, 0
	for _, e := range f.entries {
		size, room = max(size, int(e.id)+1), room+int(e.end-e.start)
	}
	for id := range added {
		size = max(size, id+1)
	}
	at := make([]int32, size) // id -> place in entries + 1
	for i, e := range f.entries {
		at[e.id] = int32(i + 1)
	}
	t := &Tokenizer{plan: p, arena: make([]byte, 0, room), offsets: make([]uint32, size+1), flags: make([]flag, size)}
	var scratch, spare []byte
	for id := range size {
		a, isAdded := added[id]
		switch {
		case isAdded:
			scratch = append(scratch[:0], a.token...)
			if a.special {
				t.flags[id] |= isSpecial
				t.specials = append(t.specials, special{id, a.content})
			}
		case at[id] != 0:
			b, err := f.decode(spare, f.entries[at[id]-1].text)
			if err != nil {
				return nil, fmt.Errorf("model: vocab: %w", err)
			}
			if !utf8.Valid(b) {
				return nil, fmt.Errorf("model: vocab: token %q is not UTF-8", b)
			}
			scratch = append(scratch[:0], b...)
		default:
			t.offsets[id+1] = uint32(len(t.arena))
			continue
		}
		for _, change := range p.perToken {
			spare = change(spare[:0], scratch)
			scratch, spare = spare, scratch
		}
		t.place(id, scratch)
		if len(t.arena) > math.MaxInt32 {
			return nil, errors.New("the vocabulary is larger than 2 GiB")
		}
	}
	t.arena = bytes.Clone(t.arena) // without the room that byte alphabets need in the file and not here
	return t, nil
}

// place appends one token to the arena.
func (t *Tokenizer) place(id int, token []byte) {
	f := t.flags[id] | present
	start := len(t.arena)
	if b, ok := byteOf(token); ok && t.plan.byteFallback {
		t.arena, f = append(t.arena, b), f|isByte
	} else if t.plan.byteLevel {
		t.arena = appendBytes(t.arena, token)
		if !utf8.Valid(t.arena[start:]) {
			f |= isBroken
		}
	} else {
		t.arena = append(t.arena, token...)
	}
	t.flags[id], t.offsets[id+1] = f, uint32(len(t.arena))
}
