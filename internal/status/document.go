package status

import (
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"strings"
	"sync"
)

var (
	//go:embed page/index.html
	pageHTML string
	//go:embed page/style.css
	pageStyle string
	//go:embed page/app.js
	pageScript string
)

// Where the page's parts go: alone between their tags, as the policy names what stands there by its hash.
const (
	styleMark  = "/*style*/"
	scriptMark = "/*script*/"
)

// Document is the page as it is served.
type Document struct {
	HTML   []byte
	ETag   string // of HTML, in quotes
	Policy string // Content-Security-Policy: nothing but the page's own style and script, and its own feed
}

// HTML is the document, which is the same for every caller.
var HTML = sync.OnceValue(func() Document {
	html := strings.Replace(strings.Replace(pageHTML, styleMark, pageStyle, 1), scriptMark, pageScript, 1)
	return Document{
		HTML: []byte(html),
		ETag: `"` + hash(html)[:22] + `"`,
		Policy: "default-src 'none'; style-src 'sha256-" + hash(pageStyle) + "'; script-src 'sha256-" + hash(pageScript) + "'; " +
			"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
			"require-trusted-types-for 'script'; trusted-types 'none'",
	}
})

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}
