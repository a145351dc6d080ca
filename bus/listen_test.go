package bus_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// hear listens in the background as l, one event at a time, and reports the subjects of the events.
func hear(t testing.TB, b *bus.Bus, l bus.Listener) (subjects <-chan string, stop func()) {
	t.Helper()
	c := make(chan string, 1000)
	l.Name, l.Parallel = "audit", 1
	stop = expect.Background(t, func(ctx context.Context) error {
		return b.Listen(ctx, l, func(_ context.Context, e schemas.Event) error {
			c <- e.Subject
			return nil
		})
	})
	return c, stop
}

// backlog waits until the listener audit has that backlog.
func (r rig) backlog(t testing.TB, want bus.Backlog) {
	t.Helper()
	expect.Eventually(t, fmt.Sprintf("the backlog is %+v", want), func() bool {
		got, err := r.bus.Backlog(t.Context(), "audit")
		return err == nil && got == want
	})
}

// take returns the next n subjects.
func take(t testing.TB, c <-chan string, n int) (got []string) {
	t.Helper()
	for range n {
		got = append(got, next(t, c))
	}
	return got
}

func TestListenerResumes(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "before"))
	c, stop := hear(t, r.bus, bus.Listener{})
	r.backlog(t, bus.Backlog{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "a"))
	got := take(t, c, 1)
	r.backlog(t, bus.Backlog{})
	stop()
	bustest.Publish(t, r.bus, bustest.Delta(t, "b"), verdict(t, "c"))
	r.backlog(t, bus.Backlog{Waiting: 2})
	again, _ := hear(t, r.bus, bus.Listener{Since: time.Unix(1, 0)}) // it is not new anymore
	got = append(got, take(t, again, 2)...)
	r.backlog(t, bus.Backlog{})
	if want := []string{"nodes/a", "nodes/b", "namespaces/web/pods/c"}; !reflect.DeepEqual(got, want) || len(again) > 0 {
		t.Errorf("got %v and %d more, want %v", got, len(again), want)
	}
}

func TestListenerStartTime(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "a"), verdict(t, "b"))
	give(t, r.bus, "c", 1, "pod")
	c, _ := hear(t, r.bus, bus.Listener{Since: time.Now().Add(-time.Hour)})
	expect.Equal(t, "subjects", take(t, c, 3), []string{"nodes/a", "namespaces/web/pods/b", "node/c"})
}

func TestListenerChannels(t *testing.T) {
	r := newRig(t, bus.Setup{})
	want := verdict(t, "pod.1")
	bustest.Publish(t, r.bus, bustest.Delta(t, "a"), want)
	want.Sequence = 2
	c := make(chan schemas.Event, 10)
	expect.Background(t, func(ctx context.Context) error {
		l := bus.Listener{Name: "audit", Channels: []string{bus.VerdictChannels}, Since: at}
		return r.bus.Listen(ctx, l, func(_ context.Context, e schemas.Event) error {
			c <- e
			return nil
		})
	})
	expect.Equal(t, "next", next(t, c), want)
	r.backlog(t, bus.Backlog{})
	if len(c) > 0 {
		t.Errorf("%d more events came", len(c))
	}
}

func TestListenerChannelChange(t *testing.T) {
	r := newRig(t, bus.Setup{})
	c, stop := hear(t, r.bus, bus.Listener{Channels: []string{"rehome.delta.node.>"}})
	r.backlog(t, bus.Backlog{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "a"))
	got := take(t, c, 1)
	r.backlog(t, bus.Backlog{})
	stop()
	bustest.Publish(t, r.bus, bustest.Delta(t, "unwanted"))
	other, _ := hear(t, r.bus, bus.Listener{Channels: []string{"rehome.verdict.evicted.>", "rehome.verdict.settled.>"}})
	expect.Eventually(t, "the consumer has other channels", func() bool {
		c, err := r.raw.Consumer(t.Context(), bus.StreamEvents, "audit")
		return err == nil && len(c.CachedInfo().Config.FilterSubjects) == 2
	})
	bustest.Publish(t, r.bus, bustest.Delta(t, "b"), verdict(t, "c"))
	got = append(got, take(t, other, 1)...)
	r.backlog(t, bus.Backlog{})
	got = append(got, take(t, other, len(other))...)
	want := []string{"nodes/a", "namespaces/web/pods/c"}
	expect.Equal(t, "result", got, want)
}

