// Package background follows evictions that somebody else carries out, as KEP-1397 of kubernetes-sigs/descheduler has it:
// a webhook answers the eviction call with 429 and certain words, then moves the pod in its own way, such as by migrating
// the virtual machine in it, and the pod goes when that is done.
//
// The eviction call is not made here. Whoever makes it asks [Accepted] about the answer; if it is yes, a [Method] says
// what becomes of the pod. The webhook's owner says little: an annotation comes when the move begins, goes when it failed,
// and the rest is silence, for which there are two time-outs.
//
// What was taken over cannot be called off, because nothing in the KEP says how. A move that was given up here may still
// succeed later; asking for it again does no harm.
package background

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// DefaultBegin is what the peer takes. KubeVirt begins five migrations in a cluster at a time; the others wait for their
	// turn, without the annotation.
	DefaultBegin = 10 * time.Minute
	// DefaultFinish lets a large virtual machine arrive: KubeVirt gives a migration 800 s for each GiB of memory, and 150 s
	// in newer releases, so these six hours are 27 GiB or 144 GiB. It is there for the case that nobody is at work any more
	// and the annotation stays.
	DefaultFinish = 6 * time.Hour
)

// delay is how often a pod is read that nothing was seen of.
const delay = 10 * time.Second

// Config is what a [Method] needs.
type Config struct {
	// Client reads pods, and does nothing else.
	Client kubernetes.Interface
	// Begin is how long it may take from the eviction call until the pod is annotated with [EvictionInProgress]. 0:
	// [DefaultBegin].
	Begin time.Duration
	// Finish is how long it may take from the eviction call until the pod goes. 0: [DefaultFinish].
	Finish time.Duration
}

// Method follows evictions in the background. It is a [move.Method] that changes nothing in the cluster.
type Method struct{ cfg Config }

var _ move.Method = (*Method)(nil)

// New makes a method.
func New(cfg Config) *Method {
	if cfg.Begin == 0 {
		cfg.Begin = DefaultBegin
	}
	if cfg.Finish == 0 {
		cfg.Finish = DefaultFinish
	}
	return &Method{cfg}
}

// state is what the ledger stores of a move.
type state struct {
	Pod   schemas.PodRef `json:"pod"`
	Asked time.Time      `json:"asked"`
	// Begun: the pod was seen with [EvictionInProgress].
	Begun bool `json:"begun,omitempty"`
}

// Start implements [move.Method]. It takes now for the time of the eviction call, from which the time-outs count. It refuses
// nothing and does not call the API server.
func (m *Method) Start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	ref := schemas.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	text, err := json.Marshal(state{Pod: ref, Asked: now, Begun: InProgress(pod)})
	if err == nil {
		err = save(ctx, move.Record{Method: schemas.MethodBackground, State: text})
	}
	if err != nil {
		return move.Progress{}, fmt.Errorf("eviction of %s in the background: %w", ref, err)
	}
	return move.Progress{Method: schemas.MethodBackground, Delay: delay}, nil
}

// Cancel implements [move.Method]. It is the same as Step, since a webhook cannot be told to stop.
func (m *Method) Cancel(ctx context.Context, state move.State, now time.Time) (move.Progress, error) {
	return m.Step(ctx, state, now)
}

// Step looks at the pod. It is Done when there is nothing left to move, and Undone, deferred with
// [schemas.ReasonTakenBack], when the pod stays: the annotations say so, or a time-out is over.
func (m *Method) Step(ctx context.Context, text move.State, now time.Time) (move.Progress, error) {
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return move.Progress{}, fmt.Errorf("eviction in the background: decode the state: %w", err)
	}
	pod, over, err := move.Live(ctx, m.cfg.Client, s.Pod)
	if err != nil {
		return move.Progress{}, fmt.Errorf("eviction in the background: %w", err)
	}
	if pod == nil {
		return move.Progress{Stage: move.Done, Message: over}, nil
	}
	p := m.judge(s, pod, now)
	if p.Stage == move.Working && InProgress(pod) && !s.Begun {
		s.Begun = true
		if p.State, err = json.Marshal(s); err != nil {
			return move.Progress{}, fmt.Errorf("eviction of %s in the background: %w", s.Pod, err)
		}
	}
	return p, nil
}

// judge says where the move is by the pod, which is still there.
func (m *Method) judge(s state, pod *corev1.Pod, now time.Time) move.Progress {
	since := now.Sub(s.Asked)
	switch moved := InProgress(pod); {
	case !marked(pod):
		return undone("the pod does not have the annotation %s any more", RequestOnly)
	case s.Begun && !moved:
		return undone("the annotation %s was taken away; the pod stays", EvictionInProgress)
	case since >= m.cfg.Finish:
		return undone("the pod is still there %s after it was asked for", m.cfg.Finish)
	case !moved && since >= m.cfg.Begin:
		return undone("the pod does not have the annotation %s, %s after it was asked for", EvictionInProgress, m.cfg.Begin)
	case !moved:
		return move.Progress{Stage: move.Working, Message: "asked for; nobody has begun yet", Delay: delay}
	}
	return move.Progress{Stage: move.Working, Message: "in progress", Delay: delay}
}

func undone(format string, args ...any) move.Progress {
	message := fmt.Sprintf(format, args...)
	return move.Progress{Stage: move.Undone, Message: message,
		Refusal: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonTakenBack, Message: message}}
}
