// Package kubeevents writes Kubernetes Events for the roles that change the cluster. client-go merges equal events into a series.
package kubeevents

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// Controller is the reporting controller of all events.
const Controller = "rehome"

// The rate of events is limited, because an event costs the API server about a tenth of an eviction.
const (
	perSecond = 10
	burst     = 20
	// longestWait is the longest time that an event waits. Events that would wait longer are dropped.
	longestWait = 100 * time.Second
	// flushTimeout is how long stop waits for events in flight.
	flushTimeout = 2 * time.Second
	// maxNote is the longest note that the API server accepts, in bytes.
	maxNote = 1024
)

// Event is one Kubernetes Event to write.
type Event struct {
	Regarding, Related         *corev1.ObjectReference // Related may be nil
	Type, Reason, Action, Note string
}

// Recorder writes events in the background. A nil Recorder writes nothing. It is safe for concurrent use.
type Recorder struct {
	events events.EventRecorder
	sink   *sink
}

// Start starts a recorder. stop writes the remaining events for at most two seconds.
func Start(client kubernetes.Interface, log *slog.Logger) (r *Recorder, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	s := newSink(&events.EventSinkImpl{Interface: client.EventsV1()}, log)
	broadcaster := events.NewBroadcaster(s)
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		log.Error("Kubernetes Events are not recorded", "error", err)
	}
	return &Recorder{broadcaster.NewRecorder(scheme.Scheme, Controller), s}, func() {
		s.flush()
		cancel()
		broadcaster.Shutdown()
	}
}

// Write queues an event. It does not block.
func (r *Recorder) Write(e Event) {
	if r == nil {
		return
	}
	r.sink.pending.Add(1)
	var related runtime.Object // must not hold a nil pointer
	if e.Related != nil {
		related = e.Related
	}
	r.events.Eventf(e.Regarding, related, e.Type, e.Reason, e.Action, "%s", cut(e.Note))
}

// cut shortens a note to maxNote bytes.
func cut(note string) string {
	if len(note) <= maxNote {
		return note
	}
	return strings.ToValidUTF8(note[:maxNote-len("…")], "") + "…"
}

// sink limits the rate of events and counts the pending ones. The count can be too high, because client-go merges some.
type sink struct {
	events.EventSink
	log     *slog.Logger
	rate    *rate.Limiter
	pending atomic.Int64
	lost    sync.Once
	ending  chan struct{} // closed when pending events no longer wait for the rate
}

func newSink(to events.EventSink, log *slog.Logger) *sink {
	return &sink{EventSink: to, log: log, rate: rate.NewLimiter(perSecond, burst), ending: make(chan struct{})}
}

// flush releases all waiting events, and waits until they are written, at most for flushTimeout.
func (s *sink) flush() {
	close(s.ending)
	_ = wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, flushTimeout, true,
		func(context.Context) (bool, error) { return s.pending.Load() <= 0, nil })
}

// limited calls write when the rate allows it.
func (s *sink) limited(e *eventsv1.Event, write func() (*eventsv1.Event, error)) (*eventsv1.Event, error) {
	turn := s.rate.Reserve()
	if turn.Delay() > longestWait {
		turn.Cancel()
		s.pending.Add(-1)
		s.lost.Do(func() { s.log.Warn("too many Kubernetes Events, dropping some", "rate", perSecond) })
		return e, nil
	}
	select {
	case <-time.After(turn.Delay()):
	case <-s.ending:
	}
	written, err := write()
	var refused apierrors.APIStatus
	if err == nil || errors.As(err, &refused) { // client-go retries after a network error
		s.pending.Add(-1)
	}
	return written, err
}

// Create writes a new event.
func (s *sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.limited(e, func() (*eventsv1.Event, error) { return s.EventSink.Create(ctx, e) })
}

// Patch counts another occurrence of an event.
func (s *sink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.limited(e, func() (*eventsv1.Event, error) { return s.EventSink.Patch(ctx, e, data) })
}
