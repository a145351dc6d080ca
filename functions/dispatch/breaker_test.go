package dispatch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

var (
	errGone    = fmt.Errorf("post: %w", delivery.ErrUnreachable)
	errForeign = fmt.Errorf("post: %w", delivery.ErrUnauthorized)
	busy       = &delivery.Later{Err: errors.New("busy")}
	gateway    = &delivery.Later{After: 90 * time.Second, Err: errGone}
	errRefused = fmt.Errorf("post: %w", schemas.ErrInvalid)
)

// ask makes one request with the result err.
func ask(t *testing.T, b *breaker, err error) (p pass, hold bool) {
	t.Helper()
	p, failed := b.enter(t.Context())
	if failed != nil {
		t.Fatal(failed)
	}
	hold, _ = b.leave(p, err)
	return p, hold
}

func TestBreakerThreshold(t *testing.T) {
	for name, c := range map[string]struct {
		questions []error
		open      bool
	}{
		"none":          {nil, false},
		"two":           {[]error{errGone, errGone}, false},
		"three":         {[]error{errGone, errForeign, gateway}, true},
		"one success":   {[]error{errGone, errGone, nil, errGone, errGone}, false},
		"one refusal":   {[]error{errGone, errGone, errRefused, errGone, errGone}, false},
		"one later":     {[]error{errGone, errGone, busy, errGone, errGone}, false},
		"one canceled":  {[]error{errGone, errGone, context.Canceled, errGone}, true},
		"only refusals": {[]error{errRefused, errRefused, errRefused, errRefused}, false},
		"only later":    {[]error{busy, busy, busy, busy}, false},
	} {
		var told []change
		b := newBreaker(func(c change) { told = append(told, c) })
		held := false
		for _, err := range c.questions {
			_, held = ask(t, b, err)
		}
		var want []change
		if c.open {
			want = []change{{open: true, why: c.questions[len(c.questions)-1]}}
		}
		if !reflect.DeepEqual(told, want) || held != c.open {
			t.Errorf("%s: told %v, held %v; want %v, %v", name, told, held, want, c.open)
		}
	}
}

// opened returns a breaker that has just opened.
func opened(t *testing.T, tell func(change)) *breaker {
	t.Helper()
	b := newBreaker(tell)
	for range failuresToOpen {
		ask(t, b, errGone)
	}
	return b
}

func TestProbesHaveGrowingDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, func(change) {})
		var delays []time.Duration
		for range 9 {
			began := time.Now()
			p, held := ask(t, b, errGone)
			if !p.probe || !p.waited || !held {
				t.Fatalf("got %+v, held %v; want a probe that is held", p, held)
			}
			delays = append(delays, time.Since(began))
		}
		for i, most := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
			if most *= time.Second; delays[i] > most || delays[i] < most/2 {
				t.Errorf("probe %d came after %v, want %v to %v", i, delays[i], most/2, most)
			}
		}
	})
}

func TestProbesRespectRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, func(change) {})
		ask(t, b, gateway)
		began := time.Now()
		ask(t, b, errGone)
		if got := time.Since(began); got != gateway.After {
			t.Errorf("the next request came after %v, want %v", got, gateway.After)
		}
	})
}

func TestWaitingCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []change
		b := opened(t, func(c change) { told = append(told, c) })
		began := time.Now()
		const waiting = 4
		turns := make(chan int, 100)
		for i := range waiting {
			go func() {
				for {
					p, err := b.enter(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					turns <- i
					end := errGone
					if len(turns) > 5 { // the third always fails, the others succeed after five turns
						end = nil
					}
					if i == 2 {
						end = errGone
					}
					if hold, _ := b.leave(p, end); !hold {
						return
					}
				}
			}()
			synctest.Wait() // they wait in this order
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		close(turns)
		order := slices.Collect(func(yield func(int) bool) {
			for i := range turns {
				if !yield(i) {
					return
				}
			}
		})
		if want := []int{0, 1, 2, 3, 0, 1}; !reflect.DeepEqual(order[:6], want) {
			t.Errorf("turns %v, want %v first", order, want)
		}
		rest := slices.Sorted(slices.Values(order[6:]))
		if want := []int{0, 2, 3}; !reflect.DeepEqual(rest, want) {
			t.Errorf("after the answer %v went on, want %v", rest, want)
		}
		if len(told) != 2 || told[1].open || told[1].after <= 0 || told[1].after > time.Since(began) {
			t.Errorf("told %+v, want one opening and one closing", told)
		}
	})
}

func TestCanceledCallerStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, func(change) {})
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := b.enter(ctx)
			left <- err
		}()
		synctest.Wait()
		entered := make(chan pass, 1)
		go func() {
			p, err := b.enter(t.Context())
			if err != nil {
				t.Error(err)
			}
			entered <- p
		}()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		if p := <-entered; !p.probe {
			t.Errorf("got %+v, want a probe", p)
		}
	})
}

func TestCanceledProbePassesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := opened(t, func(change) {})
		p, held := ask(t, b, errNotAsked)
		if !p.probe || held {
			t.Fatalf("got %+v, held %v; want a probe that is not held", p, held)
		}
		began := time.Now()
		if p, _ := ask(t, b, nil); !p.probe || time.Since(began) != 0 {
			t.Errorf("got %+v after %v, want a probe at once", p, time.Since(began))
		}
		if p, _ := ask(t, b, nil); p != (pass{}) {
			t.Errorf("got %+v, want no waiting caller", p)
		}
	})
}
