package trace

import (
	"context"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// given is the generator of IDs that generates none: a span gets those that its event has. The SDK asks it with the
// context in which the span is started, so that is where they are.
type given struct{}

var _ sdktrace.IDGenerator = given{}

// ownKey is where the context of a span has the span's own IDs.
type ownKey struct{}

// below is the context in which a span is started that has its own IDs and a parent. A parent that is not valid, or of
// another trace, is none.
func below(own, parent trace.SpanContext) context.Context {
	ctx := context.WithValue(context.Background(), ownKey{}, own) //nolint:forbidigo // the SDK hands its generator nothing else
	if !parent.IsValid() || parent.TraceID() != own.TraceID() {
		return ctx
	}
	// A chain is sampled as a whole: whether this event is, is said by itself.
	return trace.ContextWithRemoteSpanContext(ctx, parent.WithTraceFlags(own.TraceFlags()))
}

// NewIDs gives the first span of a trace its IDs.
func (given) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	own, _ := ctx.Value(ownKey{}).(trace.SpanContext)
	return own.TraceID(), own.SpanID()
}

// NewSpanID gives any other span its ID.
func (given) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	own, _ := ctx.Value(ownKey{}).(trace.SpanContext)
	return own.SpanID()
}