func TestListenerRetriesAndBuries(t *testing.T) {
	r := newRig(t, bus.Setup{})
	r.garbage(t, "rehome.delta.node.taints.garbage", nil, "garbage")
	bustest.Publish(t, r.bus, bustest.Delta(t, "refused"), bustest.Delta(t, "fails"), bustest.Delta(t, "good"))
	good, tries := make(chan string, 100), make(chan time.Time, 100)
	expect.Background(t, func(ctx context.Context) error {
		l := bus.Listener{Name: "audit.log", Since: at, Parallel: 2, RetryAfter: 40 * time.Millisecond, Tries: 4}
		return r.bus.Listen(ctx, l, func(_ context.Context, e schemas.Event) error {
			switch e.Subject {
			case "nodes/refused":
				return fmt.Errorf("status 400: %w", schemas.ErrInvalid)
			case "nodes/fails":
				tries <- time.Now()
				return fmt.Errorf("attempt %d failed", len(tries))
			}
			good <- e.Subject
			return nil
		})
	})
	expect.Equal(t, "next", next(t, good), "nodes/good")
	var got []string
	for _, l := range r.deadLetters(t, 3) {
		got = append(got, l.Subject+" "+l.Header.Get(bus.HeaderSubject)+" "+l.Header.Get(bus.HeaderError))
	}
	slices.Sort(got)
	const by = "rehome.dead.REHOME_EVENTS.audit_log rehome.delta.node.taints."
	want := []string{
		by + "fails attempt 4 failed",
		by + "garbage rehome.delta.node.taints.garbage at 1 of REHOME_EVENTS: read CloudEvent: invalid event: " +
			"no CloudEvent: neither a header ce-specversion nor a JSON object",
		by + "refused status 400: invalid event",
	}
	expect.Equal(t, "dead letters", got, want)
	before := <-tries
	for try := range 3 {
		now := <-tries
		if least := 20 * time.Millisecond << try; now.Sub(before) < least {
			t.Errorf("attempt %d came after %v, want at least %v", try+2, now.Sub(before), least)
		}
		before = now
	}
	if len(tries)+len(good) > 0 {
		t.Errorf("%d tries and %d events too many", len(tries), len(good))
	}
}

func TestListenerRetriesUnreachableReceiver(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "a"))
	errs := []error{
		fmt.Errorf("post: %w", delivery.ErrUnreachable), fmt.Errorf("post: %w", delivery.ErrUnauthorized), errors.New("status 500"),
		fmt.Errorf("post: %w", delivery.ErrUnreachable), fmt.Errorf("post: %w", delivery.ErrUnreachable), errors.New("status 501"),
	}
	calls := make(chan int, 100)
	expect.Background(t, func(ctx context.Context) error {
		l := bus.Listener{Name: "audit", Since: at, RetryAfter: time.Millisecond, Tries: 2}
		return r.bus.Listen(ctx, l, func(context.Context, schemas.Event) error {
			calls <- 0
			return errs[min(len(calls), len(errs))-1]
		})
	})
	letter := r.deadLetters(t, 1)[0]
	if got := letter.Header.Get(bus.HeaderError); got != "status 501" || len(calls) != len(errs) {
		t.Errorf("buried with error %q after %d calls, want status 501 after %d", got, len(calls), len(errs))
	}
}

