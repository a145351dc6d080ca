package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func request(t testing.TB, sender, name, reason string) schemas.Event {
	t.Helper()
	r := schemas.Request{
		Sender: sender, Name: name, Action: schemas.ActionDeschedule, Reason: reason, Target: &schemas.Target{Node: "worker-1"},
	}
	return schematest.Event(t, "/test/"+sender, r, time.Unix(1_800_000_000, 0), schemas.Event{})
}

// asked is a request that a follower got. The receiver decides what the handler returns.
type asked struct {
	event  schemas.Event
	stored time.Time
	end    chan error
}

func followRequests(t testing.TB, b *bus.Bus) <-chan asked {
	t.Helper()
	c := make(chan asked)
	expect.Background(t, func(ctx context.Context) error {
		return b.FollowRequests(ctx, func(ctx context.Context, _ schemas.Event, stored time.Time, read func() schemas.Event) error {
			a := asked{event: read(), stored: stored, end: make(chan error, 1)}
			select {
			case c <- a:
				return <-a.end
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return c
}

func TestFollowRequestsOldestFirst(t *testing.T) {
	r := newRig(t, bus.Setup{})
	began, first := time.Now(), r.first(t, bus.StreamRequests)
	one, two := request(t, "admin", "one", "a"), request(t, "scaler", "one", "b")
	bustest.Publish(t, r.bus, one)
	bustest.Publish(t, r.bus, two)
	r.garbage(t, "rehome.request.admin.garbage", nil, "garbage")
	one.Sequence, two.Sequence = first, first+1
	three := schemas.Event{Channel: "rehome.request.admin.garbage", Sequence: first + 2, Data: []byte("garbage")}
	c := followRequests(t, r.bus)
	for _, want := range []schemas.Event{one, two, three} {
		got := next(t, c)
		got.end <- nil
		if want.Type == "" && got.event.ID != "" {
			want.ID, want.CorrelationID = got.event.ID, got.event.ID
		}
		expect.Equal(t, "event", got.event, want)
		if got.stored.Before(began.Add(-time.Second)) || got.stored.After(time.Now().Add(time.Second)) {
			t.Errorf("%s was stored at %v, want about now", got.event.Channel, got.stored)
		}
	}
}

func TestFollowRequestsRetries(t *testing.T) {
	b := bustest.New(t)
	one, two := request(t, "admin", "one", "a"), request(t, "admin", "two", "b")
	bustest.Publish(t, b, one)
	bustest.Publish(t, b, two)
	c := followRequests(t, b)
	var got []string
	for _, end := range []error{errors.New("busy"), nil, nil} {
		a := next(t, c)
		a.end <- end
		got = append(got, a.event.ID)
	}
	if want := []string{one.ID, two.ID, one.ID}; !reflect.DeepEqual(got, want) {
		t.Errorf("handed over %q, want %q", got, want)
	}
}

func TestRequestNameOpen(t *testing.T) {
	b := bustest.New(t)
	one := request(t, "admin", "one", "a")
	bustest.Publish(t, b, one)
	bustest.Publish(t, b, one) // the same event again is no second request
	if _, err := b.Publish(t.Context(), request(t, "admin", "one", "b")); !errors.Is(err, bus.ErrOpen) {
		t.Errorf("got error %v, want ErrOpen", err)
	}
	bustest.Publish(t, b, request(t, "other", "one", "c"))
	c := followRequests(t, b)
	a := next(t, c)
	expect.Must(t, b.DropRequest(t.Context(), a.event))
	if err := b.DropRequest(t.Context(), a.event); err != nil {
		t.Errorf("dropped again: %v", err)
	}
	a.end <- nil
	bustest.Publish(t, b, request(t, "admin", "one", "d"))
}

func TestRequestLimits(t *testing.T) {
	r := newRig(t, bus.Setup{MaxBytes: 64 << 18}) // a sixty-fourth is for requests
	large := request(t, "admin", "large", strings.Repeat("x", 100<<10))
	if _, err := r.bus.Publish(t.Context(), large); !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("a large one: got error %v, want ErrInvalid", err)
	}
	var full error
	for i := 0; full == nil && i < 20; i++ {
		_, full = r.bus.Publish(t.Context(), request(t, "admin", strings.Repeat("n", i+1), strings.Repeat("x", 40<<10)))
	}
	if !errors.Is(full, bus.ErrFull) {
		t.Errorf("one too many: got error %v, want ErrFull", full)
	}
}

func TestReceipt(t *testing.T) {
	r := newRig(t, bus.Setup{})
	cause := request(t, "admin", "one", "a")
	receipt := func(state schemas.ReceiptState, reason schemas.ReceiptReason) schemas.Event {
		return schematest.Event(t, "/test", schemas.Receipt{Sender: "admin", Name: "one", State: state, Reason: reason},
			time.Unix(1_800_000_000, 0), cause)
	}
	if e, err := r.bus.Receipt(t.Context(), "admin", "one"); err != nil || e.ID != "" {
		t.Errorf("before there is one: got %+v, error %v", e, err)
	}
	accepted := receipt(schemas.RequestAccepted, schemas.ReceiptAccepted)
	finished := receipt(schemas.RequestFinished, schemas.ReceiptDone)
	for _, e := range []schemas.Event{accepted, finished, finished} {
		bustest.Publish(t, r.bus, e)
	}
	finished.Parent, finished.Began, finished.Sequence = "", time.Time{}, 2
	got, err := r.bus.Receipt(t.Context(), "admin", "one")
	if err != nil || !reflect.DeepEqual(got, finished) {
		t.Errorf("got  %+v, error %v\nwant %+v", got, err, finished)
	}
	var states []string
	err = r.bus.Events(t.Context(), bus.Query{Since: time.Unix(1, 0)}, func(e schemas.Event) error {
		states = append(states, e.ID)
		return nil
	})
	if want := []string{accepted.ID, finished.ID}; err != nil || !reflect.DeepEqual(states, want) {
		t.Errorf("the history has %q, error %v, want %q", states, err, want)
	}
}

func TestOpenRequestsInMemory(t *testing.T) {
	r := newRig(t, bus.Setup{})
	publish := func(name string, padding int, change func(*schemas.Request, *schemas.Event)) schemas.Request {
		asked := schemas.Request{Sender: "batch", Name: name, Action: schemas.ActionEvaluate, Reason: "test"}
		e := bustest.Event(t, asked)
		change(&asked, &e)
		data, err := json.Marshal(asked)
		expect.Must(t, err)
		e.Data = append(append(data[:len(data)-1], bytes.Repeat([]byte(" "), padding)...), '}')
		bustest.Publish(t, r.bus, e)
		return asked
	}
	check := func(about string, want []schemas.Request) {
		t.Helper()
		open, err := r.bus.OpenRequests(t.Context())
		var got []schemas.Request
		for _, o := range open {
			got = append(got, o.Request)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %d requests, error %v, want %d", about, len(got), err, len(want))
		}
	}
	want := []schemas.Request{publish("padded", 900<<10, func(*schemas.Request, *schemas.Event) {})}
	r.garbage(t, "rehome.request.batch.garbage", nil, "garbage")
	publish("another", 900<<10, func(r *schemas.Request, _ *schemas.Event) { r.Sender = "http" })
	publish("verdict", 900<<10, func(_ *schemas.Request, e *schemas.Event) { e.Type = schemas.VerdictType })
	publish("pods", 900<<10, func(r *schemas.Request, _ *schemas.Event) {
		r.Target = &schemas.Target{Pods: make([]schemas.PodTarget, schemas.MaxRequestPods+1)}
	})
	publish("override", 900<<10, func(r *schemas.Request, _ *schemas.Event) { r.Override = make([]string, schemas.MaxOverride+1) })
	publish("force", 900<<10, func(r *schemas.Request, _ *schemas.Event) {
		r.Maintenance = &schemas.NodeRequest{Force: make([]v1alpha1.Guard, 4)}
	})
	check("invalid ones", want)
	for name, want := range map[string]*schemas.Request{
		"padded": &want[0], "garbage": nil, "verdict": nil, "pods": nil, "override": nil, "force": nil, "nothing": nil,
	} {
		var got *schemas.Request
		open, err := r.bus.OpenRequest(t.Context(), "batch", name)
		if open != nil {
			got = &open.Request
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("request %s: got %+v, error %v, want %+v", name, got, err, want)
		}
	}
	for i := range 40 {
		large := publish(fmt.Sprint("large-", i), 0, func(r *schemas.Request, _ *schemas.Event) { r.Strategy = strings.Repeat("x", 1023<<10) })
		if i < 32 {
			want = append(want, large)
		}
	}
	check("32 MiB", want)
}
