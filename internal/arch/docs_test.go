package arch

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repository is what the documents are held against.
type repository struct {
	dir      string
	tests    map[string]bool   // names of all tests, fuzz targets and benchmarks
	cites    map[cite][]string // sections cited as "spec N.M", with the files that do
	packages []string          // folders of internal/ with Go files of their own
}

// cite is one section of one page.
type cite struct{ page, section string }

// wirePage is what "spec" means in comments, unless the package has a page of its own.
const wirePage = "docs/wire.md"

var specPages = map[string]string{"internal/nixl": "docs/nixl.md"}

var sources = []string{".go", ".c", ".h"}

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	citation = regexp.MustCompile(`[Ss]pec (\d+(?:\.\d+)*)((?:,? (?:to|and)? ?\d+\.\d+)*)`)
	section  = regexp.MustCompile(`\d+(?:\.\d+)*`)
	named    = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`")
	link     = regexp.MustCompile(`\]\(([^)#\s]+)`)
)

func readRepository(t *testing.T) *repository {
	r := &repository{dir: root(t), tests: map[string]bool{}, cites: map[cite][]string{}}
	err := filepath.WalkDir(r.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || !slices.Contains(sources, filepath.Ext(name)) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, _ := filepath.Rel(r.dir, name)
		r.add(filepath.ToSlash(file), string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *repository) add(file, text string) {
	if strings.HasSuffix(file, "_test.go") {
		for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
			r.tests[m[1]] = true
		}
	}
	if rest, ok := strings.CutPrefix(file, "internal/"); ok && strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
		if name, _, _ := strings.Cut(rest, "/"); !slices.Contains(r.packages, name) {
			r.packages = append(r.packages, name)
		}
	}
	if file == "internal/arch/docs_test.go" {
		return // it speaks of citations
	}
	page, own := specPages[path.Dir(file)]
	if !own {
		page = wirePage
	}
	for _, m := range citation.FindAllString(text, -1) {
		for _, number := range section.FindAllString(m, -1) {
			r.cites[cite{page, number}] = append(r.cites[cite{page, number}], file)
		}
	}
}

func (r *repository) doc(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join(r.dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// faultRows gives the last cell of each row of the tables of docs/faults.md, by the row's number.
func faultRows(page string) map[string]string {
	rows := map[string]string{}
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if number := strings.TrimSpace(cells[0]); len(cells) == 4 && section.FindString(number) == number && number != "" {
			rows[number] = strings.TrimSpace(cells[3])
		}
	}
	return rows
}

// TestFaultsNameTestsThatExist holds docs/faults.md: each row names what would fail, or says by a dash that no test here could.
func TestFaultsNameTestsThatExist(t *testing.T) {
	r := readRepository(t)
	page := r.doc(t, "docs/faults.md")
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		if !r.tests[m[1]] {
			t.Errorf("docs/faults.md names %s, which does not exist", m[1])
		}
	}
	rows := faultRows(page)
	if len(rows) < 100 {
		t.Fatalf("only %d rows could be read", len(rows))
	}
	for number, cell := range rows {
		some := named.MatchString(cell) || strings.Contains(cell, "black-box suite") || strings.Contains(cell, "peer suite")
		if some == (cell == "-") {
			t.Errorf("docs/faults.md, row %s: %q names no test", number, cell)
		}
	}
}

// TestCitedSectionsExist holds docs/wire.md and its like: comments cite their sections as "spec N.M".
func TestCitedSectionsExist(t *testing.T) {
	r := readRepository(t)
	if len(r.cites) < 20 {
		t.Fatalf("only %d citations could be read", len(r.cites))
	}
	for c, files := range r.cites {
		page := r.doc(t, c.page)
		if !strings.Contains(page, "\n## "+c.section+" ") && !strings.Contains(page, "\n### "+c.section+" ") {
			t.Errorf("%s has no section %s, which %s cites", c.page, c.section, files[0])
		}
	}
}

// TestEachPackageIsOnTheMap holds docs/architecture.md: what exists is in the picture, and what is in it exists.
func TestEachPackageIsOnTheMap(t *testing.T) {
	r := readRepository(t)
	_, picture, _ := strings.Cut(r.doc(t, "docs/architecture.md"), "```mermaid\n")
	picture, _, _ = strings.Cut(picture, "```")
	var drawn []string
	for _, m := range regexp.MustCompile(`(\w+)\["<b>(\w+)</b>`).FindAllStringSubmatch(picture, -1) {
		if m[1] != m[2] {
			t.Errorf("docs/architecture.md: box %s is labelled %s", m[1], m[2])
		}
		drawn = append(drawn, m[2])
	}
	for _, name := range r.packages {
		if !slices.Contains(drawn, name) && name != "arch" {
			t.Errorf("docs/architecture.md: internal/%s has no box in the picture", name)
		}
	}
	for _, name := range drawn {
		if !slices.Contains(r.packages, name) {
			t.Errorf("docs/architecture.md: there is no internal/%s", name)
		}
	}
}

// TestLinksOfDocsLead checks relative links in the pages.
func TestLinksOfDocsLead(t *testing.T) {
	dir := root(t)
	pages, _ := filepath.Glob(filepath.Join(dir, "docs", "*.md"))
	more, _ := filepath.Glob(filepath.Join(dir, "docs", "adr", "*.md"))
	top, _ := filepath.Glob(filepath.Join(dir, "*.md"))
	for _, page := range slices.Concat(pages, more, top) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
			}
		}
	}
}
