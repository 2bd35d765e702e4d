package tracing

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes spans. A nil Tracer makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// New returns a tracer that sends to the OTLP endpoint, an http or https URL such as http://collector:4318; with an empty
// endpoint it returns nil. Nothing is sent before the first span.
func New(ctx context.Context, endpoint, version string) (*Tracer, error) {
	if endpoint == "" {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("traces to %s: %w", endpoint, err)
	}
	return newTracer(sdk.NewBatchSpanProcessor(exporter), version), nil
}

func newTracer(to sdk.SpanProcessor, version string) *Tracer {
	about := resource.NewSchemaless(attribute.String("service.name", "pd-router"), attribute.String("service.version", version))
	p := sdk.NewTracerProvider(sdk.WithSpanProcessor(to), sdk.WithResource(about),
		sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())))
	return &Tracer{provider: p, tracer: p.Tracer("pd-router")}
}

// Shutdown sends what is left, within ctx.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Span is a request, or a step of one. The zero Span does nothing.
type Span struct {
	tracer trace.Tracer
	ctx    context.Context
	span   trace.Span
}

// carrier reads the two headers of W3C trace context.
var w3c propagation.TraceContext

// Request begins the span of a request that came with these headers, "" when it brought none.
func (t *Tracer) Request(name, traceparent, tracestate string, start time.Time) Span {
	if t == nil {
		return Span{}
	}
	ctx := w3c.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate})
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindServer))
	return Span{t.tracer, ctx, span}
}

// Step begins a child of s.
func (s Span) Step(name string) Span {
	if s.span == nil {
		return Span{}
	}
	ctx, span := s.tracer.Start(s.ctx, name)
	return Span{s.tracer, ctx, span}
}

// Set notes a fact about the span.
func (s Span) Set(key, value string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// SetInt notes a number about the span.
func (s Span) SetInt(key string, value int) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// End ends the span; problem, when not "", marks it as failed.
func (s Span) End(problem string) {
	if s.span == nil {
		return
	}
	if problem != "" {
		s.span.SetStatus(codes.Error, problem)
	}
	s.span.End()
}

// On says whether the span is real.
func (s Span) On() bool { return s.span != nil }

// TraceID is the id of the trace in hex, "" when there is none or it is not recorded.
func (s Span) TraceID() string {
	if s.span == nil || !s.span.SpanContext().IsSampled() {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// AppendHeader appends the header lines that make the next node's spans children of s.
func (s Span) AppendHeader(dst []byte) []byte {
	if s.span == nil {
		return dst
	}
	carrier := propagation.MapCarrier{}
	w3c.Inject(s.ctx, carrier)
	for _, name := range w3c.Fields() {
		if v := carrier[name]; v != "" {
			dst = append(append(append(append(dst, name...), ": "...), v...), "\r\n"...)
		}
	}
	return dst
}
