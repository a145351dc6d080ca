package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// failuresToOpen is the number of consecutive failures that open a breaker: more than a restart behind a Service causes, and
// few enough that no scope becomes a dead letter.
const failuresToOpen = 3

// newBackoff returns the delays between probes: 1 s at first, up to 1 min, reduced by up to half at random so that dispatchers do
// not probe together.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second / 2, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}

// errNotAsked reports to a breaker that no request was made.
var errNotAsked = errors.New("not asked")

// change is the opening or closing of a breaker.
type change struct {
	open  bool
	why   error         // of opening
	after time.Duration // time it was open
}

// breaker is the circuit breaker of one function. While it is open, one caller at a time sends a probe and the others wait. It is
// safe for concurrent use.
type breaker struct {
	tell  func(change)  // called with the lock held
	probe chan struct{} // full while a caller probes

	mu       sync.Mutex
	failures int           // in a row, while closed
	closed   chan struct{} // while open: closed when the breaker closes. nil while closed.
	since    time.Time     // when it opened
	backoff  wait.Backoff
	next     time.Time // when the next probe is due
}

func newBreaker(tell func(change)) *breaker {
	return &breaker{tell: tell, probe: make(chan struct{}, 1)}
}

// pass allows one request.
type pass struct {
	waited bool // the breaker was open
	probe  bool // the request is a probe
}

// enter blocks until the caller may make a request, and must then call leave. It fails only with the error of ctx.
func (b *breaker) enter(ctx context.Context) (pass, error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed == nil {
		return pass{}, nil
	}
	select {
	case <-closed:
		return pass{waited: true}, nil
	case <-ctx.Done():
		return pass{}, ctx.Err()
	case b.probe <- struct{}{}:
	}
	b.mu.Lock()
	timer := time.NewTimer(time.Until(b.next))
	b.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
		return pass{waited: true, probe: true}, nil
	case <-closed:
		<-b.probe
		return pass{waited: true}, nil
	case <-ctx.Done():
		<-b.probe
		return pass{}, ctx.Err()
	}
}

// leave records the result of a request. hold means that the function is unavailable and the caller must enter again. opened
// means that this result opened the breaker.
func (b *breaker) leave(p pass, err error) (hold, opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe {
		defer func() { <-b.probe }()
	}
	switch resultOf(err) {
	case resultBroken:
		return false, false
	case resultUnreachable, resultUnauthorized:
	default: // the function answered
		b.failures = 0
		if b.closed != nil {
			close(b.closed)
			b.closed = nil
			b.tell(change{after: time.Since(b.since).Round(time.Millisecond)})
		}
		return false, false
	}
	switch {
	case b.closed != nil && !p.probe:
		return true, false
	case b.closed == nil:
		if b.failures++; b.failures < failuresToOpen {
			return false, false
		}
		opened = true
		b.closed, b.since, b.failures, b.backoff = make(chan struct{}), time.Now(), 0, newBackoff()
		b.tell(change{open: true, why: err})
	}
	b.next = time.Now().Add(max(b.backoff.Step(), delivery.After(err)))
	return true, opened
}

// result is the outcome of a request in the metrics.
type result string

const (
	resultAnswered     result = "answered"
	resultEmpty        result = "empty"        // the answer has no intents
	resultWrong        result = "wrong"        // the answer does not match the scope
	resultRefused      result = "refused"      // rejected permanently, or the response is not an event
	resultLater        result = "later"        // the function asks for a later request
	resultUnauthorized result = "unauthorized" // the function rejects the dispatcher
	resultUnreachable  result = "unreachable"  // the function is unavailable
	resultBroken       result = "broken"       // an error of the dispatcher or the bus
)

// resultOf classifies the error of a request.
func resultOf(err error) result {
	_, later := errors.AsType[*delivery.Later](err)
	switch {
	case err == nil:
		return resultAnswered
	case errors.Is(err, delivery.ErrUnreachable):
		return resultUnreachable
	case errors.Is(err, delivery.ErrUnauthorized):
		return resultUnauthorized
	case later:
		return resultLater
	case errors.Is(err, schemas.ErrInvalid):
		return resultRefused
	}
	return resultBroken
}
