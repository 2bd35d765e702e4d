package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// plan is a tokenizer's decoder, compiled: what is done to each token once, at load, and what is left to do when ids come.
// The decoders of the reference library work on a list of tokens; most of them change each token by itself, so their work
// is done here before the first request.
type plan struct {
	perToken []func(dst, token []byte) []byte // at load, in order

	byteLevel    bool   // tokens are bytes in GPT-2's alphabet; the joined bytes are made UTF-8
	byteFallback bool   // tokens of the form <0x41> are bytes; runs of them become text or U+FFFD
	metaspace    []byte // becomes a space, or nothing in the first token when dropFirst; nil: no such decoder
	dropFirst    bool
	lead         []byte // up to leadMax of these characters vanish at the start of the joined text
	leadMax      int
	separated    bool // no decoder at all: the library then joins tokens with a space
}

// decoderJSON has the fields of every supported decoder.
type decoderJSON struct {
	Type     string        `json:"type"`
	Decoders []decoderJSON `json:"decoders"`
	Pattern  struct {
		String *string `json:"String"`
		Regex  *string `json:"Regex"`
	} `json:"pattern"`
	Content        string `json:"content"`
	Start          int    `json:"start"`
	Stop           int    `json:"stop"`
	Replacement    string `json:"replacement"`
	PrependScheme  string `json:"prepend_scheme"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
}

// compile makes a plan of the value of "decoder".
func compile(raw []byte) (*plan, error) {
	p := &plan{}
	if len(raw) == 0 || string(raw) == "null" {
		p.separated = true
		return p, nil
	}
	var d decoderJSON
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	joined := false
	return p, p.add(d, &joined)
}

// add appends one decoder to the plan. joined tells whether the tokens are one text by now. An order that would need the
// token list again after that, or that mixes byte forms, is refused: no released tokenizer has one.
func (p *plan) add(d decoderJSON, joined *bool) error {
	early := !*joined && !p.byteFallback && p.metaspace == nil // tokens are still those of the vocabulary
	switch d.Type {
	case "Sequence":
		for _, sub := range d.Decoders {
			if err := p.add(sub, joined); err != nil {
				return err
			}
		}
		return nil
	case "Fuse":
		*joined = true
		return nil
	case "ByteLevel":
		p.byteLevel, *joined = true, true
	case "ByteFallback":
		p.byteFallback = true
	case "Metaspace":
		return p.addMetaspace(d, early)
	case "Replace":
		return p.addReplace(d, early)
	case "Strip":
		return p.addStrip(d, early, *joined)
	default:
		return fmt.Errorf("decoder type %q is not supported", d.Type)
	}
	if !early {
		return fmt.Errorf("decoder %s is not supported at this place of the sequence", d.Type)
	}
	return nil
}

func (p *plan) addMetaspace(d decoderJSON, early bool) error {
	if !early {
		return fmt.Errorf("decoder Metaspace is not supported at this place of the sequence")
	}
	if utf8.RuneCountInString(d.Replacement) != 1 {
		return fmt.Errorf("decoder Metaspace: replacement %q is not one character", d.Replacement)
	}
	switch scheme := d.PrependScheme; {
	case scheme != "" && scheme != "always" && scheme != "first" && scheme != "never":
		return fmt.Errorf("decoder Metaspace: prepend_scheme %q is not supported", scheme)
	case d.AddPrefixSpace != nil && !*d.AddPrefixSpace && scheme != "never":
		return fmt.Errorf("decoder Metaspace: add_prefix_space is false but prepend_scheme is not never")
	}
	p.metaspace, p.dropFirst = []byte(d.Replacement), d.PrependScheme != "never"
	return nil
}

func (p *plan) addReplace(d decoderJSON, early bool) error {
	if d.Pattern.String == nil || *d.Pattern.String == "" {
		return fmt.Errorf("decoder Replace is supported with a pattern String only")
	}
	if !early {
		return fmt.Errorf("decoder Replace is not supported after ByteFallback, Metaspace, ByteLevel or Fuse")
	}
	from, to := []byte(*d.Pattern.String), []byte(d.Content)
	p.perToken = append(p.perToken, func(dst, token []byte) []byte { return appendReplaced(dst, token, from, to) })
	return nil
}

func (p *plan) addStrip(d decoderJSON, early, joined bool) error {
	if d.Stop != 0 {
		return fmt.Errorf("decoder Strip is supported with stop 0 only, not %d", d.Stop)
	}
	if utf8.RuneCountInString(d.Content) != 1 || d.Start < 0 {
		return fmt.Errorf("decoder Strip: content %q is not one character, or start %d is negative", d.Content, d.Start)
	}
	char, n := []byte(d.Content), d.Start
	switch {
	case early:
		p.perToken = append(p.perToken, func(dst, token []byte) []byte {
			for i := 0; i < n && bytes.HasPrefix(token, char); i++ {
				token = token[len(char):]
			}
			return append(dst, token...)
		})
	case joined && p.lead == nil:
		p.lead, p.leadMax = char, n
	default:
		return fmt.Errorf("decoder Strip is not supported at this place of the sequence")
	}
	return nil
}

// appendReplaced appends s with every from in it made to.
func appendReplaced(dst, s, from, to []byte) []byte {
	for {
		i := bytes.Index(s, from)
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(append(dst, s[:i]...), to...)
		s = s[i+len(from):]
	}
}

// alphabet maps the characters that GPT-2's tokenizer stands for bytes with to these bytes; -1 is no such character.
// Printable Latin-1 stands for itself, every other byte is a character from U+0100 on, in order.
var alphabet = func() (table [256 + 68]int16) {
	for i := range table {
		table[i] = -1
	}
	other := rune(256)
	for b := range 256 {
		r := rune(b)
		if plain := '!' <= b && b <= '~' || '¡' <= b && b <= '¬' || '®' <= b && b <= 'ÿ'; !plain {
			r = other
			other++
		}
		table[r] = int16(b)
	}
	return table
}()

// appendBytes appends the bytes that token stands for, or token itself when one of its characters stands for none.
func appendBytes(dst, token []byte) []byte {
	start := len(dst)
	for i := 0; i < len(token); {
		r, size := utf8.DecodeRune(token[i:])
		if int(r) >= len(alphabet) || alphabet[r] < 0 {
			return append(dst[:start], token...)
		}
		dst = append(dst, byte(alphabet[r]))
		i += size
	}
	return dst
}

// byteOf reads a token of the form <0x41>. The digits are read as the library reads them: a plus sign and one digit pass.
func byteOf(token []byte) (b byte, ok bool) {
	if len(token) != 6 || string(token[:3]) != "<0x" || token[5] != '>' {
		return 0, false
	}
	for i, c := range token[3:5] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		case c == '+' && i == 0:
			c = 0
		default:
			return 0, false
		}
		b = b<<4 | c
	}
	return b, true
}
