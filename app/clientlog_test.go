package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"k8s.io/klog/v2"
)

func TestClientLog(t *testing.T) {
	var text bytes.Buffer
	setClientLog(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	t.Cleanup(func() { klog.ClearLogger() })
	klog.ErrorS(fmt.Errorf("read: %w", context.Canceled), "canceled")
	klog.ErrorS(errors.New("reset"), "failed")
	klog.InfoS("named", "pod", "a")
	want := "level=ERROR msg=failed component=client-go err=reset\nlevel=INFO msg=named component=client-go pod=a\n"
	if got := text.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
