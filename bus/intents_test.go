package bus_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// followed is an answer that a follower got. The receiver decides what the handler returns.
type followed struct {
	event schemas.Event
	end   chan error
}

func follow(t testing.TB, b *bus.Bus) <-chan followed {
	t.Helper()
	c := make(chan followed)
	expect.Background(t, func(ctx context.Context) error {
		return b.FollowIntents(ctx, func(ctx context.Context, e schemas.Event) error {
			f := followed{event: e, end: make(chan error, 1)}
			select {
			case c <- f:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case err := <-f.end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return c
}

func give(t testing.TB, b *bus.Bus, node string, sequence uint64, pods ...string) schemas.Event {
	t.Helper()
	e, a := answer(t, node, sequence, pods...)
	expect.Must(t, b.Answer(t.Context(), e, a))
	return e
}

func TestFollowIntentsOldestFirst(t *testing.T) {
	r := newRig(t, bus.Setup{})
	b, first := r.bus, r.first(t, bus.StreamIntents)
	give(t, b, "a", 1, "pod-1")
	second := give(t, b, "b", 1, "pod-2")
	third := give(t, b, "a", 2, "pod-3") // in the place of the first
	second.Sequence, third.Sequence = first+1, first+2
	c := follow(t, b)
	for _, want := range []schemas.Event{second, third} {
		got := next(t, c)
		got.end <- nil
		expect.Equal(t, "event", got.event, want)
	}
	fourth := give(t, b, "b", 2)
	fourth.Sequence = first + 3
	got := next(t, c)
	got.end <- nil
	expect.Equal(t, "event", got.event, fourth)
}

func TestFollowIntentsInvalid(t *testing.T) {
	r := newRig(t, bus.Setup{})
	garbage, _ := answer(t, "garbage", 1)
	r.garbage(t, garbage.Channel, nil, "garbage")
	bad := give(t, r.bus, "bad", 1, "pod-1")
	good := give(t, r.bus, "good", 1, "pod-2")
	c := follow(t, r.bus)
	next(t, c).end <- fmt.Errorf("no such profile: %w", schemas.ErrInvalid)
	last := next(t, c)
	last.end <- nil
	expect.Equal(t, "after the invalid answer came", last.event.ID, good.ID)
	letters := r.deadLetters(t, 2)
	var got [][3]string
	for _, l := range letters {
		got = append(got, [3]string{l.Subject, l.Header.Get(bus.HeaderSubject), string(l.Data)})
	}
	want := [][3]string{
		{"rehome.dead.REHOME_INTENTS.tester", garbage.Channel, "garbage"},
		{"rehome.dead.REHOME_INTENTS.tester", bad.Channel, string(bad.Data)},
	}
	if !reflect.DeepEqual(got, want) || !strings.Contains(letters[1].Header.Get(bus.HeaderError), "no such profile") {
		t.Errorf("dead letters:\ngot  %q\nwant %q", got, want)
	}
	left := map[string]string{good.Channel: string(good.Data)}
	expect.Equal(t, "left in the table", r.messages(t, bus.StreamIntents), left)
}

func TestFollowIntentsRetries(t *testing.T) {
	b := bustest.New(t)
	one, two := give(t, b, "a", 1, "pod-1"), give(t, b, "b", 1, "pod-2")
	c := follow(t, b)
	var got []string
	for _, end := range []error{errors.New("busy"), nil, errors.New("busy"), nil} {
		f := next(t, c)
		f.end <- end
		got = append(got, f.event.ID)
	}
	if want := []string{one.ID, two.ID, one.ID, one.ID}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFollowIntentsNewerAnswer(t *testing.T) {
	b := bustest.New(t)
	give(t, b, "a", 1, "pod-1")
	c := follow(t, b)
	first := next(t, c)
	newer := give(t, b, "a", 2, "pod-2") // before the first can fail, so it comes before the next try
	first.end <- errors.New("busy")
	second := next(t, c)
	second.end <- errors.New("busy")
	third := next(t, c)
	third.end <- nil
	if second.event.ID != newer.ID || third.event.ID != newer.ID {
		t.Errorf("got %s and %s, want twice %s", second.event.ID, third.event.ID, newer.ID)
	}
	select {
	case again := <-c:
		t.Errorf("got %s again after it was taken over", again.event.ID)
		again.end <- nil
	case <-time.After(500 * time.Millisecond): // more than twice the first delay
	}
}

func TestDropSingleAnswer(t *testing.T) {
	r := newRig(t, bus.Setup{})
	give(t, r.bus, "a", 1, "pod-1")
	kept := give(t, r.bus, "b", 1, "pod-2")
	c := follow(t, r.bus)
	a := next(t, c)
	a.end <- nil
	drop := func(e schemas.Event, left ...schemas.Event) {
		t.Helper()
		if err := r.bus.DropIntents(t.Context(), e); err != nil {
			t.Errorf("drop %s: %v", e.Channel, err)
		}
		want := make(map[string]string)
		for _, e := range left {
			want[e.Channel] = string(e.Data)
		}
		expect.Equal(t, "left in the table", r.messages(t, bus.StreamIntents), want)
	}
	newer := give(t, r.bus, "a", 2, "pod-3")
	drop(a.event, newer, kept) // a newer one has its place
	b := next(t, c)
	b.end <- nil
	drop(b.event, newer)
	drop(b.event, newer) // gone already
	never := b.event
	never.Sequence = 1000
	drop(never, newer) // never was
}

func TestFollowIntentsReconnect(t *testing.T) {
	o, server, b := restartable(t)
	want := give(t, b, "a", 1, "pod-1")
	c := follow(t, b)
	next(t, c).end <- nil
	server.Stop()
	bustest.Server(t, o)
	again := next(t, c)
	again.end <- nil
	expect.Equal(t, "event", again.event.ID, want.ID)
}
