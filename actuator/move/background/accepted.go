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
	// EvictionInProgress is on such a pod while it is being moved. Who moves it puts it there, and takes it away when that
	// fails.
	EvictionInProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"
)

// triggered is what the message of an eviction that was taken over contains. There is no code and no cause for that, so
// the KEP goes by the words, and webhooks put others around them: KubeVirt names the virtual machine, and says when it is
// not the first to ask.
const triggered = "Eviction triggered evacuation"

// Accepted says whether a webhook took the eviction of pod over, by err, the answer to an eviction call: the pod is not
// being deleted, and somebody moves it from now on. It asks no cluster, and takes errors that wrap the API server's.
//
// The pod has to say that it is moved in this way, and the answer has to be 429 with the words of KEP-1397. A budget's
// refusal is not one, whatever it says.
func Accepted(pod *corev1.Pod, err error) bool {
	var answer apierrors.APIStatus
	if !marked(pod) || !errors.As(err, &answer) || apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		return false
	}
	status := answer.Status()
	return status.Code == http.StatusTooManyRequests && strings.Contains(status.Message, triggered)
}

// InProgress says whether somebody moves the pod already. An eviction call would only be answered in the same way again.
func InProgress(pod *corev1.Pod) bool {
	_, moved := pod.Annotations[EvictionInProgress]
	return moved && marked(pod)
}

func marked(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[RequestOnly]
	return ok
}
