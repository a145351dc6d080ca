package actuator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/rehome-dev/rehome/schemas"
)

// controllerName is who Kubernetes Events say that they come from.
const controllerName = "rehome"

// flushTimeout bounds how long the end of a term waits for Kubernetes Events to be written. They are a courtesy: what
// is not written by then is lost.
const flushTimeout = 2 * time.Second

// recorder records verdicts as Kubernetes Events, in the background. The zero value records nothing.
type recorder struct {
	events events.EventRecorder
	sink   *countingSink
}

// startEvents starts a recorder. stop ends it, after what is on its way was written or flushTimeout has passed.
func (a *Actuator) startEvents() (r recorder, stop func()) {
	if a.cfg.DryRun || a.cfg.Client == nil {
		return recorder{}, func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	sink := &countingSink{
		EventSink: &events.EventSinkImpl{Interface: a.cfg.Client.EventsV1()}, written: make(chan struct{}, 1),
	}
	broadcaster := events.NewBroadcaster(sink)
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		a.cfg.Log.Error("Kubernetes Events are not recorded", "error", err)
	}
	return recorder{broadcaster.NewRecorder(scheme.Scheme, controllerName), sink}, func() {
		sink.flush()
		cancel()
		broadcaster.Shutdown()
	}
}

// record makes the Kubernetes Event of a verdict, if it gets one. failures is [policy.Policy.FailureEvents].
func (r recorder) record(v schemas.Verdict, failures bool) {
	eventType, reason, note, ok := kubernetesEvent(v, failures)
	if !ok || r.events == nil {
		return
	}
	pod := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: v.Intent.Pod.Namespace, Name: v.Intent.Pod.Name, UID: v.Intent.Pod.UID,
	}
	r.sink.expect(1)
	r.events.Eventf(pod, nil, eventType, reason, "Descheduled", "%s", note)
}

// countingSink writes Kubernetes Events and knows how many are on their way, which client-go does not tell. It may
// believe that there are more, since client-go drops and merges some.
type countingSink struct {
	events.EventSink
	written chan struct{}

	mu       sync.Mutex
	expected int
}

// expect adds n to what is on its way, and returns how many there are.
func (s *countingSink) expect(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected = max(s.expected+n, 0)
	return s.expected
}

// flush waits until everything is written, at most flushTimeout.
func (s *countingSink) flush() {
	late := time.After(flushTimeout)
	for s.expect(0) > 0 {
		select {
		case <-s.written:
		case <-late:
			return
		}
	}
}

// done counts one event that was written, or refused for good.
func (s *countingSink) done(err error) {
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
func (s *countingSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, e)
	s.done(err)
	return created, err
}

// Patch writes that an event has happened again.
func (s *countingSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	patched, err := s.EventSink.Patch(ctx, e, data)
	s.done(err)
	return patched, err
}

// evictionFailed is the reason of the Kubernetes Events that [policy.Policy.FailureEvents] asks for.
const evictionFailed = "EvictionFailed"

// kubernetesEvent says how a verdict is told to people, and whether it is. Its reason is the strategy. With failures, an
// eviction that failed or was refused is a warning with the reason evictionFailed instead.
func kubernetesEvent(v schemas.Verdict, failures bool) (eventType, reason, note string, ok bool) {
	eventType, reason = corev1.EventTypeNormal, v.Strategy
	switch v.Outcome {
	case schemas.Evicted:
		note = fmt.Sprintf("evicted from node %s by %s: %s", v.Intent.Node, controllerName, v.Intent.Reason)
		return eventType, reason, truncate(note, maxNote), !v.DryRun
	case schemas.Deferred:
		note = "deferred"
	case schemas.Failed:
		eventType, note = corev1.EventTypeWarning, "failed"
	default:
		return "", "", "", false
	}
	if failures {
		eventType, reason = corev1.EventTypeWarning, evictionFailed
	}
	note = fmt.Sprintf("eviction from node %s by %s %s: %s (%s)", v.Intent.Node, controllerName, note, v.Message, v.Intent.Reason)
	return eventType, reason, truncate(note, maxNote), !v.DryRun
}

// maxNote is the longest note in bytes that the API server takes.
const maxNote = 1024

// truncate cuts s to at most n bytes, between two characters.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n -= len("…"); n > 0 && s[n]&0xC0 == 0x80; n-- {
	}
	return s[:n] + "…"
}
