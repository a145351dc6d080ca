// Package background follows an eviction that a webhook takes over, as in KEP-1397 of kubernetes-sigs/descheduler. The
// webhook answers the eviction call with 429 and certain words, and moves the pod in its own way, for example by
// migrating its virtual machine. The pod goes when that is done.
//
//	eviction.Start ──▶ Accepted ──▶ Start ──▶ Step ──▶ judge
//
// The webhook reports little: it sets an annotation when the move begins and removes it when the move fails. Two
// timeouts cover the other cases. The KEP has no way to cancel such a move. A move that was given up here may still
// succeed later; another eviction call is harmless.
package background

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// Begin is the longest time from the eviction call until the pod has the annotation [EvictionInProgress], as in
	// kubernetes-sigs/descheduler. KubeVirt begins five migrations in a cluster at a time; the others wait without the
	// annotation.
	Begin = 10 * time.Minute
	// Finish is the longest time from the eviction call until the pod is gone. It allows for a large virtual machine:
	// KubeVirt allows 800 s per GiB of memory for a migration, or 150 s in newer releases, so these six hours are 27
	// GiB or 144 GiB. It also covers an annotation that remains after the end of a migration.
	Finish = 6 * time.Hour
)

// delay is the interval of reads of a pod without a change.
const delay = 10 * time.Second

// Method follows evictions in the background. It is a [move.Method] that changes nothing in the cluster.
type Method struct {
	client kubernetes.Interface // reads pods, and does nothing else
}

var _ move.Method = (*Method)(nil)

// New returns a method that reads pods with the client.
func New(client kubernetes.Interface) *Method { return &Method{client} }

// state is the part of the ledger record that the method reads.
type state struct {
	Pod   schemas.PodRef `json:"pod"`
	Asked time.Time      `json:"asked"`
	// Begun means that the pod had the annotation [EvictionInProgress].
	Begun bool `json:"begun,omitempty"`
}

// Start implements [move.Method]. The timeouts count from now, the time of the eviction call. It refuses nothing and
// does not call the API server.
func (m *Method) Start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	ref := schemas.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	text := move.Encode(state{Pod: ref, Asked: now, Begun: InProgress(pod)})
	if err := save(ctx, move.Record{Method: schemas.MethodBackground, State: text}); err != nil {
		return move.Progress{}, fmt.Errorf("eviction of %s in the background: %w", ref, err)
	}
	return move.Progress{Method: schemas.MethodBackground, Delay: delay}, nil
}

// Step implements [move.Method] by reading the pod. The move is Done if there is nothing left to move. It is Undone,
// deferred with [schemas.ReasonTakenBack], if the annotations show that the pod stays, or after a timeout. It cannot be
// canceled, because the webhook cannot be stopped.
func (m *Method) Step(ctx context.Context, text move.State, _ bool, now time.Time) (move.Progress, error) {
	s, err := move.Decode[state](text)
	if err != nil {
		return move.Progress{}, err
	}
	pod, _, err := move.Live(ctx, m.client, s.Pod)
	if err != nil {
		return move.Progress{}, fmt.Errorf("eviction in the background: %w", err)
	}
	if pod == nil {
		return move.Progress{Stage: move.Done}, nil
	}
	p := m.judge(s, pod, now)
	if p.Stage == move.Working && InProgress(pod) && !s.Begun {
		s.Begun = true
		p.State = move.Encode(s)
	}
	return p, nil
}

// judge determines the state of the move from the pod, which still exists.
func (m *Method) judge(s state, pod *corev1.Pod, now time.Time) move.Progress {
	since := now.Sub(s.Asked)
	switch moved := InProgress(pod); {
	case !Marked(pod):
		return undone("the pod does not have the annotation %s any more", RequestOnly)
	case s.Begun && !moved:
		return undone("the annotation %s was taken away; the pod stays", EvictionInProgress)
	case since >= Finish:
		return undone("the pod is still there %s after the eviction call", Finish)
	case !moved && since >= Begin:
		return undone("the pod does not have the annotation %s, %s after the eviction call", EvictionInProgress, Begin)
	}
	return move.Progress{Stage: move.Working, Delay: delay}
}

func undone(format string, args ...any) move.Progress {
	return move.NotMoved(move.Deferred(schemas.ReasonTakenBack, format, args...))
}

// The annotations of KEP-1397. Their values mean nothing.
const (
	// RequestOnly marks a pod whose evictions a webhook takes over. The owner of the pod sets it.
	RequestOnly = "descheduler.alpha.kubernetes.io/request-evict-only"
	// EvictionInProgress marks such a pod while it is being moved. The webhook sets it, and removes it if the move
	// fails.
	EvictionInProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"
)

// triggered is part of the message of a webhook that takes over an eviction. The answer has no code or cause of its
// own, so the KEP defines these words. Webhooks add others: KubeVirt names the virtual machine.
const triggered = "Eviction triggered evacuation"

// Accepted reports whether a webhook took over the eviction of the pod. err is the answer to the eviction call, or
// wraps it. The pod needs the annotation [RequestOnly], and the answer must be 429 with the words of KEP-1397. A
// refusal by a budget never counts.
func Accepted(pod *corev1.Pod, err error) bool {
	var answer apierrors.APIStatus
	if !Marked(pod) || !errors.As(err, &answer) || apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		return false
	}
	status := answer.Status()
	return status.Code == http.StatusTooManyRequests && strings.Contains(status.Message, triggered)
}

// InProgress reports whether a webhook is moving the pod already. Another eviction call would get the same answer.
func InProgress(pod *corev1.Pod) bool {
	_, moved := pod.Annotations[EvictionInProgress]
	return moved && Marked(pod)
}

// Marked reports whether a webhook takes over the evictions of the pod.
func Marked(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[RequestOnly]
	return ok
}
