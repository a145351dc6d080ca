package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/rehome-dev/rehome/schemas"
)

// flushWithin is how long [Exporter.Close] continues to send.
const flushWithin = 2 * time.Second

// errClosing is why Close cancels requests.
var errClosing = errors.New("the process ends")

// Exporter exports spans over OTLP/HTTP. Use [New] to make one. A nil Exporter exports nothing. Its methods are safe for
// concurrent use.
type Exporter struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	cut      context.CancelCauseFunc // cancels requests
}

// New returns the exporter that the environment configures. It returns nil if neither OTEL_EXPORTER_OTLP_ENDPOINT nor
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, or if tracing is disabled. It does not connect to the collector. version is the
// version of the program. An error names the wrong variable and the expected value.
func New(version string, log *slog.Logger) (*Exporter, error) {
	if on, err := wanted(os.Getenv); err != nil || !on {
		return nil, err
	}
	ctx, cut := context.WithCancelCause(context.Background())
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("rehome"), semconv.ServiceVersion(version)),
		resource.WithFromEnv()) // the last value of an attribute wins
	if err != nil {
		cut(errClosing)
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otlp, err := otlptracehttp.New(ctx)
	if err != nil {
		cut(errClosing)
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&sender{SpanExporter: otlp, ended: ctx, log: log}),
		sdktrace.WithIDGenerator(eventIDs{}), sdktrace.WithResource(about))
	return &Exporter{provider: provider, tracer: provider.Tracer("github.com/rehome-dev/rehome"), cut: cut}, nil
}

// Emitted exports the spans of events that this process has published. It does not block. Events without a trace context are
// ignored.
func (x *Exporter) Emitted(events ...schemas.Event) {
	if x == nil {
		return
	}
	now := time.Now()
	for _, e := range events {
		x.emitted(e, now)
	}
}

func (x *Exporter) emitted(e schemas.Event, stored time.Time) {
	own := spanContext(e.TraceParent)
	if !own.IsValid() {
		return
	}
	began := e.Began
	if began.IsZero() {
		began = e.Time
	}
	if began.After(stored) { // a clock was set back
		began = stored
	}
	about := describe(e)
	_, span := x.tracer.Start(startContext(own, spanContext(e.Parent)), about.name,
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(began), trace.WithAttributes(about.attributes...))
	if about.failed != "" {
		span.SetStatus(codes.Error, about.failed)
	}
	span.End(trace.WithTimestamp(stored))
}

// Close sends the remaining spans for at most 2 seconds, and then drops them and all later ones.
func (x *Exporter) Close() {
	if x == nil {
		return
	}
	late := time.AfterFunc(flushWithin, func() { x.cut(errClosing) })
	defer late.Stop()
	_ = x.provider.Shutdown(context.Background()) // the sender logs errors
	x.cut(errClosing)
}

// spanContext parses a W3C trace context. The result is not valid if the text is not.
func spanContext(traceParent string) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": traceParent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}
