package actuator

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/rehome-dev/rehome/schemas"
)

// controllerName is who Kubernetes Events say that they come from.
const controllerName = "rehome"

// recorder records verdicts as Kubernetes Events, in the background. The zero value records nothing.
type recorder struct {
	events events.EventRecorder
	sink   *pacedSink
	self   corev1.ObjectReference // what stands for the actuator; without a name: nothing does
}

// startEvents starts a recorder. stop ends it, after what is on its way was written or flushTimeout has passed.
func (a *Actuator) startEvents() (r recorder, stop func()) {
	if a.cfg.DryRun || a.cfg.Client == nil {
		return recorder{}, func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	sink := newPacedSink(&events.EventSinkImpl{Interface: a.cfg.Client.EventsV1()}, a.cfg.Log)
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

// record makes the Kubernetes Events of a verdict: on the pod what was asked for, on its workload what came of it.
// failures is [policy.Policy.FailureEvents].
func (r recorder) record(v schemas.Verdict, failures bool) {
	for _, n := range kubernetesEvents(v, failures) {
		r.write(n)
	}
}

// note makes a warning on the workload of a move.
func (r recorder) note(x record, reason, text string) {
	if x.Workload != nil {
		r.write(notice{regarding: reference(*x.Workload), related: podReference(x.Open.Intent.Pod), kind: corev1.EventTypeWarning,
			reason: reason, text: text})
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
	r.sink.expect(1)
	var related runtime.Object // an interface that holds no pointer
	if n.related != nil {
		related = n.related
	}
	r.events.Eventf(n.regarding, related, n.kind, n.reason, cmp.Or(n.action, action), "%s", truncate(n.text, maxNote))
}

// action is what all of them are about that do not say so.
const action = "Descheduled"

// notice is a Kubernetes Event.
type notice struct {
	regarding, related *corev1.ObjectReference
	kind, reason, text string
	action             string // empty: [action]
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

// kubernetesEvents says how a verdict is told to people. The reason is the strategy. With failures, an eviction that failed
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

// settledEvents says what came of a move: on the workload, since the pod is gone, unless it still runs.
func settledEvents(v schemas.Verdict, from string) []notice {
	switch v.Reason {
	case schemas.ReasonReplaced:
		return successes(v)
	case schemas.ReasonTakenBack:
		text := fmt.Sprintf("move of pod %s off %s failed and was taken back: %s", v.Intent.Pod.Name, from, v.Message)
		pod := notice{regarding: podReference(v.Intent.Pod), kind: corev1.EventTypeWarning, reason: v.Strategy, text: text}
		return append([]notice{pod}, onWorkload(v, pod.kind, text)...)
	}
	return onWorkload(v, corev1.EventTypeWarning,
		fmt.Sprintf("pod %s was moved off %s, without success: %s: %s", v.Intent.Pod.Name, from, v.Reason, v.Message))
}

// successes says that a workload was moved. It names no pod, so that all moves of a drain are one Event with a count instead
// of one write each.
func successes(v schemas.Verdict) []notice {
	if v.Workload == nil {
		return nil
	}
	return []notice{{
		regarding: reference(*v.Workload), kind: corev1.EventTypeNormal, reason: v.Strategy,
		text: "moved by " + controllerName + ": the replacement is ready",
	}}
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
