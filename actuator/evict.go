package actuator

import (
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/rehome-dev/rehome/actuator/background"
	"github.com/rehome-dev/rehome/schemas"
)

// callTimeout bounds one eviction call. The API server tries for up to ten seconds to write a budget that others write
// too; cutting that short would leave open what came of it.
const callTimeout = 15 * time.Second

// reply is what the API server's answer to an eviction means.
type reply int

const (
	replyAccepted  reply = iota // the pod is being deleted
	replyGone                   // there is no such pod
	replyConflict               // a precondition did not hold, or somebody else wrote at the same time
	replyBudget                 // a PodDisruptionBudget does not allow it now
	replyThrottled              // come back later
	replyEnding                 // the namespace is being deleted
	replyForbidden              // a right is missing
	replyInvalid                // the request is wrong and will stay wrong
	replyInternal               // 500: broken, or more than one budget
	replyNone                   // no answer, or one that leaves open what happened
)

// classify reads the API server's answer by its code, reason and causes, never by its text.
func classify(err error) reply {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return replyAccepted
	case !errors.As(err, &status):
		return replyNone // the network, or our own deadline
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return replyBudget
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return replyEnding
	}
	switch code := status.Status().Code; {
	case code == http.StatusNotFound:
		return replyGone
	case code == http.StatusConflict:
		return replyConflict
	case code == http.StatusTooManyRequests:
		return replyThrottled
	case code == http.StatusForbidden:
		return replyForbidden
	case code == http.StatusUnauthorized, code == http.StatusRequestTimeout:
		return replyNone // credentials are renewed, timeouts pass
	case code == http.StatusInternalServerError:
		return replyInternal
	case code >= 400 && code < 500:
		return replyInvalid
	}
	return replyNone
}

// evict asks the API server to evict the pod of s, once, and makes the verdict of its answer. The caller's context
// should not be one that a shutdown ends.
func (a *Actuator) evict(ctx context.Context, s Situation, note noteFunc) schemas.Verdict {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+lookTimeout)
	defer cancel()
	pretended := a.pretended(s.Open)
	if pretended {
		if v, used := a.usedUp(ctx, s); used {
			return v
		}
	}
	err := a.call(ctx, s.Open.Intent.Pod, pretended)
	if err != nil && pretended {
		a.virtual.giveBack(s.Pod.UID)
	}
	if v, taken := a.takenOver(ctx, s, err, note); taken {
		return v
	}
	object := func(outcome schemas.Outcome, reason schemas.ReasonCode) schemas.Verdict {
		return a.verdict(s.Open, Objection{outcome, reason, err.Error()})
	}
	switch r := classify(err); r {
	case replyAccepted:
		v := a.verdict(s.Open, Objection{schemas.Evicted, schemas.ReasonEvictionAccepted, "evicted from " + s.Open.Intent.Node})
		v.Method = schemas.MethodEviction
		return v
	case replyGone:
		return object(schemas.Rejected, schemas.ReasonPodGone)
	case replyEnding:
		return object(schemas.Rejected, schemas.ReasonPodTerminating)
	case replyThrottled:
		return object(schemas.Deferred, schemas.ReasonThrottled)
	case replyForbidden:
		return object(schemas.Failed, schemas.ReasonForbidden)
	case replyInvalid:
		return object(schemas.Failed, schemas.ReasonInvalid)
	case replyBudget:
		return a.heldByBudget(ctx, s, err)
	case replyInternal:
		if v, overlap := a.overlapping(ctx, s); overlap {
			return v
		}
		return a.lookAgain(ctx, s, r, err)
	default:
		return a.lookAgain(ctx, s, r, err)
	}
}

// call makes the one call that changes the cluster, or only pretends to. It does not retry: client-go would wait inside of it for as long
// as the API server asks, while the pod's situation grows old.
func (a *Actuator) call(ctx context.Context, pod schemas.PodRef, pretended bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{
			GracePeriodSeconds: a.policy.Load().GracePeriodSeconds,
			Preconditions:      &metav1.Preconditions{UID: &pod.UID},
		},
	}
	var options metav1.CreateOptions
	if pretended {
		options.DryRun = []string{metav1.DryRunAll} // seen by admission webhooks
		eviction.DeleteOptions.DryRun = options.DryRun
	}
	began := time.Now()
	err := a.cfg.Client.CoreV1().RESTClient().Post().MaxRetries(0).
		Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("eviction").
		VersionedParams(&options, scheme.ParameterCodec).Body(eviction).Do(ctx).Error()
	a.metrics.call.Observe(time.Since(began).Seconds())
	return err
}

// lookAgain makes a verdict when the answer leaves open what happened: a pod that was not going before the call and is
// going now was evicted by it. An API server that went away during the call may be back in a moment, so it tries for as
// long as there is time.
func (a *Actuator) lookAgain(ctx context.Context, s Situation, r reply, err error) schemas.Verdict {
	later := Objection{schemas.Deferred, schemas.ReasonAPIUnavailable, err.Error()}
	var pod *corev1.Pod
	lookErr := persist(ctx, func() (err error) {
		pod, err = a.look(ctx, s.Open.Intent.Pod, latest)
		return err
	}, apierrors.IsForbidden, func(error) {})
	if lookErr != nil {
		return a.verdict(s.Open, later)
	}
	v := a.verdict(s.Open, afterDoubt(s, pod, r == replyConflict || a.pretended(s.Open), later))
	if v.Outcome == schemas.Evicted {
		v.Method = schemas.MethodEviction
	}
	return v
}

// takenOver is the verdict on a pod whose eviction a webhook has taken over, as KEP-1397 describes, and whether it has.
func (a *Actuator) takenOver(ctx context.Context, s Situation, err error, note noteFunc) (schemas.Verdict, bool) {
	if a.background == nil || s.Open.asked().DryRun || !background.Accepted(s.Pod, err) {
		return schemas.Verdict{}, false
	}
	state, refusal, planErr := a.background.Plan(ctx, s.Pod, s.Now)
	if planErr != nil || refusal != nil {
		return schemas.Verdict{}, false
	}
	r := record{Open: s.Open, Method: schemas.MethodBackground, State: state}
	if err := note(ctx, r); err != nil {
		return schemas.Verdict{}, false
	}
	v := a.verdict(s.Open, Objection{schemas.Requested, schemas.ReasonBackgroundAccepted, err.Error()})
	v.Method = schemas.MethodBackground
	return v, true
}

// afterDoubt decides by the pod as it is after a call with an open end. refused: whatever became of the pod, the call
// did not do it.
func afterDoubt(s Situation, pod *corev1.Pod, refused bool, later Objection) Objection {
	s.Pod = pod
	objection, going := ask([]Gate{exists, notTerminating}, s)
	switch {
	case !going:
		return later
	case refused:
		return objection
	default:
		return Objection{schemas.Evicted, schemas.ReasonEvictionAccepted,
			"evicted from " + s.Open.Intent.Node + "; the answer was lost: " + later.Message}
	}
}