func TestListenerSurvivesServerRestart(t *testing.T) {
	o, server, b := restartable(t)
	got := make(chan string, 1000)
	expect.Background(t, func(ctx context.Context) error {
		l := bus.Listener{Name: "audit", Since: at, RetryAfter: time.Millisecond}
		return b.Listen(ctx, l, func(_ context.Context, e schemas.Event) error {
			got <- e.ID
			return nil
		})
	})
	missing := map[string]bool{}
	for n := range 100 {
		e := bustest.Delta(t, fmt.Sprint("node-", n))
		missing[e.ID] = true
		if n == 50 {
			server.Stop()
			bustest.Server(t, o)
		}
		expect.Eventually(t, "it is published", func() bool {
			_, err := b.Publish(t.Context(), e)
			return err == nil
		})
	}
	for len(missing) > 0 {
		delete(missing, next(t, got))
	}
}

func TestListenersShareEvents(t *testing.T) {
	r := newRig(t, bus.Setup{})
	one, _ := hear(t, r.bus, bus.Listener{Since: at})
	two, _ := hear(t, r.bus, bus.Listener{Since: at.Add(time.Second)})
	var want, got []string
	for n := range 50 {
		e := bustest.Delta(t, fmt.Sprintf("node-%02d", n))
		want = append(want, e.Subject)
		bustest.Publish(t, r.bus, e)
	}
	expect.Eventually(t, "all events came", func() bool { return len(one)+len(two) >= len(want) })
	for len(one) > 0 {
		got = append(got, <-one)
	}
	for len(two) > 0 {
		got = append(got, <-two)
	}
	slices.Sort(got)
	expect.Equal(t, "result", got, want)
}

func TestRemovedListenerEnds(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "a"))
	ended, heard := make(chan error, 1), make(chan string, 10)
	go func() {
		ended <- r.bus.Listen(t.Context(), bus.Listener{Name: "audit", Since: at}, func(_ context.Context, e schemas.Event) error {
			heard <- e.Subject
			return nil
		})
	}()
	next(t, heard)
	expect.Must(t, r.bus.RemoveListener(t.Context(), "audit"))
	err := next(t, ended)
	if want := "listen as audit: there is no such listener: it was removed"; !errors.Is(err, bus.ErrNoListener) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := r.bus.RemoveListener(t.Context(), "audit"); !errors.Is(err, bus.ErrNoListener) {
		t.Errorf("removing it again: got %v, want ErrNoListener", err)
	}
	if _, err := r.bus.Backlog(t.Context(), "audit"); !errors.Is(err, bus.ErrNoListener) {
		t.Errorf("its backlog: got %v, want ErrNoListener", err)
	}
	if err := r.bus.Listen(t.Context(), bus.Listener{}, nil); err == nil {
		t.Error("a listener without a name was accepted")
	}
}

func TestListenerAfterHistoryLoss(t *testing.T) {
	t.Parallel()
	r := newRig(t, bus.Setup{})
	c, _ := hear(t, r.bus, bus.Listener{})
	r.backlog(t, bus.Backlog{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "a"))
	got := take(t, c, 1)
	expect.Must(t, r.raw.DeleteStream(t.Context(), bus.StreamEvents))
	bustest.SetUp(t, r.bus, bus.Setup{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "b")) // before the listener has seen what happened, or after
	got = append(got, take(t, c, 1)...)
	if want := []string{"nodes/a", "nodes/b"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestListenerFinishesRunningHandlers(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "a"), bustest.Delta(t, "b"))
	begun, finish := make(chan struct{}, 10), make(chan struct{})
	ended := make(chan (<-chan struct{}), 1)
	stop := expect.Background(t, func(ctx context.Context) error {
		ended <- ctx.Done()
		l := bus.Listener{Name: "audit", Since: at, Parallel: 1}
		return r.bus.Listen(ctx, l, func(ctx context.Context, _ schemas.Event) error {
			begun <- struct{}{}
			select {
			case <-finish:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	next(t, begun)
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	next(t, next(t, ended))
	close(finish)
	next(t, stopped)
	if len(begun) > 0 {
		t.Error("another event was begun after the end")
	}
	rest, _ := hear(t, r.bus, bus.Listener{})
	if got := take(t, rest, 1); got[0] != "nodes/b" {
		t.Errorf("the next listener got %v, want nodes/b", got)
	}
	r.backlog(t, bus.Backlog{})
	if len(rest) > 0 {
		t.Errorf("%s came, too", <-rest)
	}
}
