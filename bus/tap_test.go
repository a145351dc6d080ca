package bus_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/bustest"
	"github.com/rehome-dev/rehome/schemas"
)

func TestATapSeesScopesWithoutTakingThemFromTheirFunction(t *testing.T) {
	b := bustest.New(t, strategy)
	tapped := make(chan schemas.Event, 16)
	background(t, func(ctx context.Context) error {
		return b.Tap(ctx, []string{bus.ScopeChannels, bus.VerdictChannels}, func(e schemas.Event) error {
			tapped <- e
			return nil
		})
	})
	listens(t, b, tapped)

	want := []schemas.Event{scope(t, "a", 1), verdict(t, "pod-1"), scope(t, "b", 1)}
	publish(t, b, want[0], delta(t, "a"), want[1], want[2])
	var got []schemas.Event
	for len(got) < len(want) {
		if e := next(t, tapped); e.Subject != probe {
			got = append(got, e)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	worked := make(chan string, 2)
	background(t, func(ctx context.Context) error {
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

// probe is what the events are about that find out whether a tap listens already.
const probe = "namespaces/web/pods/probe"

func listens(t *testing.T, b *bus.Bus, tapped <-chan schemas.Event) {
	t.Helper()
	bustest.Eventually(t, "the tap listens", func() bool {
		publish(t, b, verdict(t, "probe"))
		return len(tapped) > 0
	})
}

func TestATapLeavesOutWhatCannotBeReadAndEndsWithTheErrorOfItsHandler(t *testing.T) {
	r := newRig(t, bus.Setup{})
	enough := errors.New("enough")
	tapped := make(chan schemas.Event, 16)
	done := make(chan error, 1)
	go func() {
		done <- r.bus.Tap(t.Context(), []string{bus.VerdictChannels}, func(e schemas.Event) error {
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
	publish(t, r.bus, v)
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
