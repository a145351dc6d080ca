package actuator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
)

// Kubernetes Events are a courtesy. To make one costs the API server about a tenth of an eviction, so those of a large
// drain are written behind it.
const (
	eventsPerSecond = 10
	eventsBurst     = 20
	// mostEvents bounds those that wait for their turn; what is beyond is lost.
	mostEvents = 1000
	// flushTimeout bounds how long the end of a term waits for them. What is not written by then is lost.
	flushTimeout = 2 * time.Second
)

// pacedSink writes Kubernetes Events at a rate, and knows how many are on their way, which client-go does not tell. It may
// believe that there are more, since client-go drops and merges some.
type pacedSink struct {
	events.EventSink
	log     *slog.Logger
	rate    flowcontrol.RateLimiter
	written chan struct{}
	ending  context.Context // ends when nothing waits for its turn any more
	end     context.CancelFunc

	mu       sync.Mutex
	expected int
	waiting  int
	lost     int
}

func newPacedSink(to events.EventSink, log *slog.Logger) *pacedSink {
	s := &pacedSink{
		EventSink: to, log: log, rate: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsBurst),
		written: make(chan struct{}, 1),
	}
	s.ending, s.end = context.WithCancel(context.Background())
	return s
}

// expect adds n to what is on its way, and returns how many there are.
func (s *pacedSink) expect(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected = max(s.expected+n, 0)
	return s.expected
}

// flush waits until everything is written, at most flushTimeout. Nothing waits for its turn any more.
func (s *pacedSink) flush() {
	s.end()
	late := time.After(flushTimeout)
	for s.expect(0) > 0 {
		select {
		case <-s.written:
		case <-late:
			return
		}
	}
}

// await waits for the turn of an event, and says whether it gets one.
func (s *pacedSink) await() bool {
	if !s.queue() {
		return false
	}
	_ = s.rate.Wait(s.ending) // an error: this is the end, and there is no rate any more
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
	return true
}

// queue takes a place among those that wait, if there is one.
func (s *pacedSink) queue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting < mostEvents {
		s.waiting++
		return true
	}
	if s.lost++; s.lost == 1 {
		s.log.Warn("too many Kubernetes Events at once, some are not written", "most", mostEvents)
	}
	return false
}

// done counts one event that was written, lost, or refused for good.
func (s *pacedSink) done(err error) {
	var refused apierrors.APIStatus
	if err != nil && !errors.As(err, &refused) {
		return // the network: client-go tries again
	}
	s.expect(-1)
	select {
	case s.written <- struct{}{}:
	default:
	}
}

// Create writes a new event.
func (s *pacedSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	if !s.await() {
		s.done(nil)
		return e, nil
	}
	created, err := s.EventSink.Create(ctx, e)
	s.done(err)
	return created, err
}

// Patch writes that an event has happened again.
func (s *pacedSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	if !s.await() {
		s.done(nil)
		return e, nil
	}
	patched, err := s.EventSink.Patch(ctx, e, data)
	s.done(err)
	return patched, err
}
