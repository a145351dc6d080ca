package trace

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// eventIDs is an ID generator that returns the IDs of the event. The SDK calls it with the context that starts the span.
type eventIDs struct{}

var _ sdktrace.IDGenerator = eventIDs{}

// eventIDsKey is the context key of the span context with the event's IDs.
type eventIDsKey struct{}

// startContext returns a context for starting a span with these IDs. It ignores a parent that is invalid or belongs to
// another trace.
func startContext(own, parent trace.SpanContext) context.Context {
	ctx := context.WithValue(context.Background(), eventIDsKey{}, own) //nolint:forbidigo // the SDK passes only this
	if !parent.IsValid() || parent.TraceID() != own.TraceID() {
		return ctx
	}
	// Every span of a chain has the same sampling decision, so the flags of the event apply to its parent.
	return trace.ContextWithRemoteSpanContext(ctx, parent.WithTraceFlags(own.TraceFlags()))
}

// NewIDs returns the IDs of a root span.
func (eventIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	own, _ := ctx.Value(eventIDsKey{}).(trace.SpanContext)
	return own.TraceID(), own.SpanID()
}

// NewSpanID returns the ID of a span with a parent.
func (eventIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	own, _ := ctx.Value(eventIDsKey{}).(trace.SpanContext)
	return own.SpanID()
}
