// Package eviction moves a pod by the eviction call.
//
//	Start (eviction.go) ──▶ the eviction call ──▶ after ──▶ classify (classify.go) ──▶ Done or a refusal
//	                                          │     │ a budget refuses ──▶ Blockers (budgets.go) names it
//	                                          │     └ no clear answer ──▶ lookAgain reads the pod
//	                                          └ 429, and a webhook takes the pod over ──▶ background.Start
//
// A dry run sends the call with dryRun=All. The API server judges each dry call as if there had been no other.
package eviction

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/move/background"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// Timeout bounds one eviction call. The API server tries for up to ten seconds to update a contended budget; a
	// shorter timeout would leave the result open.
	Timeout = 15 * time.Second
	// readTimeout bounds one read of a pod or of the budgets.
	readTimeout = 5 * time.Second
	// readAgain is the interval of reads of a pod after a call without a clear answer.
	readAgain = 500 * time.Millisecond
)

// Config configures a [Method]. All fields but DryRun are required.
type Config struct {
	// Client creates evictions, gets pods, and lists budgets.
	Client kubernetes.Interface
	// GracePeriodSeconds returns the grace period of the pod. nil means the pod's own one.
	GracePeriodSeconds func() *int64
	// Background follows a move that a webhook takes over.
	Background move.Method
	// DryRun means that the API server judges each call and evicts nothing.
	DryRun bool
	// Observe is called with the duration of each eviction call.
	Observe func(time.Duration)
	// Looked is called with the error, or nil, of each read that follows a call without a clear answer.
	Looked func(err error)
}

// Method moves pods by the eviction call. It is a [move.Starter]: the move has one step.
type Method struct{ cfg Config }

var _ move.Starter = (*Method)(nil)

// New returns a method.
func New(cfg Config) *Method { return &Method{cfg: cfg} }

// DryRun returns the method as a dry run.
func (m *Method) DryRun() *Method {
	dry := *m
	dry.cfg.DryRun = true
	return &dry
}

// Start implements [move.Starter]. The call has the UID and the resource version of the pod as preconditions, so it
// evicts only the pod whose protections were checked. Start returns [move.ErrChanged] if they do not hold and the pod
// still runs, and another error if the call certainly had no effect because the API server was unreachable or did not
// accept the credentials.
//
// If ctx ends, Start returns its error at once, and the call goes on for [Timeout] at most. An eviction that is
// interrupted inside the API server can use up the budget of the pod for two minutes without deleting the pod.
func (m *Method) Start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	if err := save(ctx, move.Record{Method: schemas.MethodEviction}); err != nil {
		return move.Progress{}, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	reading, cancel := context.WithTimeout(ctx, Timeout+readTimeout)
	defer cancel()
	options := metav1.DeleteOptions{
		GracePeriodSeconds: m.cfg.GracePeriodSeconds(), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	}
	if pod.ResourceVersion != "" {
		options.Preconditions.ResourceVersion = &pod.ResourceVersion
	}
	if m.cfg.DryRun {
		options.DryRun = []string{metav1.DryRunAll} // for admission webhooks
	}
	answer := make(chan error, 1)
	go func() {
		calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		began := time.Now()
		err := Request(m.cfg.Client, pod.Namespace, pod.Name, options).Do(calling).Error()
		m.cfg.Observe(time.Since(began))
		answer <- err
	}()
	var err error
	select {
	case err = <-answer:
	case <-ctx.Done():
		return move.Progress{}, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, ctx.Err())
	}
	if errors.Is(err, move.ErrNotLeading) {
		return move.Progress{}, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if !m.cfg.DryRun && background.Accepted(pod, err) {
		p, saveErr := m.cfg.Background.Start(ctx, pod, now, save)
		p.Message = err.Error()
		return p, saveErr
	}
	return m.after(reading, pod, err)
}

// after returns the consequence of err, the answer to the eviction call.
func (m *Method) after(ctx context.Context, pod *corev1.Pod, err error) (move.Progress, error) {
	refusal, d := classify(err)
	switch {
	case refusal != nil && refusal.Reason == schemas.ReasonDisruptionBudget:
		m.nameBudgets(ctx, pod, refusal)
	case d == doubtInternal:
		refusal = m.overlapping(ctx, pod)
	}
	switch {
	case refusal != nil:
		return refused(refusal), nil
	case d == noDoubt:
		return done(pod, ""), nil
	case d == undelivered:
		return m.afterNothing(ctx, pod, err)
	}
	return m.lookAgain(ctx, pod, d, err)
}

// afterNothing returns the error of a call that had no effect. If the answer was 401 but the API server accepts the
// credentials, the answer is from a webhook, and only this pod is refused.
func (m *Method) afterNothing(ctx context.Context, pod *corev1.Pod, err error) (move.Progress, error) {
	if apierrors.IsUnauthorized(err) {
		if _, readErr := m.read(ctx, pod); readErr == nil {
			return refused(move.Deferred(schemas.ReasonAPIUnavailable, "%v", err)), nil
		}
	}
	return move.Progress{}, fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// Request returns the request of one eviction. It does not retry: client-go would wait inside it for as long as the API
// server demands, while the checks of the pod become stale.
func Request(client kubernetes.Interface, namespace, name string, options metav1.DeleteOptions) *rest.Request {
	return client.CoreV1().RESTClient().Post().MaxRetries(0).
		Namespace(namespace).Resource("pods").Name(name).SubResource("eviction").
		VersionedParams(&metav1.CreateOptions{DryRun: options.DryRun}, scheme.ParameterCodec).
		Body(&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, DeleteOptions: &options})
}

