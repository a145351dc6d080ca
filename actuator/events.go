package actuator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/rehome-dev/rehome/schemas"
)

// controllerName is the reporting controller of Kubernetes Events.
const controllerName = "rehome"

// Kubernetes Events are written behind a large drain, since each costs the API server about a tenth of an eviction.
const (
	eventsPerSecond = 10
	eventsBurst     = 20
	// mostEvents bounds the events that wait; more are lost.
	mostEvents = 1000
	// flushTimeout bounds how long the end of a session waits for them.
	flushTimeout = 2 * time.Second
)

// recorder records verdicts as Kubernetes Events, in the background. The zero value records nothing.
type recorder struct {
	events events.EventRecorder
	sink   *limitedSink
	self   corev1.ObjectReference // the object of the actuator itself; without a name there is none
}

// startEvents starts a recorder. stop ends it, after the events that wait were written or flushTimeout has passed.
func (a *Actuator) startEvents() (r recorder, stop func()) {
	if a.cfg.DryRun || a.cfg.Client == nil {
		return recorder{}, func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	sink := newLimitedSink(&events.EventSinkImpl{Interface: a.cfg.Client.EventsV1()}, a.cfg.Log)
	broadcaster := events.NewBroadcaster(sink)
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		a.cfg.Log.Error("Kubernetes Events are not recorded", "error", err)
	}
	return recorder{broadcaster.NewRecorder(scheme.Scheme, controllerName), sink, a.cfg.Self}, func() {
		sink.flush()
		cancel()
		broadcaster.Shutdown()
	}
}

// limitedSink limits the rate of Kubernetes Events, and counts events on their way. client-go drops and merges some, so the
// count may be too high.
type limitedSink struct {
	events.EventSink
	log      *slog.Logger
	rate     flowcontrol.RateLimiter
	expected atomic.Int64 // events that are not written yet
	waiting  atomic.Int64 // events that wait for their turn
	lost     atomic.Bool
	ending   context.Context // ends when no event waits for its turn any more
	end      context.CancelFunc
}

func newLimitedSink(to events.EventSink, log *slog.Logger) *limitedSink {
	s := &limitedSink{EventSink: to, log: log, rate: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsBurst)}
	s.ending, s.end = context.WithCancel(context.Background())
	return s
}

// flush waits until everything is written, at most flushTimeout. No event waits for its turn any more.
func (s *limitedSink) flush() {
	s.end()
	const poll = 5 * time.Millisecond
	for waited := time.Duration(0); s.expected.Load() > 0 && waited < flushTimeout; waited += poll {
		time.Sleep(poll)
	}
}

// limited calls write when it is the turn of an event.
func (s *limitedSink) limited(e *eventsv1.Event, write func() (*eventsv1.Event, error)) (*eventsv1.Event, error) {
	if s.waiting.Add(1) > mostEvents {
		s.waiting.Add(-1)
		s.expected.Add(-1)
		if s.lost.CompareAndSwap(false, true) {
			s.log.Warn("too many Kubernetes Events at once, some are not written", "most", mostEvents)
		}
		return e, nil
	}
	_ = s.rate.Wait(s.ending) // an error: the session ends, and there is no rate any more
	s.waiting.Add(-1)
	written, err := write()
	var refused apierrors.APIStatus
	if err == nil || errors.As(err, &refused) { // else it is the network, and client-go tries again
		s.expected.Add(-1)
	}
	return written, err
}

// Create writes a new event.
func (s *limitedSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.limited(e, func() (*eventsv1.Event, error) { return s.EventSink.Create(ctx, e) })
}

// Patch writes that an event has happened again.
func (s *limitedSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.limited(e, func() (*eventsv1.Event, error) { return s.EventSink.Patch(ctx, e, data) })
}

// record makes the Kubernetes Events of a verdict. failures is [policy.Policy.FailureEvents].
func (r recorder) record(v schemas.Verdict, failures bool) {
	for _, n := range kubernetesEvents(v, failures) {
		r.write(n)
	}
}

// warn makes a warning on the workload of a move.
func (r recorder) warn(x record, reason, text string) {
	if x.Workload != nil {
		r.write(notice{reference(*x.Workload), podReference(x.Intent.Pod), corev1.EventTypeWarning, reason, text})
	}
}

