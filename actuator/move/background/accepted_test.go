package background_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move/background"
)

// pod returns a pod with the annotations of those keys.
func pod(annotations ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "vms", Name: "virt-launcher-db", UID: "1"}}
	for _, key := range annotations {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, "")
	}
	return p
}

// answer returns an error of the API server.
func answer(code int32, message string, causes ...metav1.CauseType) error {
	status := metav1.Status{Status: metav1.StatusFailure, Code: code, Message: message, Details: &metav1.StatusDetails{}}
	for _, c := range causes {
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: c})
	}
	return &apierrors.StatusError{ErrStatus: status}
}

func TestAcceptedEviction(t *testing.T) {
	const (
		prefix = `admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: `
		words  = `Eviction triggered evacuation of VMI "vms/db"`
	)
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		err  error
		want bool
	}{
		{"the words of the KEP", pod(background.RequestOnly), answer(http.StatusTooManyRequests, prefix+words), true},
		{"somebody asked before", pod(background.RequestOnly), answer(http.StatusTooManyRequests, prefix+"Evacuation in progress: "+words), true},
		{"the error is wrapped", pod(background.RequestOnly), fmt.Errorf("evict: %w", answer(http.StatusTooManyRequests, words)), true},
		{"the pod is on its way already", pod(background.RequestOnly, background.EvictionInProgress), answer(http.StatusTooManyRequests, words), true},
		{"the pod does not say that it is moved in this way", pod(), answer(http.StatusTooManyRequests, words), false},
		{"only the other annotation", pod(background.EvictionInProgress), answer(http.StatusTooManyRequests, words), false},
		{"other words", pod(background.RequestOnly), answer(http.StatusTooManyRequests, prefix+"Eviction request for target Pod"), false},
		{"a budget", pod(background.RequestOnly), answer(http.StatusTooManyRequests,
			"Cannot evict pod as it would violate the pod's disruption budget.", policyv1.DisruptionBudgetCause), false},
		{"a budget with those words", pod(background.RequestOnly), answer(http.StatusTooManyRequests, words, policyv1.DisruptionBudgetCause), false},
		{"another code", pod(background.RequestOnly), answer(http.StatusForbidden, prefix+words), false},
		{"no answer of the API server", pod(background.RequestOnly), errors.New(words), false},
		{"the pod was evicted", pod(background.RequestOnly), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := background.Accepted(tt.pod, tt.err); got != tt.want {
				t.Errorf("accepted is %t, want %t: %v", got, tt.want, tt.err)
			}
		})
	}
}

func TestInProgressAnnotations(t *testing.T) {
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want bool
	}{
		{"none", pod(), false},
		{"it may be moved in this way", pod(background.RequestOnly), false},
		{"it is being moved", pod(background.RequestOnly, background.EvictionInProgress), true},
		{"it is not moved in this way", pod(background.EvictionInProgress), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := background.InProgress(tt.pod); got != tt.want {
				t.Errorf("in progress is %t, want %t", got, tt.want)
			}
		})
	}
}
