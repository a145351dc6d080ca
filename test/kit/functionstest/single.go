package functionstest

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// Now returns the time of the scope of a [Single] pod.
func Now() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// Single returns a [Pod] for strategies that evaluate single pods: web/api on worker-1 with the UID u1, the label tier=web, and
// an age of two hours.
func Single(options ...PodOption) schemas.ScopedPod {
	p := Pod("api", On("worker-1"), Labelled("tier", "web"), Aged(2*time.Hour))
	p.Pod.UID = "u1"
	for _, option := range options {
		option(&p)
	}
	return p
}

// SingleScope returns the scope of a [Single] pod.
func SingleScope(p schemas.ScopedPod) schemas.PodScope {
	return schemas.PodScope{ScopeHead: schemas.ScopeHead{Kind: schemas.PodKind, Key: "web/api", Now: Now()}, Pod: p}
}

// Moves returns the answer that moves a [Single] pod.
func Moves(reason string) []schemas.Intent {
	return []schemas.Intent{{
		Pod: schemas.PodRef{Namespace: "web", Name: "api", UID: "u1"}, Node: "worker-1", Reason: reason,
	}}
}

// Removed returns the answer that removes an ended [Single] pod.
func Removed(reason string) []schemas.Intent {
	list := Moves(reason)
	list[0].Ended = true
	return list
}

// Aged sets the age of the pod at [Now].
func Aged(age time.Duration) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.CreationTimestamp = metav1.NewTime(Now().Add(-age)) }
}

// Because sets the status reason of the pod.
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

// Ended returns the status of a terminated container.
func Ended(reason string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code},
	}}
}

// Waiting returns the status of a waiting container.
func Waiting(reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

// TaintedScope returns the scope of a node with the taint dedicated=gpu:NoSchedule, which a resync caused.
func TaintedScope(strategy, node string, pods ...schemas.ScopedPod) schemas.NodeScope {
	n := Node(node)
	n.Spec.Taints = append(n.Spec.Taints, Taint("dedicated=gpu:NoSchedule"))
	return schemas.NodeScope{
		ScopeHead: schemas.ScopeHead{
			Kind: schemas.NodeKind, Key: node, Profile: "default", Strategy: strategy,
			Now: Now(), Since: Now().Add(-time.Second), Causes: []schemas.Cause{{Kind: schemas.CauseResync, Time: Now()}},
		},
		Node: n, Pods: pods,
	}
}

// NodeScope returns the scope of a node at the time 1000 s.
func NodeScope(n corev1.Node, pods ...schemas.ScopedPod) schemas.NodeScope {
	return schemas.NodeScope{
		ScopeHead: schemas.ScopeHead{Kind: schemas.NodeKind, Key: n.Name, Now: time.Unix(1000, 0)}, Node: n, Pods: pods,
	}
}

// Weighing returns the answer with a weight.
func Weighing(want []schemas.Intent, weight int64) []schemas.Intent {
	want = slices.Clone(want)
	for i := range want {
		want[i].Weight = weight
	}
	return want
}
