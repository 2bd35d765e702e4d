package token

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// normalizerJSON has the fields of every supported normalizer.
type normalizerJSON struct {
	Type        string           `json:"type"`
	Normalizers []normalizerJSON `json:"normalizers"`
	Prepend     string           `json:"prepend"`
	Pattern     struct {
		String *string `json:"String"`
	} `json:"pattern"`
	Content string `json:"content"`
}

// normalize applies a normalizer to the content of an added token: the library's decoders see an added token that has
// "normalized" in that form. A normalizer that might change the content in a way not known here is an error.
func normalize(content []byte, n *normalizerJSON) ([]byte, error) {
	switch n.Type {
	case "Sequence":
		for i := range n.Normalizers {
			var err error
			if content, err = normalize(content, &n.Normalizers[i]); err != nil {
				return nil, err
			}
		}
		return content, nil
	case "Prepend":
		if len(content) == 0 {
			return content, nil
		}
		return append([]byte(n.Prepend), content...), nil
	case "Replace":
		if n.Pattern.String != nil && *n.Pattern.String != "" {
			return appendReplaced(nil, content, []byte(*n.Pattern.String), []byte(n.Content)), nil
		}
	case "ByteLevel":
		var out []byte
		for _, b := range content {
			out = utf8.AppendRune(out, letters[b])
		}
		return out, nil
	case "NFC", "NFD", "NFKC", "NFKD":
		if isASCII(content) { // which all four leave alone
			return content, nil
		}
	}
	return nil, fmt.Errorf("added token %q has \"normalized\", and normalizer %s is not supported for it", content, n.Type)
}

func parseNormalizer(raw []byte) (*normalizerJSON, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	n := new(normalizerJSON)
	if err := json.Unmarshal(raw, n); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	return n, nil
}

// letters is the inverse of alphabet.
var letters = func() (table [256]rune) {
	for r, b := range alphabet {
		if b >= 0 {
			table[b] = rune(r)
		}
	}
	return table
}()

func isASCII(s []byte) bool {
	for _, c := range s {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
