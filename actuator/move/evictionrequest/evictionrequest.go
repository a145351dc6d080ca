// Package evictionrequest moves a pod by an EvictionRequest of lifecycle.k8s.io/v1alpha1 (KEP-4563). The request names a pod.
// Responders, which the pod lists, make it go, each in its own way; the last one calls the eviction API. This may take hours.
//
//	Start (evictionrequest.go) ──▶ create (request.go) ──▶ Working
//	Step ──▶ follow ──▶ judge (step.go) ──▶ silent, working, evicted or failed
//	     ──▶ cancel (step.go) ──▶ withdraw, remove (request.go) ──▶ Undone
//
// The package creates requests, reads their status, and removes them. It does not respond to any, and never changes an
// Eviction, which belongs to the controller. The pod owns its request, so the garbage collector removes a forgotten one.
//
// [Method.Available] reports whether the API server serves the API. Where it does not, or where no responder answers, the move
// is [move.Released], and the pod can be evicted.
package evictionrequest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// DefaultRequester is the requester of each request. All processes of one installation are one requester.
	DefaultRequester = "descheduler.rehome.dev/actuator"
	// DefaultWait is far more than a controller needs to notice a request.
	DefaultWait = time.Minute

	// delay is how often a request is read that a responder works on; responders report at most every 20 seconds.
	delay = 30 * time.Second
	// callTimeout bounds the calls of one step. client-go repeats some calls by itself for longer than that.
	callTimeout = 15 * time.Second

	// believed is how long an answer of discovery is used. API servers begin and cease to serve an alpha group at a restart.
	believed = 5 * time.Minute
	// doubted is how long the answer before is kept when there is none.
	doubted = 30 * time.Second
	// discoveryTimeout bounds one call of discovery.
	discoveryTimeout = 5 * time.Second

	version = lifecycle.GroupName + "/v1alpha1"
)

// Config configures a [Method].
type Config struct {
	// Client gets pods; discovers lifecycle.k8s.io; creates, gets, patches and deletes EvictionRequests; and lists Evictions.
	Client kubernetes.Interface
	// Requester is a name with a domain, such as example.org/name, as the key of a label. Empty: [DefaultRequester].
	// Requests that another requester made are not seen.
	Requester string
	// Wait is how long a request may stay without an answer. Each step calls it. nil, or 0: [DefaultWait].
	Wait func() time.Duration
	// DryRun: the API server judges each change and makes none.
	DryRun bool
	// Now is the clock of [Method.Available]. nil: time.Now.
	Now func() time.Time
}

// Method moves pods by EvictionRequests. It is a [move.Method].
type Method struct {
	cfg Config

	mu     sync.Mutex // Held while the API server is asked, so that it is asked once.
	served bool
	until  time.Time // How long served is believed.
}

var _ move.Method = (*Method)(nil)

// New makes a method.
func New(cfg Config) *Method {
	if cfg.Requester == "" {
		cfg.Requester = DefaultRequester
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Method{cfg: cfg}
}

// phase is how far a move is.
type phase string

const (
	planned   phase = "Planned"   // the request is not made, or its answer was lost
	requested phase = "Requested" // the request is made
)

// state is the part of the ledger record that the method reads.
type state struct {
	Pod   schemas.PodRef `json:"pod"`
	Phase phase          `json:"phase"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
}

// Start implements [move.Method]. It refuses pods that the API does not serve: pods of DaemonSets, mirror pods, pods of
// scheduling groups, and pods that have ended. It is not applicable when the API server does not serve the API.
func (m *Method) Start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	if !m.Available(ctx) {
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
	return move.Begun(p, schemas.MethodEvictionRequest, "an EvictionRequest was made", err), nil
}

// fresh is the state of a move that nothing was done for yet.
func fresh(pod *corev1.Pod, now time.Time) state {
	return state{Pod: schemas.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Phase: planned, Since: now}
}

// unfit describes a pod that the API does not serve. Empty: it does.
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

// wait is how long a request may stay without an answer.
func (m *Method) wait() time.Duration {
	if m.cfg.Wait != nil {
		if d := m.cfg.Wait(); d > 0 {
			return d
		}
	}
	return DefaultWait
}

// Available says whether the API server serves what this method needs. It asks the API server at most every five minutes. A
// missing right counts as no. Without an answer, the last one holds for 30 seconds more, or no if there was none. Only one call
// at a time asks; the others wait for it, at most five seconds.
func (m *Method) Available(ctx context.Context) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.cfg.Now()
	if now.Before(m.until) {
		return m.served
	}
	served, err := m.discover(ctx)
	switch {
	case err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		m.served, m.until = served, now.Add(believed)
	default:
		m.until = now.Add(doubted)
	}
	return m.served
}

// forget makes the next call of Available ask the API server.
func (m *Method) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = time.Time{}
}

func (m *Method) discover(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	client := discovery.ToDiscoveryInterfaceWithContext(m.cfg.Client.Discovery())
	list, err := client.ServerResourcesForGroupVersionWithContext(ctx, version)
	if err != nil {
		return false, err
	}
	missing := map[string][]string{"evictionrequests": {"create", "delete", "get", "patch"}, "evictions": {"list"}}
	for _, r := range list.APIResources {
		missing[r.Name] = slices.DeleteFunc(missing[r.Name], func(verb string) bool { return slices.Contains(r.Verbs, verb) })
	}
	return len(missing["evictionrequests"]) == 0 && len(missing["evictions"]) == 0, nil
}
