package tracing

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func recorder(t *testing.T) (*Tracer, *tracetest.InMemoryExporter) {
	out := tracetest.NewInMemoryExporter()
	tr := newTracer(sdk.NewSimpleSpanProcessor(out), "1")
	t.Cleanup(func() { require.NoError(t, tr.Shutdown(context.Background())) })
	return tr, out
}

func TestSpansContinueTheClientsTrace(t *testing.T) { // invariant 1
	tr, out := recorder(t)
	start := time.Now().Add(-time.Minute)
	s := tr.Request("chat", parent, "k=v", start)
	step := s.Step("prefill")
	header := string(step.AppendHeader(nil))
	step.End("")
	s.SetInt("tokens", 3)
	s.End("it broke")
	spans := out.GetSpans()
	require.Len(t, spans, 2)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", s.TraceID())
	require.Equal(t, spans[1].SpanContext.SpanID(), spans[0].Parent.SpanID(), "a step is a child of its request")
	require.Equal(t, "b7ad6b7169203331", spans[1].Parent.SpanID().String())
	require.Equal(t, start.UnixNano(), spans[1].StartTime.UnixNano())
	require.Contains(t, header, "traceparent: 00-0af7651916cd43dd8448eb211c80319c-"+spans[0].SpanContext.SpanID().String()+"-01\r\n")
	require.Contains(t, header, "tracestate: k=v\r\n")
}

func TestATraceThatIsNotSampledIsNotRecorded(t *testing.T) { // invariant 1
	tr, out := recorder(t)
	s := tr.Request("chat", parent[:len(parent)-1]+"0", "", time.Now())
	s.End("")
	require.Empty(t, out.GetSpans())
	require.Empty(t, s.TraceID())
	require.Contains(t, string(s.AppendHeader(nil)), "-00\r\n", "the decision is passed on")
}

func TestJunkInTheHeaderBeginsANewTrace(t *testing.T) {
	tr, out := recorder(t)
	tr.Request("chat", "00-zz", "", time.Now()).End("")
	require.Len(t, out.GetSpans(), 1)
	require.False(t, out.GetSpans()[0].Parent.IsValid())
}

func TestWithoutATracerNothingHappens(t *testing.T) {
	tr, err := New(context.Background(), "", "1")
	require.NoError(t, err)
	require.Nil(t, tr)
	s := tr.Request("chat", parent, "", time.Now())
	s.Step("prefill").Set("a", "b")
	s.End("")
	require.Empty(t, s.AppendHeader(nil))
	require.False(t, s.On())
	require.NoError(t, tr.Shutdown(context.Background()))
	require.Zero(t, testing.AllocsPerRun(100, func() { tr.Request("chat", "", "", time.Time{}).Step("x").End("") }))
}
