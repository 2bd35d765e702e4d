package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pkg is what the rules look at: the files of one folder that are not tests, whatever their build tags.
type pkg struct {
	path       string   // import path
	imports    []string // sorted, each once
	commented  []string // files with a package comment
	requestCtx bool     // mentions fasthttp.RequestCtx
}

// root finds the folder of go.mod above the working folder of the test.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
}

// load reads every package below dir as part of the module pd-router.
func load(t *testing.T, dir string) []pkg {
	t.Helper()
	byFolder := map[string]*pkg{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != dir && (name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		folder, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			return err
		}
		p := byFolder[folder]
		if p == nil {
			p = &pkg{path: "pd-router/" + filepath.ToSlash(folder)}
			byFolder[folder] = p
		}
		return p.add(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []pkg
	for _, p := range byFolder {
		slices.Sort(p.imports)
		p.imports = slices.Compact(p.imports)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b pkg) int { return strings.Compare(a.path, b.path) })
	return out
}

// add reads one file into p.
func (p *pkg) add(file string) error {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if f.Doc.Text() != "" { // directives alone are no comment
		p.commented = append(p.commented, filepath.Base(file))
	}
	local := "" // what this file calls fasthttp
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		p.imports = append(p.imports, path)
		if path == fasthttpPath {
			local = "fasthttp"
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && local != "" && sel.Sel.Name == "RequestCtx" {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
				p.requestCtx = true
			}
		}
		return true
	})
	return nil
}