// lookAgain reads the pod after a call without a clear answer, for as long as there is time: an API server that failed
// during the call may be back in a moment. After doubtNoAnswer it reads the pod until it is leaving, or until [Timeout] has
// passed since the call began: the API server may still carry out the eviction.
func (m *Method) lookAgain(ctx context.Context, pod *corev1.Pod, d doubt, err error) (move.Progress, error) {
	deadline, _ := ctx.Deadline()
	var live *corev1.Pod
	var readErr error
	pollErr := wait.PollUntilContextCancel(ctx, readAgain, true, func(ctx context.Context) (bool, error) {
		mayEvict := d == doubtNoAnswer && !m.cfg.DryRun && time.Until(deadline) > readTimeout
		live, readErr = m.read(ctx, pod)
		if !errors.Is(ctx.Err(), context.Canceled) {
			m.cfg.Looked(readErr)
		}
		return readErr == nil && (!mayEvict || leaving(pod, live) != nil) || apierrors.IsForbidden(readErr), nil
	})
	if pollErr == nil && readErr == nil {
		return afterDoubt(pod, live, d, m.cfg.DryRun, err)
	}
	return refused(move.Deferred(schemas.ReasonAPIUnavailable, "%v", err)), nil
}

// read reads the pod of that name from the storage, or returns nil if there is none.
func (m *Method) read(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	live, err := m.cfg.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return live, nil
}

// afterDoubt decides by the live pod after a call without a clear answer. If the pod was not leaving before the call
// and is leaving now, the call evicted it, unless the call was refused. An API server that fails during the call but
// reads the pod works; then the error is about this eviction.
func afterDoubt(pod, live *corev1.Pod, d doubt, dryRun bool, err error) (move.Progress, error) {
	refusal := leaving(pod, live)
	switch {
	case refusal == nil && d == doubtConflict:
		return move.Progress{}, fmt.Errorf("evict pod %s/%s: %w: %w", pod.Namespace, pod.Name, move.ErrChanged, err)
	case refusal == nil && d == doubtInternal:
		return refused(move.Deferred(schemas.ReasonInternalError, "%v", err)), nil
	case refusal == nil:
		return refused(move.Deferred(schemas.ReasonAPIUnavailable, "%v", err)), nil
	case d == doubtConflict || dryRun:
		return refused(refusal), nil
	}
	return done(pod, "; the answer was lost: "+err.Error()), nil
}

// leaving returns the reason why there is nothing left to evict, or nil. live is the current pod of that name, or nil.
func leaving(pod, live *corev1.Pod) *move.Refusal {
	r := move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodGone, Message: "the pod is gone"}
	switch {
	case live == nil:
	case live.UID != pod.UID:
		r.Message += "; another one of its name has UID " + string(live.UID)
	case live.DeletionTimestamp != nil:
		r.Reason = schemas.ReasonPodTerminating
		r.Message = "the pod is being deleted, until " + live.DeletionTimestamp.UTC().Format(time.RFC3339)
	default:
		return nil
	}
	return &r
}

func refused(r *move.Refusal) move.Progress { return move.Refused(schemas.MethodEviction, r) }

func done(pod *corev1.Pod, more string) move.Progress {
	return move.Progress{Stage: move.Done, Method: schemas.MethodEviction, Message: "evicted from " + pod.Spec.NodeName + more}
}

// nameBudgets adds the budgets that block a pod to the refusal of its eviction, if it can list them.
func (m *Method) nameBudgets(ctx context.Context, pod *corev1.Pod, r *move.Refusal) {
	if budgets, err := m.budgets(ctx, pod); err == nil {
		r.Blockers, r.Message = Blockers(budgets, r.Message)
	}
}

// overlapping returns the refusal of a pod that more than one budget matches, or nil. The API server never evicts such
// pods.
func (m *Method) overlapping(ctx context.Context, pod *corev1.Pod) *move.Refusal {
	budgets, err := m.budgets(ctx, pod)
	if err != nil || len(budgets) < 2 {
		return nil
	}
	names, blockers := make([]string, len(budgets)), make([]schemas.ObjectRef, len(budgets))
	for i, b := range budgets {
		names[i], blockers[i] = b.Namespace+"/"+b.Name, ref(b)
	}
	return &move.Refusal{Outcome: schemas.Failed, Reason: schemas.ReasonInvalid, Blockers: blockers,
		Message: "more than one poddisruptionbudget matches the pod: " + strings.Join(names, ", ")}
}

// budgets returns the budgets that match the pod, by name.
func (m *Method) budgets(ctx context.Context, pod *corev1.Pod) ([]policyv1.PodDisruptionBudget, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all, err := m.cfg.Client.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return Matching(pod, all.Items), nil
}
