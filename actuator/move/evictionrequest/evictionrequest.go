// Package evictionrequest moves a pod by an EvictionRequest of lifecycle.k8s.io/v1alpha1 (KEP-4563). The request names
// a pod. The responders that the pod lists remove it, each in its own way; the last one calls the eviction API. This
// may take hours.
//
//	Start (evictionrequest.go) ──▶ create (request.go) ──▶ Working
//	Step ──▶ follow ──▶ judge (step.go) ──▶ silent, working, evicted or failed
//	     ──▶ cancel (step.go) ──▶ withdraw, remove (request.go) ──▶ Undone
//
// The package creates requests, reads their status, and removes them. It does not respond to requests, and never
// changes an Eviction, which belongs to the controller. The pod owns its request, so the garbage collector removes a
// forgotten one.
//
// If the API server does not serve the API, or no responder answers, the pod can be evicted instead.
package evictionrequest

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// DefaultRequester is the requester of each request. All processes of one installation are one requester.
	DefaultRequester = "descheduler.rehome.dev/actuator"
	// DefaultWait is far more time than a controller needs to notice a request.
	DefaultWait = time.Minute

	// delay is the interval of reads of a request that a responder works on. Responders report at most every 20
	// seconds.
	delay = 30 * time.Second
	// callTimeout bounds the calls of one step. client-go repeats some calls for longer than that.
	callTimeout = 15 * time.Second

	// absentFor is how long no request is tried after the API server did not serve them. An API server starts or stops
	// serving an alpha group only at a restart.
	absentFor = 5 * time.Minute

	version = lifecycle.GroupName + "/v1alpha1"
)

// Config configures a [Method].
type Config struct {
	// Client gets pods; creates, gets, patches and deletes EvictionRequests; and lists Evictions.
	Client kubernetes.Interface
	// Requester is a name with a domain, such as example.org/name, in the format of a label key. Empty means
	// [DefaultRequester]. Requests of other requesters are ignored.
	Requester string
	// Wait returns how long a request may remain without an answer. Each step calls it. nil, or 0, means [DefaultWait].
	Wait func() time.Duration
	// DryRun means that the API server judges each change and makes none.
	DryRun bool
}

// Method moves pods by EvictionRequests. It is a [move.Method].
type Method struct {
	cfg Config

	mu          sync.Mutex
	absentUntil time.Time
}

var _ move.Method = (*Method)(nil)

// New returns a method.
func New(cfg Config) *Method {
	if cfg.Requester == "" {
		cfg.Requester = DefaultRequester
	}
	return &Method{cfg: cfg}
}

// phase is the progress of a move.
type phase string

const (
	planned   phase = move.Planned // the request was not made, or the answer was lost
	requested phase = "Requested"  // the request was made
	withdrawn phase = "Withdrawn"  // the request was withdrawn and removed, for the reason in Why
)

// state is the part of the ledger record that the method reads.
type state struct {
	Pod   schemas.PodRef `json:"pod"`
	Phase phase          `json:"phase"`
	// Since is the start of the phase.
	Since time.Time `json:"since"`
	Why   string    `json:"why,omitempty"`
}

// Start implements [move.Method]. It refuses pods that the API does not support: pods of DaemonSets, mirror pods, pods
// of scheduling groups, and pods that have ended. It is not applicable if the API server does not serve the API.
func (m *Method) Start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	if m.absent(now) {
		return move.Progress{Stage: move.NotApplicable}, nil
	}
	if why := unfit(pod); why != "" {
		why = "no EvictionRequest for " + why
		return released(&move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonInvalid, Message: why}), nil
	}
	s := fresh(pod, now)
	text := move.Encode(s)
	if err := save(ctx, move.Record{Method: schemas.MethodEvictionRequest, State: text}); err != nil {
		return move.Progress{}, fmt.Errorf("eviction request for pod %s: %w", s.Pod, err)
	}
	p, err := m.Step(ctx, text, false, now)
	if p.Stage == move.Released && m.absent(now) {
		return move.Progress{Stage: move.NotApplicable}, nil
	}
	return move.Begun(p, schemas.MethodEvictionRequest, "an EvictionRequest was made", err)
}

// fresh returns the state of a new move.
func fresh(pod *corev1.Pod, now time.Time) state {
	return state{Pod: schemas.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Phase: planned, Since: now}
}

// unfit returns the reason why the API does not support a pod, or "".
func unfit(pod *corev1.Pod) string {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return "a mirror pod: its kubelet would keep it"
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return "a pod of a DaemonSet: no responder would answer"
	}
	if pod.Spec.SchedulingGroup != nil {
		return "a pod of a scheduling group: the API does not serve them"
	}
	if schemas.Ended(pod) {
		return "a pod that has ended: no responder would answer"
	}
	return ""
}

// wait returns how long a request may remain without an answer.
func (m *Method) wait() time.Duration {
	if m.cfg.Wait != nil {
		if d := m.cfg.Wait(); d > 0 {
			return d
		}
	}
	return DefaultWait
}

// absent reports whether the API server did not serve the API a short time ago.
func (m *Method) absent(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Before(m.absentUntil)
}

func (m *Method) noteAbsent(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absentUntil = now.Add(absentFor)
}
