package eviction

import (
	"errors"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// doubt is why the answer to an eviction call does not decide the move.
type doubt int

const (
	noDoubt       doubt = iota
	undelivered         // no connection, or credentials that must be renewed: the call had no effect
	doubtConflict       // a precondition did not hold, or another client wrote at the same time
	doubtInternal       // 500: broken, or more than one budget
	doubtNoAnswer       // no answer, or one without a clear result
)

// classify reads the API server's answer by its code, reason, and causes, never by its text. It returns a refusal, or a
// doubt, or none of them if the pod is terminating.
func classify(err error) (*move.Refusal, doubt) {
	refuse := func(outcome schemas.Outcome, reason schemas.ReasonCode) (*move.Refusal, doubt) {
		return &move.Refusal{Outcome: outcome, Reason: reason, Message: err.Error()}, noDoubt
	}
	var status apierrors.APIStatus
	var network *net.OpError
	switch {
	case err == nil:
		return nil, noDoubt
	case errors.As(err, &network) && network.Op == "dial", apierrors.IsUnauthorized(err):
		return nil, undelivered
	case !errors.As(err, &status):
		return nil, doubtNoAnswer // the network, or our own deadline
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return refuse(schemas.Deferred, schemas.ReasonDisruptionBudget)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return refuse(schemas.Rejected, schemas.ReasonPodTerminating)
	}
	switch code := status.Status().Code; {
	case code == http.StatusNotFound:
		return refuse(schemas.Rejected, schemas.ReasonPodGone)
	case code == http.StatusConflict:
		return nil, doubtConflict
	case code == http.StatusTooManyRequests:
		return refuse(schemas.Deferred, schemas.ReasonThrottled)
	case code == http.StatusForbidden:
		return refuse(schemas.Failed, schemas.ReasonForbidden)
	case code == http.StatusInternalServerError:
		return nil, doubtInternal
	case code/100 == 4 && code != http.StatusRequestTimeout:
		return refuse(schemas.Failed, schemas.ReasonInvalid)
	}
	return nil, doubtNoAnswer
}
