package trace

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// sender sends spans, and says in the log when they do not arrive any more and when they do again. Its errors end here:
// the SDK would write each of them to the standard error, through what all of the process share.
type sender struct {
	sdktrace.SpanExporter
	ended context.Context // cuts short what is being sent
	log   *slog.Logger
	away  atomic.Bool
}

// ExportSpans sends a batch. It returns nil.
func (s *sender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ended, func() { cancel(context.Cause(s.ended)) })()
	err := s.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && s.away.CompareAndSwap(false, true):
		s.log.Warn("traces cannot be sent and are dropped until they can", "error", err)
	case err == nil && s.away.CompareAndSwap(true, false):
		s.log.Info("traces are sent again")
	}
	return nil
}
