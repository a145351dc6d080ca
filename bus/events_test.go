package bus_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestHistoryOrder(t *testing.T) {
	b := bustest.New(t)
	c := bustest.Collect(t, b)
	d, v, m := bustest.Delta(t, "a"), verdict(t, "pod-1"), maintenance(t, "node/a")
	bustest.Publish(t, b, d)
	i := give(t, b, "a", 1, "pod-1")
	d.Sequence, i.Sequence, v.Sequence, m.Sequence = 1, 2, 3, 4
	got := []schemas.Event{c.Next(t), c.Next(t)} // the answer has been copied
	bustest.Publish(t, b, v, m)
	got = append(got, c.Next(t), c.Next(t))
	if want := []schemas.Event{d, i, v, m}; !reflect.DeepEqual(got, want) {
		t.Errorf("as it came:\ngot  %+v\nwant %+v", got, want)
	}
	for name, test := range map[string]struct {
		query bus.Query
		want  []string
	}{
		"everything":              {bus.Query{}, []string{d.ID, i.ID, v.ID, m.ID}},
		"one kind":                {bus.Query{Channels: []string{bus.VerdictChannels}}, []string{v.ID}},
		"one maintenance":         {bus.Query{Channels: []string{"rehome.maintenance.node=2Fa"}}, []string{m.ID}},
		"two channels":            {bus.Query{Channels: []string{d.Channel, i.Channel}}, []string{d.ID, i.ID}},
		"a channel with nothing":  {bus.Query{Channels: []string{"rehome.verdict.failed.>"}}, []string{}},
		"since before it all":     {bus.Query{Since: time.Now().Add(-time.Hour)}, []string{d.ID, i.ID, v.ID, m.ID}},
		"since after it all":      {bus.Query{Since: time.Now().Add(time.Hour)}, []string{}},
		"since the first, a kind": {bus.Query{Since: at, Channels: []string{bus.IntentsChannels}}, []string{i.ID}},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "events", bustest.IDs(t, b, test.query), test.want)
		})
	}
}

func TestHistoryKeepsReplacedAnswers(t *testing.T) {
	r := newRig(t, bus.Setup{})
	b := r.bus
	c := bustest.Collect(t, b, bus.IntentsChannels)
	want := []string{give(t, b, "a", 1, "pod-1").ID, give(t, b, "a", 2, "pod-2").ID}
	got := []string{c.Next(t).ID, c.Next(t).ID}
	expect.Must(t, b.DropIntents(t.Context(), schemas.Event{Sequence: r.first(t, bus.StreamIntents) + 1}))
	r.empty(t, bus.StreamIntents)
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(bustest.IDs(t, b, bus.Query{}), want) {
		t.Errorf("got %v as they came and %v later, want %v", got, bustest.IDs(t, b, bus.Query{}), want)
	}
}

func TestFollowWithoutTime(t *testing.T) {
	b := bustest.New(t)
	bustest.Publish(t, b, bustest.Delta(t, "before"))
	c := make(chan string, 10)
	expect.Background(t, func(ctx context.Context) error {
		return b.Events(ctx, bus.Query{Follow: true}, func(e schemas.Event) error {
			c <- e.Subject
			return nil
		})
	})
	expect.Eventually(t, "an event is followed", func() bool {
		bustest.Publish(t, b, bustest.Delta(t, "after"))
		return len(c) > 0
	})
	expect.Equal(t, "next", next(t, c), "nodes/after")
}

func TestEventsHandlerError(t *testing.T) {
	b := bustest.New(t)
	bustest.Publish(t, b, bustest.Delta(t, "a"), bustest.Delta(t, "b"))
	want := errors.New("the terminal is gone")
	for name, q := range map[string]bus.Query{"once": {}, "following": {Since: at, Follow: true}} {
		calls := 0
		got := b.Events(t.Context(), q, func(schemas.Event) error {
			calls++
			return want
		})
		if !errors.Is(got, want) || calls != 1 {
			t.Errorf("%s: got %v after %d calls, want %v after 1", name, got, calls, want)
		}
	}
}

func TestFollowAfterServerRestart(t *testing.T) {
	o, server, b := restartable(t)
	c := bustest.Collect(t, b, bustest.DeltaChannels)
	one, two := bustest.Delta(t, "a"), bustest.Delta(t, "b")
	bustest.Publish(t, b, one)
	got := []string{c.Next(t).ID}
	server.Stop()
	bustest.Server(t, o)
	expect.Eventually(t, "publishing works again", func() bool {
		_, err := b.Publish(t.Context(), two)
		return err == nil
	})
	got = append(got, c.Next(t).ID)
	if want := []string{one.ID, two.ID}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFollowingRestartsAfterLoss(t *testing.T) {
	r := newRig(t, bus.Setup{})
	got, goOn := make(chan string, 10), make(chan struct{})
	expect.Background(t, func(ctx context.Context) error {
		return r.bus.Events(ctx, bus.Query{Since: at, Follow: true}, func(e schemas.Event) error {
			got <- e.ID
			<-goOn
			return nil
		})
	})
	first, second := bustest.Delta(t, "a"), bustest.Delta(t, "b")
	bustest.Publish(t, r.bus, first, second)
	expect.Equal(t, "next", next(t, got), first.ID)
	goOn <- struct{}{}
	expect.Equal(t, "next", next(t, got), second.ID)
	// The reader is busy while the stream is created again.
	expect.Must(t, r.raw.DeleteStream(t.Context(), bus.StreamEvents))
	bustest.SetUp(t, r.bus, bus.Setup{})
	want := bustest.Delta(t, "c") // with a number that the lost history had too
	bustest.Publish(t, r.bus, want)
	close(goOn)
	expect.Equal(t, "next", next(t, got), want.ID)
}

func TestFollowingRestartsAfterRestore(t *testing.T) {
	o := bustest.SocketOptions(t)
	server, backup := bustest.Server(t, o), t.TempDir()
	restore := func(to, from string) {
		t.Helper()
		server.Stop()
		expect.Must(t, errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))))
		server = bustest.Server(t, o)
	}
	b := bustest.Connect(t, bus.Options{Name: string(bus.RoleActuator), Socket: o.Socket})
	bustest.SetUp(t, b, bus.Setup{})
	c := bustest.Collect(t, b, bustest.DeltaChannels)
	bustest.Publish(t, b, bustest.Delta(t, "a"))
	c.Next(t)
	restore(backup, o.StoreDir)
	expect.Eventually(t, "the bus is back", func() bool { return b.Ready() == nil })
	bustest.Publish(t, b, bustest.Delta(t, "b"), bustest.Delta(t, "c"), bustest.Delta(t, "d"))
	for range 3 {
		c.Next(t)
	}
	restore(o.StoreDir, backup)
	want := bustest.Delta(t, "e") // with the number that b had
	expect.Eventually(t, "the bus is back", func() bool {
		_, err := b.Publish(t.Context(), want)
		return err == nil
	})
	c.Find(t, func(e schemas.Event) bool { return e.ID == want.ID })
}

func TestEventsWithoutHistory(t *testing.T) {
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{})})
	err := b.Events(t.Context(), bus.Query{}, func(schemas.Event) error { return nil })
	if !errors.Is(err, bus.ErrNotSetUp) {
		t.Errorf("got %v, want an error that is ErrNotSetUp", err)
	}
}
