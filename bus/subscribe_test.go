package bus_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestSubscribeToScopes(t *testing.T) {
	b := bustest.New(t, strategy)
	tapped := make(chan schemas.Event, 16)
	expect.Background(t, func(ctx context.Context) error {
		return b.Subscribe(ctx, []string{bus.ScopeChannels, bus.VerdictChannels}, nil, func(e schemas.Event) error {
			tapped <- e
			return nil
		})
	})
	listens(t, b, tapped)

	want := []schemas.Event{scope(t, "a", 1), verdict(t, "pod-1"), scope(t, "b", 1)}
	bustest.Publish(t, b, want[0], bustest.Delta(t, "a"), want[1], want[2])
	var got []schemas.Event
	for len(got) < len(want) {
		if e := next(t, tapped); e.Subject != probe {
			got = append(got, e)
		}
	}
	expect.Equal(t, "result", got, want)

	worked := make(chan string, 2)
	expect.Background(t, func(ctx context.Context) error {
		return b.Work(ctx, bus.Work{Strategy: strategy}, func(_ context.Context, e schemas.Event) error {
			worked <- e.ID
			return nil
		})
	})
	handled := map[string]bool{next(t, worked): true, next(t, worked): true}
	if want := map[string]bool{"a-1": true, "b-1": true}; !reflect.DeepEqual(handled, want) {
		t.Errorf("the function got %v, want %v", handled, want)
	}
}

// probe is the subject of events that detect whether a tap listens already.
const probe = "namespaces/web/pods/probe"

func listens(t *testing.T, b *bus.Bus, tapped <-chan schemas.Event) {
	t.Helper()
	expect.Eventually(t, "the tap listens", func() bool {
		bustest.Publish(t, b, verdict(t, "probe"))
		return len(tapped) > 0
	})
}

func TestSubscribeErrors(t *testing.T) {
	r := newRig(t, bus.Setup{})
	enough := errors.New("enough")
	tapped := make(chan schemas.Event, 16)
	done := make(chan error, 1)
	go func() {
		done <- r.bus.Subscribe(t.Context(), []string{bus.VerdictChannels}, nil, func(e schemas.Event) error {
			tapped <- e
			if e.Subject != probe {
				return enough
			}
			return nil
		})
	}()
	listens(t, r.bus, tapped)
	r.garbage(t, "rehome.verdict.evicted.RemovePods.web.pod-0", nil, "garbage")
	v := verdict(t, "pod-1")
	bustest.Publish(t, r.bus, v)
	if got := next(t, done); !errors.Is(got, enough) {
		t.Errorf("it ended with %v, want %v", got, enough)
	}
	close(tapped)
	for e := range tapped {
		if e.Subject != probe && e.ID != v.ID {
			t.Errorf("got %+v, want %+v", e, v)
		}
	}
}

func TestSubscribed(t *testing.T) {
	b := bustest.New(t, strategy)
	for range 50 {
		want := verdict(t, "pod-1")
		got := make(chan schemas.Event, 1)
		stop := expect.Background(t, func(ctx context.Context) error {
			return b.Subscribe(ctx, []string{bus.VerdictChannels}, func(ctx context.Context) error {
				_, err := b.Publish(ctx, want)
				return err
			}, func(e schemas.Event) error {
				got <- e
				return nil
			})
		})
		if e := next(t, got); !reflect.DeepEqual(e, want) {
			t.Fatalf("got %+v, want %+v", e, want)
		}
		stop()
	}
}

func TestSubscribedAfterReconnect(t *testing.T) {
	o, server, b := restartable(t, strategy)
	told, heard := make(chan struct{}, 16), make(chan schemas.Event, 16)
	expect.Background(t, func(ctx context.Context) error {
		return b.Subscribe(ctx, []string{bus.VerdictChannels}, func(context.Context) error {
			told <- struct{}{}
			return nil
		}, func(e schemas.Event) error {
			heard <- e
			return nil
		})
	})
	next(t, told)
	for i, pod := range []string{"pod-1", "pod-2"} {
		want := verdict(t, pod)
		expect.Eventually(t, "it can be published", func() bool { _, err := b.Publish(t.Context(), want); return err == nil })
		expect.Equal(t, "next", next(t, heard), want)
		if i == 0 {
			server.Stop()
			bustest.Server(t, o)
			next(t, told)
		}
	}
	if len(told) > 0 {
		t.Errorf("it was called %d times more, want once for each connection", len(told))
	}
}

func TestSubscribeReturnsHandlerError(t *testing.T) {
	b := bustest.New(t, strategy)
	no := errors.New("no")
	err := b.Subscribe(t.Context(), []string{bus.VerdictChannels}, func(context.Context) error { return no },
		func(schemas.Event) error { return nil })
	if !errors.Is(err, no) {
		t.Errorf("it ended with %v, want %v", err, no)
	}
}
