package arch

import (
	"fmt"
	"slices"
	"strings"
)

// layer is a height: a package imports only packages of lower layers. Zero is no layer at all.
type layer int

const (
	base    layer = iota + 1 // known to all, knows none
	form                     // formats: bytes in, values out
	part                     // independent parts; neighbours meet in an interface that cmd connects
	life                     // the life of one request
	edge                     // what the outside world touches
	conf                     // settings, made of the Options of the packages below
	command                  // programs: they connect everything
)

var layerNames = map[layer]string{base: "BASE", form: "FORM", part: "PART", life: "LIFE", edge: "EDGE", conf: "CONFIG", command: "command"}

// layers gives every package under internal/ its place.
var layers = map[string]layer{
	"config":  conf,
	"server":  edge,
	"status":  edge,
	"probe":   edge,
	"sim":     edge,
	"demo":    edge,
	"router":  life,
	"queue":   part,
	"nodes":   part,
	"engine":  part,
	"staging": part,
	"openai":  form,
	"parser":  form,
	"token":   form,
	"tilert":  form,
	"nixl":    form,
	"metrics": form,
	"logging": base,
	"tracing": base,
	"arch":    base,
}

// sealed layers hold packages that do not know each other.
var sealed = []layer{part, form}

// sameLayer lists the only imports between packages of a sealed layer.
var sameLayer = map[string][]string{
	"openai": {"parser", "token"}, // a reply is encoded from events and from text
}

// bans are imports that the layers allow and the design does not. Paths are prefixes.
var bans = []struct {
	from, to, reason string
}{
	{"sim", "pd-router/internal/router", otherSide},
	{"sim", "pd-router/internal/queue", otherSide},
	{"sim", "pd-router/internal/engine", otherSide},
	{"server", "pd-router/internal/sim", "sim stands in for the nodes in tests and demos"},
	{"status", "pd-router/internal/sim", "sim stands in for the nodes in tests and demos"},
	{"probe", "pd-router/internal/sim", "sim stands in for the nodes in tests and demos"},
	{"queue", "net/http", "the queue knows no HTTP"},
	{"queue", "github.com/prometheus", "the queue reports to an observer and knows no metrics library"},
	{"queue", "pd-router/internal/metrics", "the queue reports to an observer and knows no metrics library"},
}

const otherSide = "sim is the other side of the wire: sharing code with the router, both would agree on a mistake"

// fasthttpPath is the HTTP library. Its types stay where bytes meet the network; bench/bare is a router of its own.
const fasthttpPath = "github.com/valyala/fasthttp"

var (
	mayImportFasthttp = []string{"server", "sim", "nodes", "pd-router/bench/bare"}
	mayUseRequestCtx  = []string{"server", "sim", "pd-router/bench/bare"}
)

const internalPath = "pd-router/internal/"

// place returns the name under internal/ that a package counts as, with its layer. Subpackages belong to their parent; what is not under
// internal/ is a command. The layer is zero for a package that the table does not know.
func place(path string) (string, layer) {
	rest, ok := strings.CutPrefix(path, internalPath)
	if !ok {
		return path, command
	}
	name, _, _ := strings.Cut(rest, "/")
	return name, layers[name]
}

// judge returns a complaint for every broken rule, each with its reason.
func judge(p pkg) []string {
	var out []string
	complain := func(format string, args ...any) {
		out = append(out, fmt.Sprintf("%s: ", p.path)+fmt.Sprintf(format, args...))
	}

	name, height := place(p.path)
	if height == 0 {
		complain("has no layer: give it one in internal/arch/layers_test.go")
	}
	for _, imp := range p.imports {
		if c := judgeImport(name, height, imp); c != "" {
			complain("%s", c)
		}
	}
	if slices.Contains(p.imports, "C") && name != "nixl" {
		complain("imports \"C\": C is behind one door, internal/nixl")
	}
	if p.requestCtx && !slices.Contains(mayUseRequestCtx, name) {
		complain("uses fasthttp.RequestCtx, which dies with the handler: only %v may", mayUseRequestCtx)
	}
	if n := len(p.commented); n != 1 {
		complain("has %d package comments (%v), want exactly one, in doc.go", n, p.commented)
	}
	return out
}

// judgeImport returns what is wrong with one import of the package name, or "".
func judgeImport(name string, height layer, imp string) string {
	for _, b := range bans {
		if b.from == name && (imp == b.to || strings.HasPrefix(imp, b.to+"/")) {
			return fmt.Sprintf("imports %s: %s", imp, b.reason)
		}
	}
	if (imp == fasthttpPath || strings.HasPrefix(imp, fasthttpPath+"/")) && !slices.Contains(mayImportFasthttp, name) {
		return fmt.Sprintf("imports %s: only %v may", imp, mayImportFasthttp)
	}
	if !strings.HasPrefix(imp, "pd-router/") {
		return ""
	}
	to, depth := place(imp)
	switch {
	case to == name || slices.Contains(sameLayer[name], to):
		return ""
	case depth == command:
		return fmt.Sprintf("imports the program %s", imp)
	case depth > height:
		return fmt.Sprintf("imports up: %s is %s, %s is %s", name, layerNames[height], to, layerNames[depth])
	case depth == height && slices.Contains(sealed, height):
		return fmt.Sprintf("imports its neighbour %s: two packages of %s meet in an interface that the consumer declares and cmd connects", to, layerNames[height])
	}
	return ""
}
