package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

const (
	// failuresToOpen is how many questions in a row may be in vain: more than a restart behind a service costs, and few
	// enough that no scope is given up.
	failuresToOpen = 3
	// firstProbe and lastProbe are after what time a function that was away is asked again, at first and at the most.
	firstProbe = time.Second
	lastProbe  = time.Minute
)

// errNotAsked says to a breaker that nothing was found out.
var errNotAsked = errors.New("not asked")

// change is a breaker that opens or closes.
type change struct {
	open  bool
	why   error         // it opens
	after time.Duration // it was open for so long
}

// breaker keeps questions from a function that is not there. [newBreaker] makes it. Its methods may be called from many
// goroutines.
type breaker struct {
	tell func(change) // is called with the lock held

	mu       sync.Mutex
	failures int // in a row, while it is closed
	open     bool
	since    time.Time     // it is open
	probes   int           // in vain, since then
	next     time.Time     // the moment of the next one
	probing  bool          // somebody asks
	tickets  uint64        // that were given out
	queue    []uint64      // the tickets of those who wait, the longest first
	signal   chan struct{} // closed when any of these has changed
}

func newBreaker(tell func(change)) *breaker {
	return &breaker{tell: tell, signal: make(chan struct{})}
}

// pass lets its holder ask once.
type pass struct {
	waited bool // for somebody else to find out that the function is back, or for its turn to do so
	probe  bool // it is the one that finds out
}

// enter waits until the caller may ask, who then has to leave. It fails only with the error of ctx.
func (b *breaker) enter(ctx context.Context) (pass, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return pass{}, nil
	}
	b.tickets++
	ticket := b.tickets
	b.queue = append(b.queue, ticket)
	defer func() {
		b.queue = slices.DeleteFunc(b.queue, func(other uint64) bool { return other == ticket })
		b.wake()
	}()
	for b.open {
		mine := b.queue[0] == ticket && !b.probing
		wait := time.Until(b.next)
		if mine && wait <= 0 {
			b.probing = true
			return pass{waited: true, probe: true}, nil
		}
		if err := b.pause(ctx, mine, wait); err != nil {
			return pass{}, err
		}
	}
	return pass{waited: true}, nil
}

// pause waits until something has changed, or for that time if it is the caller's turn.
func (b *breaker) pause(ctx context.Context, mine bool, wait time.Duration) error {
	var due <-chan time.Time
	if mine {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	signal := b.signal
	b.mu.Unlock()
	defer b.mu.Lock()
	select {
	case <-due:
	case <-signal:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// leave says what came of a question. hold: the function is not there, and the caller is to enter again.
func (b *breaker) leave(p pass, err error) (hold bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.wake()
	if p.probe {
		b.probing = false
	}
	switch verdictOf(err) {
	case unknown:
		return false
	case there:
		b.failures = 0
		if b.open {
			b.open = false
			b.tell(change{after: time.Since(b.since).Round(time.Millisecond)})
		}
		return false
	}
	switch {
	case b.open && p.probe:
		b.probes++
		b.next = time.Now().Add(max(probeAfter(b.probes, rand.Float64()), delivery.After(err)))
	case !b.open:
		if b.failures++; b.failures < failuresToOpen {
			return false
		}
		b.open, b.since, b.probes, b.failures = true, time.Now(), 0, 0
		b.next = b.since.Add(max(probeAfter(0, rand.Float64()), delivery.After(err)))
		b.tell(change{open: true, why: err})
	}
	return true
}

func (b *breaker) wake() {
	close(b.signal)
	b.signal = make(chan struct{})
}

// verdict is what a question has found out about the function.
type verdict int

const (
	there verdict = iota
	away
	unknown
)

// verdictOf says what the error of a question has found out. Whoever refuses a scope, or asks for time, is there.
func verdictOf(err error) verdict {
	_, later := errors.AsType[*delivery.Later](err)
	switch {
	case errors.Is(err, delivery.ErrUnreachable), errors.Is(err, delivery.ErrUnauthorized):
		return away
	case err == nil, errors.Is(err, schemas.ErrInvalid), later:
		return there
	}
	return unknown
}

// probeAfter is how long to wait after so many probes in vain: a time that doubles, less up to half of it, so that those
// who wait for the same function do not all ask at once. random is in [0, 1).
func probeAfter(probes int, random float64) time.Duration {
	d := lastProbe
	if probes < 6 {
		d = min(firstProbe<<probes, lastProbe)
	}
	return d - time.Duration(random*float64(d)/2)
}
