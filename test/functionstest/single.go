package functionstest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// Now is when strategies are asked about a [Single] pod.
func Now() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// Single is [Pod] for a strategy that judges single pods: the pod web/api on worker-1 with the UID u1 and the label
// tier=web, two hours old.
func Single(options ...PodOption) schemas.ScopedPod {
	p := Pod("api", On("worker-1"), Labelled("tier", "web"), Aged(2*time.Hour))
	p.Pod.UID = "u1"
	for _, option := range options {
		option(&p)
	}
	return p
}

// SingleScope is the scope of a [Single] pod.
func SingleScope(p schemas.ScopedPod) schemas.PodScope {
	return schemas.PodScope{ScopeHead: schemas.ScopeHead{Kind: schemas.PodKind, Key: "web/api", Now: Now()}, Pod: p}
}

// Moves is the answer that a [Single] pod moves, for a reason.
func Moves(reason string) []schemas.Intent {
	return []schemas.Intent{{
		Pod: schemas.PodRef{Namespace: "web", Name: "api", UID: "u1"}, Node: "worker-1", Reason: reason,
	}}
}

// Removed is the answer that a [Single] pod goes, for a reason, after it has ended.
func Removed(reason string) []schemas.Intent {
	list := Moves(reason)
	list[0].Ended = true
	return list
}

// Aged makes the pod that old at the time of [Now].
func Aged(age time.Duration) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.CreationTimestamp = metav1.NewTime(Now().Add(-age)) }
}

// Because gives the status of the pod a reason.
func Because(reason string) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Status.Reason = reason }
}

// Containers sets the status of each container.
func Containers(statuses ...corev1.ContainerStatus) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Status.ContainerStatuses = statuses }
}

// InitContainers sets the status of each init container.
func InitContainers(statuses ...corev1.ContainerStatus) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Status.InitContainerStatuses = statuses }
}

// EphemeralContainers sets the status of each ephemeral container.
func EphemeralContainers(statuses ...corev1.ContainerStatus) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Status.EphemeralContainerStatuses = statuses }
}

// Ended is the status of a container that was terminated.
func Ended(reason string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code},
	}}
}

// Waiting is the status of a container that waits.
func Waiting(reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}
