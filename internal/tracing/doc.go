// Package tracing makes OpenTelemetry spans of requests and carries W3C trace context from clients to the prefill node.
//
// It is off unless New is given an endpoint: a nil *Tracer and the zero Span do nothing and cost nothing, and the
// client's own trace context goes through unchanged.
//
// # Ownership
//
// The Tracer owns its exporter and the exporter's goroutine, which end in Shutdown. A Span belongs to the goroutine of its
// request, which must End it.
//
// # Invariants
//
//  1. A span begins with the sampling decision of the client's trace context, when it brings one.
//  2. Sending spans never delays a request: what the exporter cannot take in time is dropped.
//
// # Not here
//
// Which steps a request has (router).
package tracing