// announce makes an Event about the actuator as a whole.
func (r recorder) announce(kind, reason, text string) {
	if r.self.Name != "" {
		r.write(notice{regarding: &r.self, kind: kind, reason: reason, text: text})
	}
}

func (r recorder) write(n notice) {
	if r.events == nil {
		return
	}
	r.sink.expected.Add(1)
	var related runtime.Object // an interface that holds no pointer
	if n.related != nil {
		related = n.related
	}
	r.events.Eventf(n.regarding, related, n.kind, n.reason, "Descheduled", "%s", truncate(n.text, maxNote))
}

// notice is a Kubernetes Event.
type notice struct {
	regarding, related *corev1.ObjectReference
	kind, reason, text string
}

func podReference(p schemas.PodRef) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

func reference(o schemas.ObjectRef) *corev1.ObjectReference {
	r := &corev1.ObjectReference{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
	switch o.Kind {
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet":
		r.APIVersion = "apps/v1"
	case "Job", "CronJob":
		r.APIVersion = "batch/v1"
	}
	return r
}

// The reasons of Kubernetes Events that are not the name of a strategy.
const (
	evictionFailed = "EvictionFailed" // what [policy.Policy.FailureEvents] asks for
	loopEvent      = "LoopBreaker"
	stormEvent     = "StormBrake"
	rightEvent     = "MissingRight"
)

// kubernetesEvents returns the Kubernetes Events of a verdict. The reason is the strategy. With failures, an eviction that failed
// or was refused is a warning with the reason evictionFailed instead.
func kubernetesEvents(v schemas.Verdict, failures bool) []notice {
	if v.DryRun {
		return nil
	}
	pod := notice{regarding: podReference(v.Intent.Pod), kind: corev1.EventTypeNormal, reason: v.Strategy}
	from := fmt.Sprintf("node %s by %s", v.Intent.Node, controllerName)
	switch v.Outcome {
	case schemas.Evicted:
		pod.text = fmt.Sprintf("evicted from %s: %s", from, v.Intent.Reason)
		return []notice{pod}
	case schemas.Restarted, schemas.Requested:
		pod.text = fmt.Sprintf("move off %s requested, %s: %s (%s)", from, v.Method, v.Message, v.Intent.Reason)
		return append([]notice{pod}, onWorkload(v, pod.kind, pod.text)...)
	case schemas.Settled:
		return settledEvents(v, from)
	case schemas.Deferred:
		pod.text = "deferred"
	case schemas.Failed:
		pod.kind, pod.text = corev1.EventTypeWarning, "failed"
	default:
		return nil
	}
	if failures {
		pod.kind, pod.reason = corev1.EventTypeWarning, evictionFailed
	}
	pod.text = fmt.Sprintf("eviction from %s %s: %s (%s)", from, pod.text, v.Message, v.Intent.Reason)
	return []notice{pod}
}

// settledEvents returns the Events of the end of a move: on the workload, since the pod is gone, unless it still runs.
func settledEvents(v schemas.Verdict, from string) []notice {
	switch v.Reason {
	case schemas.ReasonReplaced:
		if v.Workload == nil {
			return nil
		}
		// It names no pod, so that all moves of a drain are one Event with a count.
		text := "moved by " + controllerName + ": the replacement is ready"
		return []notice{{regarding: reference(*v.Workload), kind: corev1.EventTypeNormal, reason: v.Strategy, text: text}}
	case schemas.ReasonTakenBack:
		text := fmt.Sprintf("move of pod %s off %s failed and was taken back: %s", v.Intent.Pod.Name, from, v.Message)
		pod := notice{regarding: podReference(v.Intent.Pod), kind: corev1.EventTypeWarning, reason: v.Strategy, text: text}
		return append([]notice{pod}, onWorkload(v, pod.kind, text)...)
	}
	return onWorkload(v, corev1.EventTypeWarning,
		fmt.Sprintf("pod %s was moved off %s, without success: %s: %s", v.Intent.Pod.Name, from, v.Reason, v.Message))
}

func onWorkload(v schemas.Verdict, kind, text string) []notice {
	if v.Workload == nil {
		return nil
	}
	return []notice{{
		regarding: reference(*v.Workload), related: podReference(v.Intent.Pod), kind: kind, reason: v.Strategy, text: text,
	}}
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
