package eviction

import (
	"errors"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// answer is the meaning of the API server's answer to an eviction.
type answer int

const (
	answerAccepted  answer = iota // the pod is terminating
	answerGone                    // there is no such pod
	answerConflict                // a precondition did not hold, or another client wrote at the same time
	answerBudget                  // a PodDisruptionBudget does not allow it now
	answerThrottled               // come back later
	answerEnding                  // the namespace is being deleted
	answerForbidden               // a right is missing
	answerInvalid                 // the request is invalid and will remain so
	answerRefused                 // not judged: there is no connection, or the credentials must be renewed
	answerInternal                // 500: broken, or more than one budget
	answerNone                    // no answer, or one without a clear result
)

// classify reads the API server's answer by its code, reason, and causes, never by its text.
func classify(err error) answer {
	var status apierrors.APIStatus
	var network *net.OpError
	switch {
	case err == nil:
		return answerAccepted
	case errors.As(err, &network) && network.Op == "dial":
		return answerRefused
	case !errors.As(err, &status):
		return answerNone // the network, or our own deadline
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return answerBudget
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return answerEnding
	}
	switch code := status.Status().Code; {
	case code == http.StatusNotFound:
		return answerGone
	case code == http.StatusConflict:
		return answerConflict
	case code == http.StatusTooManyRequests:
		return answerThrottled
	case code == http.StatusForbidden:
		return answerForbidden
	case code == http.StatusUnauthorized:
		return answerRefused
	case code == http.StatusRequestTimeout:
		return answerNone
	case code == http.StatusInternalServerError:
		return answerInternal
	case code >= 400 && code < 500:
		return answerInvalid
	}
	return answerNone
}
