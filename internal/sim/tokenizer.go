package sim

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// tokenizerJSON is a small vocabulary in the form of HuggingFace tokenizers: byte-level BPE, some hundred words and
// their beginnings, GLM's markers as added tokens. The golden test of this package generates it.
//
//go:embed tokenizer.json
var tokenizerJSON []byte

// tokenizerConfig makes transformers take the folder, with a chat template in GLM's manner.
const tokenizerConfig = `{
  "tokenizer_class": "PreTrainedTokenizerFast",
  "clean_up_tokenization_spaces": false,
  "eos_token": "<|endoftext|>",
  "pad_token": "<|endoftext|>",
  "model_max_length": 202752,
  "chat_template": "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
}
`

// WriteTokenizer writes the vocabulary of the simulated model as a folder that a router takes for --model-path.
func WriteTokenizer(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"tokenizer.json":         string(tokenizerJSON),
		"tokenizer_config.json":  tokenizerConfig,
		"generation_config.json": fmt.Sprintf("{\n  \"eos_token_id\": [%d]\n}\n", vocabulary().eos),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// vocab encodes and decodes with tokenizerJSON. It is safe for concurrent use.
type vocab struct {
	ids   map[string]int // by the text's bytes
	text  []string       // by id
	rank  map[[2]int]merge
	added []string // contents of added tokens
	eos   int

	mu    sync.Mutex
	words map[string][]int // ids of words that were encoded before, bounded
}

type merge struct{ rank, id int }

var vocabulary = sync.OnceValue(func() *vocab {
	v, err := loadVocab(tokenizerJSON)
	if err != nil {
		panic("BUG: embedded tokenizer: " + err.Error())
	}
	return v
})

func loadVocab(raw []byte) (*vocab, error) {
	var file struct {
		Model struct {
			Vocab  map[string]int `json:"vocab"`
			Merges []string       `json:"merges"`
		} `json:"model"`
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	v := &vocab{ids: map[string]int{}, rank: map[[2]int]merge{}, words: map[string][]int{}}
	v.text = make([]string, len(file.Model.Vocab)+len(file.Added))
	for word, id := range file.Model.Vocab {
		v.text[id] = fromByteLevel(word)
		v.ids[v.text[id]] = id
	}
	for i, m := range file.Model.Merges {
		left, right, ok := strings.Cut(m, " ")
		id, known := file.Model.Vocab[left+right]
		if !ok || !known {
			return nil, fmt.Errorf("merge %q leads nowhere", m)
		}
		v.rank[[2]int{file.Model.Vocab[left], file.Model.Vocab[right]}] = merge{i, id}
	}
	for _, a := range file.Added {
		v.text[a.ID] = a.Content
		v.added = append(v.added, a.Content)
		v.ids[a.Content] = a.ID
	}
	v.eos = v.ids["<|endoftext|>"]
	return v, nil
}

// encode returns the ids of a text, without special tokens around it.
func (v *vocab) encode(text string) []int {
	var out []int
	for text != "" {
		at, marker := v.nextAdded(text)
		for plain := text[:at]; plain != ""; {
			n := pieceLen(plain)
			out = append(out, v.word(plain[:n])...)
			plain = plain[n:]
		}
		if marker != "" {
			out = append(out, v.ids[marker])
		}
		text = text[at+len(marker):]
	}
	return out
}

// nextAdded returns where the first added token stands, and which; the longest where several begin.
func (v *vocab) nextAdded(text string) (at int, marker string) {
	at = len(text)
	for _, a := range v.added {
		if i := strings.Index(text, a); i >= 0 && (i < at || i == at && len(a) > len(marker)) {
			at, marker = i, a
		}
	}
	return at, marker
}

// word merges the bytes of one piece, pair of lowest rank first.
func (v *vocab) word(w string) []int {
	v.mu.Lock()
	ids, ok := v.words[w]
	v.mu.Unlock()
	if ok {
		return ids
	}
	for i := range len(w) {
		ids = append(ids, v.ids[w[i:i+1]])
	}
	for {
		best, at := merge{rank: len(v.rank)}, -1
		for i := range len(ids) - 1 {
			if m, ok := v.rank[[2]int{ids[i], ids[i+1]}]; ok && m.rank < best.rank {
				best, at = m, i
			}
		}
		if at < 0 {
			break
		}
		ids[at] = best.id
		ids = append(ids[:at+1], ids[at+2:]...)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.words) < 1<<16 && len(w) < 64 {
		v.words[w] = ids
	}
	return ids
}

// decode returns the text of ids. Those that are none leave nothing.
func (v *vocab) decode(ids []int) string {
	var b strings.Builder
	for _, id := range ids {
		if id >= 0 && id < len(v.text) {
			b.WriteString(v.text[id])
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// pieceLen returns the length of the first piece of a text as GPT-2's pattern splits it: a contraction, a word, a
// number or a run of signs, each with the blank before it, or white space that leaves one blank to what follows.
func pieceLen(s string) int {
	for _, c := range [...]string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"} {
		if strings.HasPrefix(s, c) {
			return len(c)
		}
	}
	start := 0
	if s[0] == ' ' {
		start = 1
	}
	r, _ := utf8.DecodeRuneInString(s[start:])
	for _, class := range [...]func(rune) bool{unicode.IsLetter, unicode.IsNumber, isSign} {
		if start < len(s) && class(r) {
			return start + runLen(s[start:], class)
		}
	}
	n := runLen(s, unicode.IsSpace)
	if n == len(s) {
		return n
	}
	if _, last := utf8.DecodeLastRuneInString(s[:n]); n > last {
		return n - last
	}
	return n
}

func isSign(r rune) bool {
	return !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r)
}

func runLen(s string, class func(rune) bool) int {
	for i, r := range s {
		if !class(r) {
			return i
		}
	}
	return len(s)
}

// byteRunes maps each byte to the character that stands for it in a byte-level vocabulary: printable ones to
// themselves, the others to characters from U+0100 on.
var byteRunes = sync.OnceValue(func() (runes [256]rune) {
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			runes[b] = b
		} else {
			runes[b] = next
			next++
		}
	}
	return runes
})

func toByteLevel(s string) string {
	runes, out := byteRunes(), make([]rune, 0, len(s))
	for i := range len(s) {
		out = append(out, runes[s[i]])
	}
	return string(out)
}

var runeBytes = sync.OnceValue(func() map[rune]byte {
	m := map[rune]byte{}
	for b, r := range byteRunes() {
		m[r] = byte(b)
	}
	return m
})

func fromByteLevel(s string) string {
	m, out := runeBytes(), make([]byte, 0, len(s))
	for _, r := range s {
		out = append(out, m[r])
	}
	return string(out)
}
