package trace

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// sender sends spans. It logs when sending begins to fail and when it works again. It returns no errors, because the SDK would
// write each one to standard error through a handler that the whole process shares.
type sender struct {
	sdktrace.SpanExporter
	ended context.Context // ends the requests in flight
	log   *slog.Logger
	away  atomic.Bool
}

// ExportSpans sends a batch. It always returns nil.
func (s *sender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ended, func() { cancel(context.Cause(s.ended)) })()
	err := s.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && s.away.CompareAndSwap(false, true):
		s.log.Warn("traces cannot be sent, dropping them until the collector answers", "error", err)
	case err == nil && s.away.CompareAndSwap(true, false):
		s.log.Info("traces are sent again")
	}
	return nil
}
