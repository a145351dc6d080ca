package bus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// handled is a scope that a worker got. The receiver decides what the handler returns.
type handled struct {
	event schemas.Event
	ctx   context.Context
	at    time.Time
	end   chan error
}

// manual works on scopes in the background and makes the test the handler.
func manual(t testing.TB, b *bus.Bus, w bus.Work) (scopes <-chan handled, stop func()) {
	t.Helper()
	c := make(chan handled, 100)
	w.Strategy = strategy
	stop = expect.Background(t, func(ctx context.Context) error {
		return b.Work(ctx, w, func(ctx context.Context, e schemas.Event) error {
			h := handled{event: e, ctx: ctx, at: time.Now(), end: make(chan error, 1)}
			c <- h
			select {
			case err := <-h.end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return c, stop
}

// work works on scopes in the background and reports their IDs.
func work(t testing.TB, b *bus.Bus, w bus.Work) <-chan string {
	t.Helper()
	c := make(chan string, 100)
	w.Strategy = strategy
	expect.Background(t, func(ctx context.Context) error {
		return b.Work(ctx, w, func(_ context.Context, e schemas.Event) error {
			c <- e.ID
			return nil
		})
	})
	return c
}

func TestWorkNewestScope(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bustest.Publish(t, r.bus, scope(t, "a", 1), scope(t, "b", 1), scope(t, "a", 2), scope(t, "b", 2), scope(t, "a", 3))
	c := work(t, r.bus, bus.Work{})
	got := []string{next(t, c), next(t, c)}
	r.empty(t, bus.StreamScopes)
	slices.Sort(got)
	if want := []string{"a-3", "b-2"}; !reflect.DeepEqual(got, want) || len(c) > 0 {
		t.Errorf("got %v and %d more, want %v", got, len(c), want)
	}
}

func TestHandlerLimit(t *testing.T) {
	r := newRig(t, bus.Setup{})
	var running, most atomic.Int32
	for n := range 20 {
		bustest.Publish(t, r.bus, scope(t, fmt.Sprint("node-", n), 1))
	}
	both := make(chan struct{})
	expect.Background(t, func(ctx context.Context) error {
		return r.bus.Work(ctx, bus.Work{Strategy: strategy, Parallel: 2}, func(context.Context, schemas.Event) error {
			n := running.Add(1)
			defer running.Add(-1)
			if most.Store(max(most.Load(), n)); n == 2 {
				select {
				case <-both:
				default:
					close(both)
				}
			}
			<-both
			return nil
		})
	})
	r.empty(t, bus.StreamScopes)
	expect.Equal(t, "handlers at once", most.Load(), 2)
}

func TestWorkUnreadable(t *testing.T) {
	r := newRig(t, bus.Setup{})
	channel := func(node string) string { return scope(t, node, 1).Channel }
	incomplete := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "X-Custom": {"kept"}}
	r.garbage(t, channel("garbage"), nil, "\x00garbage")
	r.garbage(t, channel("incomplete"), incomplete, `{}`)
	wrong := bustest.Delta(t, "wrong")
	wrong.Channel = channel("wrong")
	bustest.Publish(t, r.bus, wrong, scope(t, "good", 1))

	good := make(chan string, 1)
	expect.Background(t, func(ctx context.Context) error {
		return r.bus.Work(ctx, bus.Work{Strategy: strategy, Parallel: 1}, func(_ context.Context, e schemas.Event) error {
			s, err := schemas.Decode[schemas.NodeScope](e)
			if err == nil {
				good <- s.Key
			}
			return err
		})
	})
	expect.Equal(t, "handled", next(t, good), "good")
	letters, first := r.deadLetters(t, 3), r.first(t, bus.StreamScopes)
	r.empty(t, bus.StreamScopes)
	for i, want := range []struct{ node, says, body string }{
		{"garbage", "neither a header ce-specversion nor a JSON object", "\x00garbage"},
		{"incomplete", "source: REQUIRED", `{}`},
		{"wrong", `type is "dev.rehome.delta.v1", want "dev.rehome.scope.v1"`, string(wrong.Data)},
	} {
		l := letters[i]
		head := []string{
			l.Subject, l.Header.Get(bus.HeaderSubject), l.Header.Get(bus.HeaderStream), l.Header.Get(bus.HeaderSequence),
			string(l.Data),
		}
		wantHead := []string{
			"rehome.dead.REHOME_SCOPES." + strategy, channel(want.node), bus.StreamScopes, fmt.Sprint(first + uint64(i)), want.body,
		}
		if !reflect.DeepEqual(head, wantHead) || !strings.Contains(l.Header.Get(bus.HeaderError), want.says) {
			t.Errorf("dead letter:\ngot  %q, error %q\nwant %q, error %q", head, l.Header.Get(bus.HeaderError), wantHead, want.says)
		}
	}
	if got := letters[1].Header["X-Custom"]; !reflect.DeepEqual(got, []string{"kept"}) {
		t.Errorf("headers of the message: got %v, want them kept", got)
	}
}

func TestWorkRetriesAndBuries(t *testing.T) {
	const tries = 4
	r := newRig(t, bus.Setup{})
	scopes, _ := manual(t, r.bus, bus.Work{RetryAfter: 80 * time.Millisecond, Tries: tries})
	bustest.Publish(t, r.bus, scope(t, "a", 1))
	var before time.Time
	for try := range tries {
		h := next(t, scopes)
		least := 80 * time.Millisecond << try / 4 // half of the delay that follows the attempt before
		if try > 0 && h.at.Sub(before) < least {
			t.Errorf("attempt %d came after %v, want at least %v", try+1, h.at.Sub(before), least)
		}
		before = time.Now()
		h.end <- fmt.Errorf("attempt %d failed", try+1)
	}
	letter := r.deadLetters(t, 1)[0]
	r.empty(t, bus.StreamScopes)
	if got, want := letter.Header.Get(bus.HeaderError), "attempt 4 failed"; got != want || len(scopes) > 0 {
		t.Errorf("buried with error %q after %d more attempts, want %q", got, len(scopes), want)
	}
}

// lose delivers the only scope n times to a worker that does not handle it.
func (r rig) lose(t *testing.T, n int) {
	t.Helper()
	c, err := r.raw.Consumer(t.Context(), bus.StreamScopes, strategy)
	expect.Must(t, err)
	for range n {
		m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
		expect.Must(t, err)
		expect.Must(t, m.Nak())
	}
}

func TestWorkTries(t *testing.T) {
	t.Run("lost_deliveries_are_no_tries", func(t *testing.T) {
		r := newRig(t, bus.Setup{})
		bustest.Publish(t, r.bus, scope(t, "a", 1))
		r.lose(t, bus.DefaultScopeTries+1)
		scopes, _ := manual(t, r.bus, bus.Work{RetryAfter: time.Millisecond})
		next(t, scopes).end <- errors.New("the function is away")
		next(t, scopes).end <- nil
		r.empty(t, bus.StreamScopes)
		if dead := r.messages(t, bus.StreamDead); len(dead) > 0 {
			t.Errorf("dead letters: %v, want none", dead)
		}
	})
	t.Run("a_scope_that_is_always_lost", func(t *testing.T) {
		r := newRig(t, bus.Setup{})
		bustest.Publish(t, r.bus, scope(t, "a", 1))
		r.lose(t, 50)
		scopes, _ := manual(t, r.bus, bus.Work{})
		letter := r.deadLetters(t, 1)[0]
		r.empty(t, bus.StreamScopes)
		want := "delivered 50 times, and no worker has finished it: it may end the process, or many workers failed"
		if got := letter.Header.Get(bus.HeaderError); got != want || len(scopes) > 0 {
			t.Errorf("buried with error %q after %d handlers, want %q", got, len(scopes), want)
		}
	})
}

func TestNewerScopeSkipsRetryDelay(t *testing.T) {
	r := newRig(t, bus.Setup{})
	scopes, _ := manual(t, r.bus, bus.Work{RetryAfter: time.Hour})
	bustest.Publish(t, r.bus, scope(t, "a", 1))
	next(t, scopes).end <- errors.New("the function is away")
	bustest.Publish(t, r.bus, scope(t, "a", 2))
	h := next(t, scopes)
	h.end <- nil
	expect.Equal(t, "scope", h.event.ID, "a-2")
}

func TestWorkSlowHandler(t *testing.T) {
	t.Parallel()
	const patience = 2 * time.Second
	r := newRig(t, bus.Setup{AckWait: patience})
	mine, _ := manual(t, r.bus, bus.Work{})
	bustest.Publish(t, r.bus, scope(t, "a", 1))
	h := next(t, mine)
	others, _ := manual(t, r.bus, bus.Work{})
	select {
	case <-others:
		t.Error("another worker was given the scope")
	case <-mine:
		t.Error("the worker was given the scope twice")
	case <-h.ctx.Done():
		t.Error("the handler was canceled")
	case <-time.After(5 * patience / 2):
	}
	h.end <- nil
	r.empty(t, bus.StreamScopes)
}

// delivered returns how often the server has delivered scopes.
func (r rig) delivered(t *testing.T) uint64 {
	t.Helper()
	c, err := r.raw.Consumer(t.Context(), bus.StreamScopes, strategy)
	expect.Must(t, err)
	return c.CachedInfo().Delivered.Consumer
}

func TestWorkBusyKey(t *testing.T) {
	t.Run("one_scope_at_a_time", func(t *testing.T) {
		r := newRig(t, bus.Setup{})
		scopes, _ := manual(t, r.bus, bus.Work{Parallel: 2})
		var got []string
		begin := func() handled {
			h := next(t, scopes)
			got = append(got, h.event.ID)
			return h
		}
		bustest.Publish(t, r.bus, scope(t, "a", 1))
		first := begin()
		bustest.Publish(t, r.bus, scope(t, "a", 2))
		expect.Eventually(t, "the next scope of the key waits", func() bool { return r.delivered(t) == 2 })
		bustest.Publish(t, r.bus, scope(t, "b", 1))
		second := begin() // it occupies the other slot, so that the worker cannot get the next scope yet
		bustest.Publish(t, r.bus, scope(t, "a", 3))
		first.end <- nil
		begin().end <- nil
		second.end <- nil
		if want := []string{"a-1", "b-1", "a-3"}; !reflect.DeepEqual(got, want) || len(scopes) > 0 {
			t.Fatalf("handled %v and %d more, want %v", got, len(scopes), want)
		}
		r.empty(t, bus.StreamScopes)
	})
	t.Run("a_waiting_scope_stays_here", func(t *testing.T) {
		t.Parallel()
		const patience = time.Second
		r := newRig(t, bus.Setup{AckWait: patience})
		mine, _ := manual(t, r.bus, bus.Work{})
		bustest.Publish(t, r.bus, scope(t, "a", 1))
		h := next(t, mine)
		bustest.Publish(t, r.bus, scope(t, "a", 2))
		expect.Eventually(t, "the next scope of the key waits", func() bool { return r.delivered(t) == 2 })
		others, _ := manual(t, r.bus, bus.Work{})
		select {
		case <-others:
			t.Error("another worker was given the scope")
		case <-time.After(5 * patience / 2):
		}
		h.end <- nil
		next(t, mine).end <- nil
		r.empty(t, bus.StreamScopes)
	})
	t.Run("the_end_returns_a_waiting_scope", func(t *testing.T) {
		r := newRig(t, bus.Setup{AckWait: time.Hour})
		mine, stop := manual(t, r.bus, bus.Work{})
		bustest.Publish(t, r.bus, scope(t, "a", 1))
		h := next(t, mine)
		bustest.Publish(t, r.bus, scope(t, "a", 2))
		expect.Eventually(t, "the next scope of the key waits", func() bool { return r.delivered(t) == 2 })
		stopped := make(chan struct{})
		go func() {
			stop()
			close(stopped)
		}()
		time.Sleep(100 * time.Millisecond) // until Work has noticed its end
		h.end <- nil
		<-stopped
		others, _ := manual(t, r.bus, bus.Work{})
		if h := next(t, others); h.event.ID != "a-2" || len(mine) > 0 {
			t.Errorf("the next worker got %s, and the first one %d more; want a-2 and none", h.event.ID, len(mine))
		} else {
			h.end <- nil
		}
	})
}

func TestWorkEndFinishesHandlers(t *testing.T) {
	r := newRig(t, bus.Setup{})
	scopes, stop := manual(t, r.bus, bus.Work{Parallel: 1})
	bustest.Publish(t, r.bus, scope(t, "a", 1), scope(t, "b", 1))
	h := next(t, scopes)
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		t.Fatal("Work returned while a handler was running")
	case <-h.ctx.Done():
		t.Fatal("the handler was canceled at once")
	case <-time.After(200 * time.Millisecond):
	}
	h.end <- nil
	<-stopped
	want := map[string]string{scope(t, "b", 1).Channel: string(scope(t, "b", 1).Data)}
	expect.Eventually(t, "only what was not begun is left in the stream", func() bool { // an ack is on its way for a moment
		return reflect.DeepEqual(r.messages(t, bus.StreamScopes), want)
	})
	rest, _ := manual(t, r.bus, bus.Work{})
	if h := next(t, rest); h.event.ID != "b-1" {
		t.Errorf("the next worker got %s, want b-1", h.event.ID)
	} else {
		h.end <- nil
	}
}

func TestWorkWaitsForConsumer(t *testing.T) {
	server := bustest.Server(t, embed.Options{})
	b := bustest.Connect(t, bus.Options{Server: server})
	c := work(t, b, bus.Work{})
	bustest.SetUp(t, b, bus.Setup{Strategies: []string{strategy}})
	bustest.Publish(t, b, scope(t, "a", 1))
	expect.Equal(t, "next", next(t, c), "a-1")
}

func TestWorkersShareScopes(t *testing.T) {
	r := newRig(t, bus.Setup{Strategies: []string{strategy, "Other"}})
	other := scope(t, "other", 1)
	other.Channel = schemas.ScopeHead{Kind: schemas.NodeKind, Key: "other", Profile: "default", Strategy: "Other"}.Channel()
	bustest.Publish(t, r.bus, other)
	one, two := work(t, r.bus, bus.Work{}), work(t, r.bus, bus.Work{})
	var want, got []string
	for n := range 30 {
		e := scope(t, fmt.Sprintf("node-%02d", n), 1)
		want = append(want, e.ID)
		bustest.Publish(t, r.bus, e)
	}
	expect.Eventually(t, "all scopes are handled", func() bool { return len(one)+len(two) >= len(want) })
	for len(one)+len(two) > 0 {
		select {
		case id := <-one:
			got = append(got, id)
		case id := <-two:
			got = append(got, id)
		}
	}
	slices.Sort(got)
	expect.Equal(t, "handled", got, want)
}

// The NATS client once lost a wake-up when a scope came before its request was complete: the worker then slept until it
// missed the server's heartbeat, for seconds, and restarted with a warning.
func TestWorkMissedWakeup(t *testing.T) {
	warnings := &warned{Handler: slog.DiscardHandler}
	b := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{}), Log: slog.New(warnings)})
	bustest.SetUp(t, b, bus.Setup{Strategies: []string{strategy}})
	ctx, cancel := context.WithCancel(t.Context())
	const bursts, burst = 100, 20
	done := make(chan struct{}, burst)
	var all sync.WaitGroup
	for range 4 { // they keep the processors busy, so that goroutines take turns at every point
		all.Go(func() {
			for ctx.Err() == nil {
				runtime.Gosched()
			}
		})
	}
	all.Go(func() {
		_ = b.Work(ctx, bus.Work{Strategy: strategy}, func(context.Context, schemas.Event) error {
			done <- struct{}{}
			return nil
		})
	})
	for i := range bursts {
		var events []schemas.Event
		for j := range burst {
			events = append(events, scope(t, fmt.Sprint("node-", i, "-", j), 1))
		}
		expect.Must(t, b.PublishAll(ctx, events))
		for range burst {
			<-done
		}
	}
	cancel()
	all.Wait()
	if n := warnings.count.Load(); n > 0 {
		t.Errorf("the worker complained %d times, want not at all", n)
	}
}

// warned counts log entries of level warning or higher.
type warned struct {
	slog.Handler
	count atomic.Int32
}

func (w *warned) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w *warned) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w *warned) Handle(context.Context, slog.Record) error {
	w.count.Add(1)
	return nil
}
