package app

import (
	"context"
	"errors"
	"log/slog"

	"k8s.io/klog/v2"
)

// setClientLog sets the log of client-go.
func setClientLog(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(clientLog{log.With("component", "client-go").Handler()}))
}

// clientLog drops the errors of canceled requests, because a leader that stops cancels its requests.
type clientLog struct{ slog.Handler }

// Handle implements [slog.Handler].
func (l clientLog) Handle(ctx context.Context, r slog.Record) error {
	canceled := false
	r.Attrs(func(a slog.Attr) bool {
		err, _ := a.Value.Any().(error)
		canceled = errors.Is(err, context.Canceled)
		return !canceled
	})
	if canceled {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (l clientLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return clientLog{l.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (l clientLog) WithGroup(name string) slog.Handler { return clientLog{l.Handler.WithGroup(name)} }
