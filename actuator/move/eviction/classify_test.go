package eviction

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func withCause(err *apierrors.StatusError, cause metav1.CauseType) error {
	if err.ErrStatus.Details == nil {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause, Message: "x"})
	return err
}

func TestEvictionErrorClassification(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	type result struct {
		outcome schemas.Outcome
		reason  schemas.ReasonCode
		doubt   doubt
	}
	tests := []struct {
		name string
		err  error
		want result
	}{
		{"no error is an accepted eviction", nil, result{}},
		{"404 is a pod that is gone", apierrors.NewNotFound(pods, "api-0"), result{schemas.Rejected, schemas.ReasonPodGone, noDoubt}},
		{"409 is a precondition or a race", apierrors.NewConflict(pods, "api-0", errors.New("uid differs")), result{doubt: doubtConflict}},
		{"429 with the cause of a budget is a budget",
			withCause(apierrors.NewTooManyRequests("no", 0), policyv1.DisruptionBudgetCause), result{schemas.Deferred, schemas.ReasonDisruptionBudget, noDoubt}},
		{"429 with the cause of a budget and a time to wait is a budget",
			withCause(apierrors.NewTooManyRequests("no", 10), policyv1.DisruptionBudgetCause), result{schemas.Deferred, schemas.ReasonDisruptionBudget, noDoubt}},
		{"429 without a cause is throttling, whatever its text says",
			apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 1), result{schemas.Deferred, schemas.ReasonThrottled, noDoubt}},
		{"403 is a missing right", apierrors.NewForbidden(pods, "api-0", errors.New("no")), result{schemas.Failed, schemas.ReasonForbidden, noDoubt}},
		{"403 because the namespace ends is no missing right",
			withCause(apierrors.NewForbidden(pods, "api-0", errors.New("no")), corev1.NamespaceTerminatingCause), result{schemas.Rejected, schemas.ReasonPodTerminating, noDoubt}},
		{"400 is invalid", apierrors.NewBadRequest("no"), result{schemas.Failed, schemas.ReasonInvalid, noDoubt}},
		{"422 is invalid", apierrors.NewInvalid(schema.GroupKind{Kind: "Eviction"}, "api-0", nil), result{schemas.Failed, schemas.ReasonInvalid, noDoubt}},
		{"500 may be several budgets", apierrors.NewInternalError(errors.New("boom")), result{doubt: doubtInternal}},
		{"500 without a reason may be several budgets",
			&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500}}, result{doubt: doubtInternal}},
		{"401 passes when credentials are renewed", apierrors.NewUnauthorized("no"), result{doubt: undelivered}},
		{"503 leaves it open", apierrors.NewServiceUnavailable("no"), result{doubt: doubtNoAnswer}},
		{"504 leaves it open", apierrors.NewTimeoutError("slow", 1), result{doubt: doubtNoAnswer}},
		{"408 leaves it open", &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 408}}, result{doubt: doubtNoAnswer}},
		{"a broken connection leaves it open",
			&url.Error{Op: "Post", URL: "https://x", Err: &net.OpError{Op: "read", Err: errors.New("connection reset")}}, result{doubt: doubtNoAnswer}},
		{"no connection means that the server has no request",
			&url.Error{Op: "Post", URL: "https://x", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}, result{doubt: undelivered}},
		{"the own deadline leaves it open", fmt.Errorf("call: %w", context.DeadlineExceeded), result{doubt: doubtNoAnswer}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			refusal, d := classify(tt.err)
			got := result{doubt: d}
			if refusal != nil {
				got.outcome, got.reason = refusal.Outcome, refusal.Reason
				expect.Equal(t, "message", refusal.Message, tt.err.Error())
			}
			expect.Equal(t, "result", got, tt.want)
		})
	}
}

// noon is the time of the tests without a cluster.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func aPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api-0", UID: "uid-0"}, Spec: corev1.PodSpec{NodeName: "worker-1"},
	}
}

func TestDoubt(t *testing.T) {
	terminating, other := aPod(), aPod()
	terminating.DeletionTimestamp = &metav1.Time{Time: noon}
	other.UID = "uid-1"
	lost := move.Progress{Stage: move.Done, Method: schemas.MethodEviction,
		Message: "evicted from worker-1; the answer was lost: timeout"}
	later := refused(&move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonAPIUnavailable, Message: "timeout"})
	rejected := func(reason schemas.ReasonCode, message string) move.Progress {
		return refused(&move.Refusal{Outcome: schemas.Rejected, Reason: reason, Message: message})
	}
	tests := []struct {
		name  string
		live  *corev1.Pod
		doubt doubt
		dry   bool
		want  move.Progress
		err   error
	}{
		{"running_pod_is_evicted_later", aPod(), doubtNoAnswer, false, later, nil},
		{"running_pod_after_internal_error_is_evicted_later", aPod(), doubtInternal, false,
			refused(&move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonInternalError, Message: "timeout"}), nil},
		{"running_pod_after_conflict_was_changed", aPod(), doubtConflict, false, move.Progress{}, move.ErrChanged},
		{"terminating_pod_was_evicted", terminating, doubtNoAnswer, false, lost, nil},
		{"missing_pod_was_evicted", nil, doubtNoAnswer, false, lost, nil},
		{"recreated_pod_was_evicted", other, doubtNoAnswer, false, lost, nil},
		{"terminating_pod_after_conflict_was_deleted_by_others", terminating, doubtConflict, false,
			rejected(schemas.ReasonPodTerminating, "the pod is being deleted, until 2026-03-01T12:00:00Z"), nil},
		{"missing_pod_after_conflict_was_deleted_by_others", nil, doubtConflict, false,
			rejected(schemas.ReasonPodGone, "the pod is gone"), nil},
		{"missing_pod_after_dry_run_was_deleted_by_others", nil, doubtNoAnswer, true,
			rejected(schemas.ReasonPodGone, "the pod is gone"), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := afterDoubt(aPod(), tt.live, tt.doubt, tt.dry, errors.New("timeout"))
			expect.Equal(t, "progress", got, tt.want)
			if !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
		})
	}
}
