package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// handedOut returns how many scopes of the strategy are delivered at once, or 0 without a consumer.
func handedOut(t *testing.T, r rig) int {
	t.Helper()
	c, err := r.raw.Consumer(t.Context(), bus.StreamScopes, strategy)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0
	}
	expect.Must(t, err)
	return c.CachedInfo().Config.MaxAckPending
}

func TestConsumerCreation(t *testing.T) {
	r := newRig(t, bus.Setup{Strategies: []string{}})
	_, stop := manual(t, r.bus, bus.Work{Make: true})
	expect.Eventually(t, "the consumer is made", func() bool { return handedOut(t, r) == 16 })
	stop()
	expect.Must(t, r.raw.DeleteConsumer(t.Context(), bus.StreamScopes, strategy))
	scopes, _ := manual(t, r.bus, bus.Work{Make: true, Parallel: 20})
	expect.Eventually(t, "the consumer is made for as many", func() bool { return handedOut(t, r) == 40 })
	bustest.Publish(t, r.bus, scope(t, "a", 1))
	h := next(t, scopes)
	h.end <- nil
	r.empty(t, bus.StreamScopes)
}

func TestConsumerUpdate(t *testing.T) {
	r := newRig(t, bus.Setup{AckWait: time.Minute, Parallel: map[string]int{strategy: 50, "Another": 9}})
	for _, c := range []struct {
		work bus.Work
		want int
	}{
		{bus.Work{Parallel: 20, Make: true}, 100},
		{bus.Work{Parallel: 60}, 100},
		{bus.Work{Parallel: 60, Make: true}, 120},
	} {
		scopes, stop := manual(t, r.bus, c.work)
		bustest.Publish(t, r.bus, scope(t, "a", 1))
		h := next(t, scopes)
		h.end <- nil
		r.empty(t, bus.StreamScopes)
		stop()
		if got := handedOut(t, r); got != c.want {
			t.Errorf("%+v: got %d, want %d", c.work, got, c.want)
		}
	}
	c, err := r.raw.Consumer(t.Context(), bus.StreamScopes, strategy)
	expect.Must(t, err)
	if got := c.CachedInfo().Config.AckWait; got != time.Minute {
		t.Errorf("another setting of the consumer has changed: it waits for %v, want 1m", got)
	}
}

// TestConsumerUpdateRefused has the key of a dispatcher, which may not change consumers.
func TestConsumerUpdateRefused(t *testing.T) {
	all, guarded := guardedServer(t, bus.RightsOf(bus.Participant{Role: bus.RoleDispatcher}, hosting))
	setup := bustest.Connect(t, bus.Options{Name: "setup", URL: all})
	bustest.SetUp(t, setup, bus.Setup{Strategies: []string{strategy}})
	var log program.Log
	b := bustest.Connect(t, bus.Options{Name: "dispatcher", URL: guarded, Log: slog.New(slog.NewTextHandler(&log, nil))})
	scopes, _ := manual(t, b, bus.Work{Parallel: 20, Make: true})
	bustest.Publish(t, setup, scope(t, "a", 1))
	h := next(t, scopes)
	h.end <- nil
	expect.Equal(t, "scope", h.event.ID, "a-1")
	warning := `level=WARN msg="too few scopes are delivered at once: run rehome setup" strategy=RemovePods delivered=16 want=40`
	expect.Equal(t, "warnings", strings.Count(log.String(), warning), 1)
}

func TestCanceledHandlerRedelivers(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.Publish(t, r.bus, scope(t, "a", 1))
	ctx, cancel := context.WithCancel(t.Context())
	c := make(chan handled, 1)
	expect.Background(t, func(context.Context) error {
		return r.bus.Work(ctx, bus.Work{Strategy: strategy}, func(_ context.Context, e schemas.Event) error {
			c <- handled{event: e}
			<-ctx.Done()
			return ctx.Err()
		})
	})
	next(t, c)
	cancel()
	scopes, _ := manual(t, r.bus, bus.Work{})
	h := next(t, scopes)
	h.end <- nil
	expect.Equal(t, "scope", h.event.ID, "a-1")
	r.empty(t, bus.StreamScopes)
}

func TestConsumerWithPrefix(t *testing.T) {
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{}), Prefix: "eu1"})
	bustest.SetUp(t, b, bus.Setup{})
	scopes, _ := manual(t, b, bus.Work{Make: true})
	bustest.Publish(t, b, scope(t, "a", 1))
	h := next(t, scopes)
	h.end <- nil
	expect.Equal(t, "scope", h.event.ID, "a-1")
}

// The stream is created again while all handlers run, without a loss of the connection.
func TestScopeNumberInNewStream(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.Publish(t, r.bus, scope(t, "a", 1), scope(t, "a", 2)) // the sequence of b differs, and so its ack
	scopes, _ := manual(t, r.bus, bus.Work{Parallel: 1})
	first := next(t, scopes)
	expect.Must(t, r.raw.DeleteStream(t.Context(), bus.StreamScopes))
	bustest.SetUp(t, r.bus, bus.Setup{Strategies: []string{strategy}})
	want, err := r.bus.Publish(t.Context(), scope(t, "b", 1))
	expect.Must(t, err)
	time.Sleep(time.Second) // a slow function
	first.end <- nil
	second := next(t, scopes)
	second.end <- nil
	expect.Equal(t, "number", second.event.Sequence, want)
	r.empty(t, bus.StreamScopes)
}
