package actuator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/schemas"
)

func withCause(err *apierrors.StatusError, cause metav1.CauseType) error {
	if err.ErrStatus.Details == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause, Message: "x"})
	return err
}

func TestTheAnswerToAnEvictionIsReadByCodeAndCause(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tests := []struct {
		name string
		err  error
		want reply
	}{
		{"no error is an accepted eviction", nil, replyAccepted},
		{"404 is a pod that is gone", apierrors.NewNotFound(pods, "api-0"), replyGone},
		{"409 is a precondition or a race", apierrors.NewConflict(pods, "api-0", errors.New("uid differs")), replyConflict},
		{"429 with the cause of a budget is a budget",
			withCause(apierrors.NewTooManyRequests("no", 0), policyv1.DisruptionBudgetCause), replyBudget},
		{"429 with the cause of a budget and a time to wait is a budget",
			withCause(apierrors.NewTooManyRequests("no", 10), policyv1.DisruptionBudgetCause), replyBudget},
		{"429 without a cause is throttling, whatever its text says",
			apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 1), replyThrottled},
		{"403 is a missing right", apierrors.NewForbidden(pods, "api-0", errors.New("no")), replyForbidden},
		{"403 because the namespace ends is no missing right",
			withCause(apierrors.NewForbidden(pods, "api-0", errors.New("no")), corev1.NamespaceTerminatingCause), replyEnding},
		{"400 is invalid", apierrors.NewBadRequest("no"), replyInvalid},
		{"422 is invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Eviction"}, "api-0", nil), replyInvalid},
		{"500 may be several budgets", apierrors.NewInternalError(errors.New("boom")), replyInternal},
		{"500 without a reason may be several budgets",
			&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500}}, replyInternal},
		{"401 passes when credentials are renewed", apierrors.NewUnauthorized("no"), replyNone},
		{"503 leaves it open", apierrors.NewServiceUnavailable("no"), replyNone},
		{"504 leaves it open", apierrors.NewTimeoutError("slow", 1), replyNone},
		{"a network error leaves it open",
			&url.Error{Op: "Post", URL: "https://x", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}, replyNone},
		{"the own deadline leaves it open", fmt.Errorf("call: %w", context.DeadlineExceeded), replyNone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := classify(tt.err); got != tt.want {
				t.Errorf("classify(%v) = %d, want %d", tt.err, got, tt.want)
			}
		})
	}
}

func TestAfterACallWithAnOpenEndThePodDecides(t *testing.T) {
	later := Objection{schemas.Deferred, schemas.ReasonAPIUnavailable, "timeout"}
	lost := Objection{schemas.Evicted, schemas.ReasonEvictionAccepted, "evicted from worker-1; the answer was lost: timeout"}
	terminating, other := calm().Pod, calm().Pod
	terminating.DeletionTimestamp = &metav1.Time{Time: noon}
	other.UID = "uid-1"
	tests := []struct {
		name    string
		pod     *corev1.Pod
		refused bool
		want    Objection
	}{
		{"a pod that runs on is evicted later", calm().Pod, false, later},
		{"a pod that runs on after a conflict is evicted later", calm().Pod, true, later},
		{"a pod that is going now was evicted", terminating, false, lost},
		{"a pod that is gone now was evicted", nil, false, lost},
		{"a pod that was made anew was evicted", other, false, lost},
		{"a pod that is going after a conflict was deleted by somebody else", terminating, true,
			Objection{schemas.Rejected, schemas.ReasonPodTerminating, "the pod is being deleted, until 2026-03-01T12:00:00Z"}},
		{"a pod that is gone after a conflict was deleted by somebody else", nil, true,
			Objection{schemas.Rejected, schemas.ReasonPodGone, "the pod is gone"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := afterDoubt(calm(), tt.pod, tt.refused, later); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
