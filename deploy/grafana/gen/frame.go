package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// tag is what the dashboards find each other by.
const tag = "pd-router"

// frame is what all dashboards have: a name, links to the others, the variables datasource and job, marks for events.
func frame(uid, title, text string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder("pd-router / "+title).Uid(uid).Description(text).Tags([]string{tag}).
		Refresh("10s").Time("now-30m", "now").Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).Editable().
		Link(dashboard.NewDashboardLinkBuilder("pd-router").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{tag}).
			IncludeVars(true).KeepTime(true).Icon("external link").Tooltip("The other dashboards of the router, with the same time and choices.")).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(choice("job", "Job", "label_values(pd_router_queue_depth, job)")).
		Annotation(event("Prefill node down", red, "1 - "+sel("pd_router_prefill_up"), "prefill node down")).
		Annotation(event("Decode node down", orange, "1 - min by (node) ("+sel("pd_router_node_up")+")", "{{node}} down")).
		Annotation(event("Router restarted", blue, "changes("+sel("process_start_time_seconds")+"["+step+"])", "{{instance}} restarted"))
}

// choice is a variable with the values of a label; all of them to begin with.
func choice(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source).Query(dashboard.StringOrMap{String: cog.ToPtr(query)}).
		Definition(query).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).IncludeAll(true).
		Current(dashboard.VariableOption{Text: text("All"), Value: text("$__all")})
}

// nodes is the variable for decode nodes. worker_id of the vllm: families has the same values.
func nodes() *dashboard.QueryVariableBuilder {
	return choice("node", "Decode node", `label_values(pd_router_node_up{job=~"$job"}, node)`)
}

// model is the variable for the model's name. A router that was given none has no such label, which All matches too.
func model() *dashboard.QueryVariableBuilder {
	return choice("model", "Model", `label_values(vllm:generation_tokens_total{job=~"$job"}, model_name)`).AllValue(".*")
}

func text(s string) dashboard.StringOrArrayOfString {
	return dashboard.StringOrArrayOfString{String: &s}
}

// event marks the times at which an expression is above zero.
func event(name, colour, expr, title string) *dashboard.AnnotationQueryBuilder {
	return dashboard.NewAnnotationQueryBuilder().Name(name).Datasource(source).Enable(true).IconColor(colour).Expr(expr).TitleFormat(title).TagKeys("job,instance")
}

// noted marks what was written into Grafana under a tag, such as the points of a benchmark.
func noted(name, colour, tag string) *dashboard.AnnotationQueryBuilder {
	target := variants.UnknownDataquery{"limit": 100, "matchAny": false, "tags": []string{tag}, "type": "tags"}
	return dashboard.NewAnnotationQueryBuilder().Name(name).Enable(true).IconColor(colour).
		Datasource(common.DataSourceRef{Type: cog.ToPtr("grafana"), Uid: cog.ToPtr("-- Grafana --")}).
		Target(variants.NewUnknownDataqueryBuilderFromObject(target))
}

// row begins a part of a dashboard.
func row(title string) *dashboard.RowBuilder { return dashboard.NewRowBuilder(title) }
