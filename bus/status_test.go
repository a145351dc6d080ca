package bus_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestStatus(t *testing.T) {
	b := bustest.New(t, "Busy", "Idle")
	scope := func(key string) schemas.Event {
		return schematest.Event(t, "/test", schemas.ScopeHead{Kind: schemas.NodeKind, Key: key, Profile: "p", Strategy: "Busy"}, at, schemas.Event{})
	}
	for _, key := range []string{"a", "b", "c"} {
		bustest.Publish(t, b, scope(key))
	}
	bustest.Publish(t, b, bustest.Delta(t, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	taken, ended := make(chan struct{}, 1), make(chan error, 2)
	for strategy, parallel := range map[string]int{"Busy": 1, "Idle": 2} {
		go func() {
			ended <- b.Work(ctx, bus.Work{Strategy: strategy, Parallel: parallel}, func(context.Context, schemas.Event) error {
				select {
				case taken <- struct{}{}:
				default: // handed out again at the end
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
	}
	<-taken
	var got []bus.StreamStatus
	expect.Eventually(t, "the idle one waits", func() bool {
		var err error
		got, err = b.Status(t.Context())
		return err == nil && got[0].Workers[1].Idle > 0
	})
	sizes := map[string]bool{}
	for i := range got {
		sizes[got[i].Name] = got[i].MaxBytes > 0 && got[i].Bytes > 0 == (got[i].Messages > 0)
		got[i].Bytes, got[i].MaxBytes = 0, 0
	}
	want := []bus.StreamStatus{
		{Name: bus.StreamScopes, Messages: 3, Workers: []bus.WorkerStatus{
			{Strategy: "Busy", Pending: 2, AckPending: 1}, {Strategy: "Idle", Idle: 1},
		}},
		{Name: bus.StreamIntents}, {Name: bus.StreamRequests, MaxMessages: 10_000}, {Name: bus.StreamEvents, Messages: 1}, {Name: bus.StreamDead},
		{Name: bus.StreamLedger}, {Name: bus.StreamMaintenances},
	}
	expect.Equal(t, "result", got, want)
	for name, right := range sizes {
		if !right {
			t.Errorf("the sizes of %s differ from %+v", name, got)
		}
	}
	cancel()
	for range 2 {
		<-ended
	}
}

func TestStatusForStrategies(t *testing.T) {
	b := bustest.New(t, "Busy", "Idle", "Other")
	e := schematest.Event(t, "/test", schemas.ScopeHead{Kind: schemas.NodeKind, Key: "a", Profile: "p", Strategy: "Busy"}, at, schemas.Event{})
	bustest.Publish(t, b, e)
	all, err := b.Status(t.Context())
	expect.Must(t, err)
	for _, c := range []struct {
		name       string
		strategies []string
		want       []bus.WorkerStatus
	}{
		{"none", nil, nil},
		{"two and one that has no consumer", []string{"Idle", "Unknown", "Busy"}, []bus.WorkerStatus{
			{Strategy: "Busy", Pending: 1}, {Strategy: "Idle"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := b.StatusFor(t.Context(), c.strategies)
			all[0].Workers = c.want
			if err != nil || !reflect.DeepEqual(got, all) {
				t.Errorf("error %v, got\n%+v\nwant\n%+v", err, got, all)
			}
		})
	}
}

func TestDeadLetterCountsByStream(t *testing.T) {
	b := bustest.New(t)
	if got, err := b.DeadCounts(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("without any: got %v, error %v", got, err)
	}
	for i, stream := range []string{bus.StreamScopes, bus.StreamIntents, bus.StreamScopes} {
		e := bustest.Delta(t, "a")
		e.Sequence = uint64(i + 1)
		expect.Must(t, b.Bury(t.Context(), stream, e, errors.New("wrong")))
	}
	want := map[string]uint64{bus.StreamScopes: 2, bus.StreamIntents: 1}
	if got, err := b.DeadCounts(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, error %v, want %v", got, err, want)
	}
}

func TestStatusOpenRequests(t *testing.T) {
	b := bustest.New(t)
	if got, err := b.OpenRequests(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("without any: got %v, error %v", got, err)
	}
	before := time.Now().Add(-time.Minute)
	var want []schemas.Request
	for _, name := range []string{"first", "second", "third"} {
		r := schemas.Request{Sender: "admin", Name: name, Action: schemas.ActionEvaluate, Reason: "test"}
		bustest.Publish(t, b, schematest.Event(t, "/test", r, at, schemas.Event{}))
		want = append(want, r)
	}
	open, err := b.OpenRequests(t.Context())
	if err != nil || len(open) != len(want) {
		t.Fatalf("got %v, error %v", open, err)
	}
	expect.Must(t, b.DropRequest(t.Context(), schemas.Event{Channel: open[1].Channel(), Sequence: open[1].Sequence}))
	open, err = b.OpenRequests(t.Context())
	var got []schemas.Request
	for _, o := range open {
		got = append(got, o.Request)
		if o.Stored.Before(before) || o.Stored.After(time.Now().Add(time.Minute)) {
			t.Errorf("%s was stored at %v", o.Name, o.Stored)
		}
	}
	if want = []schemas.Request{want[0], want[2]}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func TestStatusWithoutBus(t *testing.T) {
	empty := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{})})
	expect.Eventually(t, "it is connected", func() bool { return errors.Is(empty.Ready(), bus.ErrNotSetUp) })
	away := bustest.Connect(t, bus.Options{URL: "nats://127.0.0.1:1"})
	for b, want := range map[*bus.Bus]error{empty: bus.ErrNotSetUp, away: bus.ErrNotConnected} {
		_, status := b.Status(t.Context())
		_, counts := b.DeadCounts(t.Context())
		_, requests := b.OpenRequests(t.Context())
		for _, err := range []error{status, counts, requests} {
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		}
	}
}
