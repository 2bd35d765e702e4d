package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// Units that the library has no name for. Grafana puts a space of its own before a suffix.
const (
	tokensPerSecond = "suffix:tok/s"
	requestsPerHour = "suffix:req/h"
	slotCount       = "suffix:slots"
)

// Sizes on Grafana's grid.
const (
	columns      = 24
	graphHeight  = 8
	numberHeight = 4
)

// datasourceOfVars is how panels name the data source that the variable chooses.
const datasourceOfVars = "${datasource}"

// Colours of states, the same on every dashboard.
const (
	green  = "green"
	orange = "orange"
	red    = "red"
	blue   = "blue"
	purple = "purple"
	yellow = "yellow"
	grey   = "#808080"
)

var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr(datasourceOfVars)}

// query is one expression of a panel; its refId is given by its place.
type query struct {
	legend, expr string
	instant      bool // a value for the end of the time range, and not a line
	format       prometheus.PromQueryFormat
}

// q is a query that draws lines.
func q(legend, expr string) query { return query{legend: legend, expr: expr} }

// now is a query for one value.
func now(legend, expr string) query { return query{legend: legend, expr: expr, instant: true} }

func (x query) target(i int) *prometheus.DataqueryBuilder {
	b := prometheus.NewDataqueryBuilder().Datasource(source).RefId(string(rune('A' + i))).Expr(x.expr).LegendFormat(x.legend)
	if x.format != "" {
		b.Format(x.format)
	}
	if x.instant {
		return b.Instant()
	}
	return b.Range()
}

// graph draws lines from zero.
func graph(title, text, unit string, width uint32, qs ...query) *timeseries.PanelBuilder {
	p := timeseries.NewPanelBuilder().Title(title).Description(text).Unit(unit).Datasource(source).Span(width).Height(graphHeight).
		Min(0).FillOpacity(8).LineWidth(1).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i, x := range qs {
		p.WithTarget(x.target(i))
	}
	return p
}

// stacked draws areas on top of each other.
func stacked(title, text, unit string, width uint32, qs ...query) *timeseries.PanelBuilder {
	return graph(title, text, unit, width, qs...).FillOpacity(60).LineWidth(0).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// number shows one value, coloured by steps.
func number(title, text, unit string, width uint32, colours []dashboard.Threshold, qs ...query) *stat.PanelBuilder {
	p := stat.NewPanelBuilder().Title(title).Description(text).Unit(unit).Datasource(source).Span(width).Height(numberHeight).
		ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeNone).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(colours))
	for i, x := range qs {
		p.WithTarget(x.target(i))
	}
	return p
}

// steps are colours from given values on: green below the first.
func steps(at ...any) []dashboard.Threshold {
	out := []dashboard.Threshold{{Color: green}}
	for i := 0; i+1 < len(at); i += 2 {
		v := at[i].(float64)
		out = append(out, dashboard.Threshold{Value: &v, Color: at[i+1].(string)})
	}
	return out
}

// plain is a number that is neither good nor bad.
func plain() []dashboard.Threshold { return []dashboard.Threshold{{Color: blue}} }

// colours are those of lines, by name.
type colours []struct{ name, colour string }

// phaseColours are those of phases and slot states, so that a phase looks the same on all dashboards.
var phaseColours = colours{
	{"decode", green}, {"prefill", yellow}, {"kv_wait", orange}, {"settle", purple}, {"queue", blue}, {"waiting", blue}, {"read_body", grey},
}

// byPhase gives the lines of phases their colours.
func byPhase(p *timeseries.PanelBuilder) *timeseries.PanelBuilder { return coloured(p, phaseColours) }

func coloured(p *timeseries.PanelBuilder, lines colours) *timeseries.PanelBuilder {
	for _, c := range lines {
		p.OverrideByName(c.name, []dashboard.DynamicConfigValue{{Id: "color", Value: map[string]string{"mode": "fixed", "fixedColor": c.colour}}})
	}
	return p
}

// ranked has its legend beside it, the largest first: of many lines that are mostly zero, those that are not.
func ranked(p *timeseries.PanelBuilder) *timeseries.PanelBuilder {
	return p.Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeTable).
		Placement(common.LegendPlacementRight).Calcs([]string{"max"}).SortBy("Max").SortDesc(true))
}

// state is what a number stands for in a band.
type state struct {
	value, text, colour string
}

func mapped(states []state) []dashboard.ValueMapping {
	m := dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: map[string]dashboard.ValueMappingResult{}}
	for i, s := range states {
		m.Options[s.value] = dashboard.ValueMappingResult{Text: cog.ToPtr(s.text), Color: cog.ToPtr(s.colour), Index: cog.ToPtr(int32(i))}
	}
	return []dashboard.ValueMapping{{ValueMap: &m}}
}

var upOrDown = []state{{"0", "down", red}, {"1", "up", green}}

// bands draws a band for each series, coloured by what its numbers stand for.
func bands(title, text string, width uint32, states []state, qs ...query) *statetimeline.PanelBuilder {
	p := statetimeline.NewPanelBuilder().Title(title).Description(text).Unit(units.NoUnit).Datasource(source).Span(width).Height(graphHeight).
		Mappings(mapped(states)).ShowValue(common.VisibilityModeNever).MergeValues(true).RowHeight(0.8).FillOpacity(80).LineWidth(0).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeSingle).Sort(common.SortOrderNone))
	for i, x := range qs {
		p.WithTarget(x.target(i))
	}
	return p
}

// density draws how many observations of a histogram fell into each of its buckets.
func density(title, text string, width uint32, histogram string) *heatmap.PanelBuilder {
	x := query{legend: "{{le}}", expr: sum("le", "increase("+sel(histogram+"_bucket")+"["+step+"])"), format: prometheus.PromQueryFormatHeatmap}
	return heatmap.NewPanelBuilder().Title(title).Description(text).Unit(units.Seconds).Datasource(source).Span(width).Height(graphHeight).
		WithTarget(x.target(0)).Calculate(false).HideLegend().
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(units.Seconds).AxisPlacement(common.AxisPlacementLeft)).
		Color(heatmap.NewHeatmapColorOptionsBuilder().Mode(heatmap.HeatmapColorModeScheme).Scheme("Spectral").Steps(64))
}
