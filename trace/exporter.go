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

// flushWithin is how long [Exporter.Close] goes on sending.
const flushWithin = 2 * time.Second

// errClosing is why what is still being sent at the end is cut short.
var errClosing = errors.New("the process ends")

// Exporter exports spans over OTLP/HTTP. Make one with [New]. nil is an Exporter that exports nothing. Its methods may be
// called from many goroutines at once.
type Exporter struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	cut      context.CancelCauseFunc // ends what is being sent
}

// New makes what the environment asks for: nil when neither OTEL_EXPORTER_OTLP_ENDPOINT nor
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, or tracing is switched off. It sends nothing yet, and does not wait for the
// collector. version is that of the program.
//
// An error says which variable is wrong and what it should be.
func New(version string, log *slog.Logger) (*Exporter, error) {
	if on, err := wanted(os.Getenv); err != nil || !on {
		return nil, err
	}
	ctx, cut := context.WithCancelCause(context.Background())
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("rehome"), semconv.ServiceVersion(version)),
		resource.WithFromEnv()) // the last one wins
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
		sdktrace.WithIDGenerator(given{}), sdktrace.WithResource(about))
	return &Exporter{provider: provider, tracer: provider.Tracer("github.com/rehome-dev/rehome"), cut: cut}, nil
}

// Emitted exports the spans of events that were made here and are stored now. It returns at once. An event without a trace
// context has no span.
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
	_, span := x.tracer.Start(below(own, spanContext(e.Parent)), about.name,
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithTimestamp(began), trace.WithAttributes(about.attributes...))
	if about.failed != "" {
		span.SetStatus(codes.Error, about.failed)
	}
	span.End(trace.WithTimestamp(stored))
}

// Close sends what is left, for at most 2 seconds, and stops. Nothing is exported afterwards.
func (x *Exporter) Close() {
	if x == nil {
		return
	}
	late := time.AfterFunc(flushWithin, func() { x.cut(errClosing) })
	defer late.Stop()
	_ = x.provider.Shutdown(context.Background()) // what could not be sent is said by the sender
	x.cut(errClosing)
}

// spanContext reads a W3C trace context. It is not valid when the text is not.
func spanContext(traceParent string) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": traceParent}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}
