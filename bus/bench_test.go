package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/bustest"
)

// quiet returns a bus without logs.
func quiet(b *testing.B) *bus.Bus {
	b.Helper()
	c := bustest.Connect(b, bus.Options{
		Server: bustest.Server(b, embed.Options{}), Log: slog.New(slog.DiscardHandler),
	})
	bustest.SetUp(b, c, bus.Setup{Strategies: []string{strategy}})
	return c
}

// BenchmarkPublish publishes one delta after another, each written to disk.
func BenchmarkPublish(b *testing.B) {
	c := quiet(b)
	e := bustest.Delta(b, "worker-1")
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		e.ID = fmt.Sprint(n)
		if _, err := c.Publish(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScopeToHandler measures the time from the publication of a scope until its handler gets it.
func BenchmarkScopeToHandler(b *testing.B) {
	c := quiet(b)
	got := make(chan struct{})
	background(b, func(ctx context.Context) error {
		return c.Work(ctx, bus.Work{Strategy: strategy}, func(context.Context, schemas.Event) error {
			got <- struct{}{}
			return nil
		})
	})
	e := scope(b, "worker-1", 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Publish(b.Context(), e); err != nil {
			b.Fatal(err)
		}
		<-got
	}
}
