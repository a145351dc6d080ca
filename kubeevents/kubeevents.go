// Package kubeevents writes Kubernetes Events for the roles that change the cluster. client-go merges equal events into a series with
// a count.
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// Controller is the reporting controller of all events.
const Controller = "rehome"

// Events are written behind a large drain, since each costs the API server about a tenth of an eviction.
const (
	perSecond = 10
	burst     = 20
	// longestWait bounds how long an event waits for its turn; later ones are lost.
	longestWait = 100 * time.Second
	// flushTimeout bounds how long stop waits for events on their way.
	flushTimeout = 2 * time.Second
	// maxNote is the longest note in bytes that the API server takes.
	maxNote = 1024
)

// Event is a Kubernetes Event.
type Event struct {
	Regarding, Related         *corev1.ObjectReference // Related may be nil
	Type, Reason, Action, Note string
}

// Recorder writes events in the background. nil writes nothing. It is safe for concurrent use.
type Recorder struct {
	events events.EventRecorder
	sink   *sink
}

// Start starts a recorder. stop ends it when the events on their way are written, or after two seconds.
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

// Write writes an event as soon as the rate allows it.
func (r *Recorder) Write(e Event) {
	if r == nil {
		return
	}
	r.sink.pending.Add(1)
	var related runtime.Object // an interface that holds no nil pointer
	if e.Related != nil {
		related = e.Related
	}
	r.events.Eventf(e.Regarding, related, e.Type, e.Reason, e.Action, "%s", cut(e.Note))
}

// cut shortens a note that is too long.
func cut(note string) string {
	if len(note) <= maxNote {
		return note
	}
	return strings.ToValidUTF8(note[:maxNote-len("…")], "") + "…"
}

// sink limits the rate of events, and counts those on their way. client-go merges some, so the count may be too high.
type sink struct {
	events.EventSink
	log     *slog.Logger
	rate    *rate.Limiter
	pending atomic.Int64
	lost    sync.Once
	ending  chan struct{} // closed when no event waits for its turn any more
}

func newSink(to events.EventSink, log *slog.Logger) *sink {
	return &sink{EventSink: to, log: log, rate: rate.NewLimiter(perSecond, burst), ending: make(chan struct{})}
}

// flush lets all events take their turn at once, and waits until they are written.
func (s *sink) flush() {
	close(s.ending)
	const poll = 5 * time.Millisecond
	for waited := time.Duration(0); s.pending.Load() > 0 && waited < flushTimeout; waited += poll {
		time.Sleep(poll)
	}
}

// limited calls write when it is the turn of an event.
func (s *sink) limited(e *eventsv1.Event, write func() (*eventsv1.Event, error)) (*eventsv1.Event, error) {
	turn := s.rate.Reserve()
	if turn.Delay() > longestWait {
		turn.Cancel()
		s.pending.Add(-1)
		s.lost.Do(func() { s.log.Warn("too many Kubernetes Events at once, some are not written", "rate", perSecond) })
		return e, nil
	}
	select {
	case <-time.After(turn.Delay()):
	case <-s.ending:
	}
	written, err := write()
	var refused apierrors.APIStatus
	if err == nil || errors.As(err, &refused) { // else it is the network, and client-go tries again
		s.pending.Add(-1)
	}
	return written, err
}

// Create writes a new event.
func (s *sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.limited(e, func() (*eventsv1.Event, error) { return s.EventSink.Create(ctx, e) })
}

// Patch writes that an event has happened again.
func (s *sink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.limited(e, func() (*eventsv1.Event, error) { return s.EventSink.Patch(ctx, e, data) })
}
