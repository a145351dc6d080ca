// Package evictionrequest has pods moved by an EvictionRequest of lifecycle.k8s.io/v1alpha1 (KEP-4563): it says which pod
// should go, and responders that the pod names make it go, each in its way; the last of them calls the eviction API. That
// may take hours.
//
// The package makes requests, looks at what a controller writes about them, and removes them. It does not respond to any,
// and never touches an Eviction, which is the controller's. Everything that is made here has an owner: the pod. So a
// request that is forgotten does not outlive its pod, though nothing else in the alpha API removes requests.
//
// The API is there when [Method.Available] says so. Where it is not, or where nobody answers, a move ends as
// [move.Released], and the pod can be evicted by the eviction API as ever.
package evictionrequest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// DefaultRequester is who asks, in the words of the API. All processes of one installation are one requester.
	DefaultRequester = "descheduler.rehome.dev/actuator"
	// DefaultWait is far more than a controller needs to notice a request, and not long for a pod that waits for nothing.
	DefaultWait = time.Minute
)

const (
	// look is how often a request is looked at that somebody works on; responders report at most every 20 seconds.
	look = 30 * time.Second
	// callTimeout bounds the calls of one step. client-go repeats some calls by itself for longer than that.
	callTimeout = 15 * time.Second
)

// Config is what a [Method] needs.
type Config struct {
	// Client gets pods; discovers lifecycle.k8s.io; creates, gets, patches and deletes EvictionRequests; and lists Evictions.
	Client kubernetes.Interface
	// Requester is a name with a domain, such as example.org/name, as the key of a label. Empty: [DefaultRequester].
	// Requests that another requester made are not seen.
	Requester string
	// Wait is how long a request may stay without an answer. It is asked at each step. nil, or 0: [DefaultWait].
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

// state is what is remembered of a move.
type state struct {
	Pod schemas.PodRef `json:"pod"`
	// Made: the request was made.
	Made bool `json:"made,omitempty"`
	// Since is when the request was made; before, when the move was planned.
	Since time.Time `json:"since"`
}

// Plan refuses pods that the API does not serve: those of DaemonSets and mirror pods, which the responder that calls the
// eviction API leaves alone, those of scheduling groups, and those that have ended, of which nothing is left to be prepared;
// all of them when the API server does not have the API.
func (m *Method) Plan(ctx context.Context, pod *corev1.Pod, now time.Time) (move.State, *move.Refusal, error) {
	if why := unfit(pod); why != "" {
		return nil, &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonInvalid, Message: why}, nil
	}
	if !m.Available(ctx) {
		return nil, unavailable("the API server does not serve EvictionRequests of " + version), nil
	}
	s, err := state{Pod: schemas.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Since: now}.encode()
	return s, nil, err
}

// unfit says in words why the API does not serve the pod. Empty: it does.
func unfit(pod *corev1.Pod) string {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return "no EvictionRequest for a mirror pod: its kubelet would keep it"
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return "no EvictionRequest for a pod of a DaemonSet: nobody would respond"
	}
	if pod.Spec.SchedulingGroup != nil {
		return "no EvictionRequest for a pod of a scheduling group: the API does not serve them"
	}
	if schemas.Ended(pod) {
		return "no EvictionRequest for a pod that has ended: nobody would respond"
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

func (s state) encode() (move.State, error) {
	out, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("eviction request for %s: what to remember: %w", s.Pod, err)
	}
	return out, nil
}

func decode(remembered move.State) (state, error) {
	var s state
	if err := json.Unmarshal(remembered, &s); err != nil {
		return state{}, fmt.Errorf("eviction request: what was remembered: %w", err)
	}
	return s, nil
}
