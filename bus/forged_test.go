package bus_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestForgedEvents publishes a verdict and too much data on the channel of intents, which the key of a function may do, and then a
// real verdict. Only that one is an event for readers.
func TestForgedEvents(t *testing.T) {
	r := newRig(t, bus.Setup{})
	forged, large, want := verdict(t, "pod-1"), give(t, r.bus, "b", 1, "pod-2"), verdict(t, "pod-3")
	forged.Channel = strings.Replace(large.Channel, ".b", ".a", 1)
	large.ID, large.Data = "large", append(bytes.TrimSuffix(large.Data, []byte("}")), bytes.Repeat([]byte(" "), 16<<20)...)
	large.Data = append(large.Data, '}')
	first := func(read func(context.Context, func(schemas.Event) error) error) schemas.Event {
		t.Helper()
		c := make(chan schemas.Event, 10)
		expect.Background(t, func(ctx context.Context) error {
			return read(ctx, func(e schemas.Event) error {
				c <- e
				return nil
			})
		})
		return next(t, c)
	}
	got := map[string]string{"live": first(func(ctx context.Context, handle func(schemas.Event) error) error {
		return r.bus.Subscribe(ctx, []string{bus.IntentsChannels, bus.VerdictChannels}, func(context.Context) error {
			bustest.Publish(t, r.bus, forged, large)
			expect.Eventually(t, "the history has the copies", func() bool {
				return r.stream(t, bus.StreamEvents).CachedInfo().State.Msgs == 3
			})
			bustest.Publish(t, r.bus, want)
			return nil
		}, handle)
	}).ID}
	past := bus.Query{After: 1}
	got["past"] = fmt.Sprint(bustest.IDs(t, r.bus, past))
	past.Follow = true
	got["following"] = first(func(ctx context.Context, handle func(schemas.Event) error) error {
		return r.bus.Events(ctx, past, handle)
	}).ID
	got["listener"] = first(func(ctx context.Context, handle func(schemas.Event) error) error {
		l := bus.Listener{Name: "forwarder", Since: time.Unix(1, 0), Parallel: 1}
		return r.bus.Listen(ctx, l, func(_ context.Context, e schemas.Event) error {
			if e.Sequence == 1 {
				return nil
			}
			return handle(e)
		})
	}).ID
	if want := map[string]string{"live": want.ID, "past": "[" + want.ID + "]", "following": want.ID, "listener": want.ID}; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Reading goes on after unreadable messages.
func TestUnreadableMessagesWarnings(t *testing.T) {
	r := newRig(t, bus.Setup{})
	for i := range 30 {
		r.garbage(t, fmt.Sprint("rehome.delta.garbage.", i), nil, "moin")
	}
	var log bytes.Buffer
	b := bustest.Connect(t, bus.Options{Server: r.server, Log: slog.New(slog.NewTextHandler(&log, nil))})
	expect.Eventually(t, "it is connected", func() bool { return b.Ready() == nil })
	if got := bustest.IDs(t, b, bus.Query{}); len(got) != 0 {
		t.Errorf("got %v, want nothing", got)
	}
	b.Close()
	if n := strings.Count(log.String(), "cannot read an event"); n != 20 {
		t.Errorf("%d warnings about 30 messages, want 20:\n%s", n, &log)
	}
}
