package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// minDescription is the length below which a description says no more than the title.
const minDescription = 40

// lint tells what is wrong with a dashboard as it lies on disk: fields that Grafana does not know, a layout that does not
// fill its columns, panels without description or unit, queries that Grafana would not run or that would not hold for
// other data sources, jobs and resolutions.
func lint(name string, raw []byte) []error {
	var d dashboard.Dashboard
	if err := strict(&d, raw); err != nil {
		return []error{fmt.Errorf("%s: %w", name, err)}
	}
	l := &linter{titles: map[string]bool{}}
	l.whole(&d)
	for i := range d.Panels {
		if row := d.Panels[i].RowPanel; row != nil {
			l.endOfLine()
			continue
		}
		l.panel(d.Panels[i].Panel)
	}
	l.endOfLine()
	for i, err := range l.found {
		l.found[i] = fmt.Errorf("%s: %w", name, err)
	}
	return l.found
}

// panelTypes are the kinds of panel that dashboards may use. The strict reader knows the options of these and those of
// Prometheus' queries; what it does not know would pass unread.
var panelTypes = []variants.PanelcfgConfig{
	heatmap.VariantConfig(), stat.VariantConfig(), statetimeline.VariantConfig(), table.VariantConfig(), timeseries.VariantConfig(),
}

var register = sync.OnceFunc(func() {
	runtime := cog.NewRuntime()
	for _, t := range panelTypes {
		runtime.RegisterPanelcfgVariant(t)
	}
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
})

// strict reads a dashboard and refuses every field that is not in Grafana's schema.
func strict(d *dashboard.Dashboard, raw []byte) error {
	register()
	// The strict reader returns an empty list of errors on success, which is not nil and by which it loses the panels on
	// its way up: they are read again.
	if err := new(dashboard.Dashboard).UnmarshalJSONStrict(raw); err != nil && err.Error() != "" {
		return err
	}
	if err := json.Unmarshal(raw, d); err != nil {
		return err
	}
	if err := d.Validate(); err != nil && err.Error() != "" {
		return err
	}
	return nil
}

type linter struct {
	found  []error
	titles map[string]bool
	boxes  []dashboard.GridPos // of the panels so far
	line   []dashboard.GridPos // those of them since the last row title
}

func (l *linter) say(format string, a ...any) { l.found = append(l.found, fmt.Errorf(format, a...)) }

// whole checks what a dashboard has besides panels.
func (l *linter) whole(d *dashboard.Dashboard) {
	if d.Uid == nil || d.Title == nil || d.Description == nil || len(d.Tags) == 0 {
		l.say("wants uid, title, description and tags")
	}
	has := map[string]bool{}
	for _, v := range d.Templating.List {
		has[v.Name] = true
		if v.Type == dashboard.VariableTypeQuery && (v.Datasource == nil || v.Datasource.Uid == nil || *v.Datasource.Uid != datasourceOfVars) {
			l.say("variable %s does not use the variable datasource", v.Name)
		}
	}
	if !has["datasource"] || !has["job"] {
		l.say("wants the variables datasource and job")
	}
	for _, a := range d.Annotations.List {
		if a.Expr != nil {
			l.expr("annotation "+a.Name, *a.Expr)
		}
	}
}

func (l *linter) panel(p *dashboard.Panel) {
	title := ""
	if p.Title != nil {
		title = *p.Title
	}
	if title == "" || l.titles[title] {
		l.say("title %q is empty or used twice", title)
	}
	l.titles[title] = true
	if !slices.ContainsFunc(panelTypes, func(t variants.PanelcfgConfig) bool { return t.Identifier == p.Type }) {
		l.say("%s: the type %s is not one of panelTypes", title, p.Type)
	}
	if p.Description == nil || len(*p.Description) < minDescription || !strings.HasSuffix(*p.Description, ".") {
		l.say("%s: wants a description that says what it shows and what to do", title)
	}
	if p.FieldConfig == nil || p.FieldConfig.Defaults.Unit == nil || *p.FieldConfig.Defaults.Unit == "" {
		l.say("%s: wants a unit", title)
	}
	if p.Datasource == nil || p.Datasource.Uid == nil || *p.Datasource.Uid != datasourceOfVars {
		l.say("%s: does not use the variable datasource", title)
	}
	l.place(title, p.GridPos)
	l.queries(title, p)
}

// place checks that a panel lies within the columns and on no other one.
func (l *linter) place(title string, g *dashboard.GridPos) {
	if g == nil || g.W < 1 || g.H < 1 || g.X+g.W > columns {
		l.say("%s: leaves the %d columns", title, columns)
		return
	}
	for _, b := range l.boxes {
		if g.X < b.X+b.W && b.X < g.X+g.W && g.Y < b.Y+b.H && b.Y < g.Y+g.H {
			l.say("%s: lies on another panel", title)
		}
	}
	l.boxes, l.line = append(l.boxes, *g), append(l.line, *g)
}

// endOfLine checks that the panels under a row title leave no hole.
func (l *linter) endOfLine() {
	width := map[uint32]uint32{}
	for _, g := range l.line {
		width[g.Y] += g.W
	}
	for y, w := range width {
		if w != columns {
			l.say("the line at y=%d is %d columns wide, not %d", y, w, columns)
		}
	}
	l.line = nil
}

func (l *linter) queries(title string, p *dashboard.Panel) {
	if len(p.Targets) == 0 {
		l.say("%s: has no query", title)
	}
	refs := map[string]bool{}
	for _, t := range p.Targets {
		x, ok := t.(*prometheus.Dataquery)
		if !ok {
			l.say("%s: a query that is not one of Prometheus", title)
			continue
		}
		ref := ""
		if x.RefId != nil {
			ref = *x.RefId
		}
		if ref == "" || refs[ref] {
			l.say("%s: refId %q is empty or used twice", title, ref)
		}
		refs[ref] = true
		if x.Datasource == nil || x.Datasource.Uid == nil || *x.Datasource.Uid != datasourceOfVars {
			l.say("%s: query %s does not use the variable datasource", title, ref)
		}
		if isTable := x.Format != nil && *x.Format == prometheus.PromQueryFormatTable; !isTable && (x.LegendFormat == nil || *x.LegendFormat == "") {
			l.say("%s: query %s wants a legend", title, ref)
		}
		l.expr(title+" "+ref, x.Expr)
	}
}

var (
	selector = regexp.MustCompile(`\b([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	window   = regexp.MustCompile(`\[([^\]:]+)`)
)

// expr checks one expression by its text; that Prometheus can run it is for Prometheus to say.
func (l *linter) expr(where, expr string) {
	found := selector.FindAllStringSubmatch(expr, -1)
	if len(found) == 0 {
		l.say("%s: no selector in %s", where, expr)
	}
	for _, m := range found {
		if !strings.Contains(m[2], `job=~"$job"`) {
			l.say("%s: %s is of any job", where, m[1])
		}
	}
	for _, m := range window.FindAllStringSubmatch(expr, -1) {
		if m[1] != step && m[1] != whole {
			l.say("%s: the window %s does not follow the resolution", where, m[1])
		}
	}
}
