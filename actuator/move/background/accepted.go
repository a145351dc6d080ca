package background

import (
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The annotations of KEP-1397. Their values mean nothing.
const (
	// RequestOnly is on a pod whose eviction a webhook takes over. Its owner puts it there.
	RequestOnly = "descheduler.alpha.kubernetes.io/request-evict-only"
	// EvictionInProgress is on such a pod while it is being moved. The webhook sets it, and removes it when the
	// move fails.
	EvictionInProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"
)

// triggered is part of the message when a webhook takes an eviction over. The answer has no code or cause of its own, so the KEP
// defines these words. Webhooks add others: KubeVirt names the virtual machine.
const triggered = "Eviction triggered evacuation"

// Accepted says whether a webhook took the eviction of pod over. err is the answer to the eviction call, or wraps it. The pod
// needs the annotation [RequestOnly], and the answer is 429 with the words of KEP-1397. The refusal of a budget never counts.
func Accepted(pod *corev1.Pod, err error) bool {
	var answer apierrors.APIStatus
	if !marked(pod) || !errors.As(err, &answer) || apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		return false
	}
	status := answer.Status()
	return status.Code == http.StatusTooManyRequests && strings.Contains(status.Message, triggered)
}

// InProgress says whether a webhook moves the pod already. Another eviction call would get the same answer.
func InProgress(pod *corev1.Pod) bool {
	_, moved := pod.Annotations[EvictionInProgress]
	return moved && marked(pod)
}

func marked(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[RequestOnly]
	return ok
}
