package status

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/staging"
)

// TestPolicyNamesWhatThePageHolds checks the hashes against the bytes between the tags, as a browser does.
func TestPolicyNamesWhatThePageHolds(t *testing.T) {
	d := HTML()
	html := string(d.HTML)
	for _, tag := range []string{"style", "script"} {
		parts := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(html, -1)
		require.Len(t, parts, 1, tag)
		assert.Contains(t, d.Policy, tag+"-src 'sha256-"+hash(parts[0][1])+"'")
		assert.Greater(t, len(parts[0][1]), 1000, "its part is in place")
	}
	assert.NotContains(t, d.Policy, "unsafe")
	assert.True(t, strings.HasPrefix(d.Policy, "default-src 'none'; "))
	assert.Regexp(t, `^"[^"]{22}"$`, d.ETag)
}

// TestPageIsAllThereIs is invariant 6: nothing is loaded from elsewhere, and nothing is run or styled by attributes, which the policy
// would forbid.
func TestPageIsAllThereIs(t *testing.T) {
	html := string(HTML().HTML)
	for _, bad := range []string{"https://", "//cdn", "@import", "innerHTML", "eval(", " style=\"", " onclick", " onload", "src="} {
		assert.NotContains(t, html, bad)
	}
	for _, link := range regexp.MustCompile(`http://[^'"\s]+`).FindAllString(html, -1) {
		assert.Equal(t, "http://www.w3.org/2000/svg", link, "the one name that is no address")
	}
	assert.Less(t, len(html), 64<<10)
}

func TestPageCanBeUsedByAll(t *testing.T) {
	html := string(HTML().HTML)
	for _, want := range []string{
		`<html lang="en">`, "<header>", "<nav ", "<main ", "<footer>", `aria-live="off"`, `role="status"`, "prefers-color-scheme: dark",
		`content="width=device-width, initial-scale=1"`, "<caption", `scope="col"`, `class="skip"`, "<noscript>",
	} {
		assert.Contains(t, html, want)
	}
	for st := range staging.NumStates {
		assert.Contains(t, pageScript, "'"+st.String()+"'", "a state of a slot in the arena")
	}
	for _, id := range regexp.MustCompile(`\$\('([a-z-]+)'\)`).FindAllStringSubmatch(pageScript, -1) {
		assert.Contains(t, pageHTML, `id="`+id[1]+`"`, "the script looks for it")
	}
}
