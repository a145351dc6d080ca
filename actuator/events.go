package actuator

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/kubeevents"
	"github.com/rehome-dev/rehome/schemas"
)

// recorder records verdicts as Kubernetes Events. The zero value records nothing.
type recorder struct {
	*kubeevents.Recorder
	self corev1.ObjectReference // the object of the actuator itself; without a name there are no Events about it
}

// startEvents starts a recorder; stop ends it.
func (a *Actuator) startEvents() (r recorder, stop func()) {
	if a.cfg.DryRun || a.cfg.Client == nil {
		return recorder{}, func() {}
	}
	events, stop := kubeevents.Start(cmp.Or(a.cfg.Events, a.cfg.Client), a.cfg.Log)
	return recorder{events, a.cfg.Self}, stop
}

// record records the Kubernetes Events of a verdict. failures is [policy.Policy.FailureEvents].
func (r recorder) record(v schemas.Verdict, failures bool) {
	for _, e := range kubernetesEvents(v, failures) {
		r.Write(e)
	}
}

// warn records a warning on the workload of a move.
func (r recorder) warn(x record, reason, note string) {
	if x.Workload != nil {
		r.Write(event(reference(*x.Workload), podReference(x.Intent.Pod), corev1.EventTypeWarning, reason, note))
	}
}

// announce records an Event about the actuator itself.
func (r recorder) announce(kind, reason, note string) {
	if r.self.Name != "" {
		r.Write(event(&r.self, nil, kind, reason, note))
	}
}

func event(regarding, related *corev1.ObjectReference, kind, reason, note string) kubeevents.Event {
	return kubeevents.Event{Regarding: regarding, Related: related, Type: kind, Reason: reason, Action: "Descheduled", Note: note}
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
	loopEvent      = "WorkloadBreaker"
	stormEvent     = "ClusterBreaker"
	rightEvent     = "MissingRight"
)

// kubernetesEvents returns the Kubernetes Events of a verdict. The reason is the strategy. With failures, a failed or
// refused eviction is a warning with the reason evictionFailed instead.
func kubernetesEvents(v schemas.Verdict, failures bool) []kubeevents.Event {
	if v.DryRun {
		return nil
	}
	pod := event(podReference(v.Intent.Pod), nil, corev1.EventTypeNormal, v.Strategy, "")
	from := fmt.Sprintf("node %s by %s", v.Intent.Node, kubeevents.Controller)
	switch v.Outcome {
	case schemas.Evicted:
		pod.Note = fmt.Sprintf("evicted from %s: %s", from, v.Intent.Reason)
		return []kubeevents.Event{pod}
	case schemas.Restarted, schemas.Requested:
		pod.Note = fmt.Sprintf("move off %s requested, %s: %s (%s)", from, v.Method, v.Message, v.Intent.Reason)
		return append([]kubeevents.Event{pod}, onWorkload(v, pod.Type, pod.Note)...)
	case schemas.Settled:
		return settledEvents(v, from)
	case schemas.Deferred:
		pod.Note = "deferred"
	case schemas.Failed:
		pod.Type, pod.Note = corev1.EventTypeWarning, "failed"
	default:
		return nil
	}
	if failures {
		pod.Type, pod.Reason = corev1.EventTypeWarning, evictionFailed
	}
	pod.Note = fmt.Sprintf("eviction from %s %s: %s (%s)", from, pod.Note, v.Message, v.Intent.Reason)
	return []kubeevents.Event{pod}
}

// settledEvents returns the Events at the end of a move. They are on the workload, because the pod is gone, unless it
// still runs.
func settledEvents(v schemas.Verdict, from string) []kubeevents.Event {
	switch v.Reason {
	case schemas.ReasonReplaced:
		if v.Workload == nil {
			return nil
		}
		// The message names no pod, so that all moves of a drain are one Event with a count.
		return []kubeevents.Event{event(reference(*v.Workload), nil, corev1.EventTypeNormal, v.Strategy,
			"moved by "+kubeevents.Controller+": the replacement is ready")}
	case schemas.ReasonTakenBack, schemas.ReasonMoveFailed:
		failed := "failed and was taken back"
		if v.Reason == schemas.ReasonMoveFailed {
			failed = "failed"
		}
		text := fmt.Sprintf("move of pod %s off %s %s: %s", v.Intent.Pod.Name, from, failed, v.Message)
		pod := event(podReference(v.Intent.Pod), nil, corev1.EventTypeWarning, v.Strategy, text)
		return append([]kubeevents.Event{pod}, onWorkload(v, pod.Type, text)...)
	}
	return onWorkload(v, corev1.EventTypeWarning,
		fmt.Sprintf("pod %s was moved off %s, without success: %s: %s", v.Intent.Pod.Name, from, v.Reason, v.Message))
}

func onWorkload(v schemas.Verdict, kind, text string) []kubeevents.Event {
	if v.Workload == nil {
		return nil
	}
	return []kubeevents.Event{event(reference(*v.Workload), podReference(v.Intent.Pod), kind, v.Strategy, text)}
}
