package schemas

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ScopeType is the CloudEvents type of every scope.
const ScopeType = "dev.rehome.scope.v1"

// ScopeKind is the kind of object or group that a scope describes.
type ScopeKind string

// The kinds of scopes.
const (
	NodeKind ScopeKind = "node" // a [NodeScope]; the key is the node's name
	PodKind  ScopeKind = "pod"  // a [PodScope]; the key is NAMESPACE/NAME
	// A [WorkloadScope]; the key is NAMESPACE/KIND/NAME of the owner.
	WorkloadKind ScopeKind = "workload"
	// A [SpreadScope]; the key is NAMESPACE/TOPOLOGYKEY/HASH. The hash covers everything else that identifies the group.
	SpreadKind ScopeKind = "spread"
	// A [DomainScope]; the key is TOPOLOGYKEY=VALUE.
	DomainKind ScopeKind = "domain"
	UsageKind  ScopeKind = "usage" // a [UsageScope]; the key is the word cluster
	// A [RequestScope]; the key is SENDER/NAME.
	RequestKind ScopeKind = "request"
	// The kind in the intents of a maintenance, which have no scope; the key is the name of the maintenance.
	MaintenanceKind ScopeKind = "maintenance"
)

var _ = define[ScopeHead]("watcher, operator", nil, Prefix+".scope.STRATEGY.PROFILE.KIND.KEY")

// ScopeHead is the common part of all scopes. A scope has everything that one function needs to decide about one thing.
type ScopeHead struct {
	Kind ScopeKind `json:"kind"`
	// Key identifies the subject of the scope. It is unique within the kind.
	Key string `json:"key"`
	// Profile and Strategy are from the policy. An answer repeats them.
	Profile  string `json:"profile"`
	Strategy string `json:"strategy"`
	// Args are the strategy's arguments from the policy, as JSON. Absent means the defaults.
	Args json.RawMessage `json:"args,omitempty"`
	// Now is the time of the decision. A strategy uses no other clock.
	Now time.Time `json:"now"`
	// Since is when the oldest cause was observed.
	Since time.Time `json:"since"`
	// Causes are the causes of this evaluation, oldest first, at most [MaxCauses].
	Causes []Cause `json:"causes" listMax:"MaxCauses"`
}

// MaxCauses limits the causes in a scope, so a scope with thousands of deltas stays small. The oldest causes are kept.
const MaxCauses = 16

// CauseKind is the kind of a cause: a [DeltaKind], or one of the kinds below.
//
//schema:includes DeltaKind
type CauseKind string

// The causes that are not deltas.
const (
	CauseResync      CauseKind = "resync"       // everything is evaluated: at start, on a policy change, and at every resync
	CauseRetry       CauseKind = "retry"        // an intent was deferred, and its delay has passed or its blocker has changed
	CauseBudgetFreed CauseKind = "budget.freed" // a PodDisruptionBudget that blocked a pod allows a disruption again
	CauseDue         CauseKind = "due"          // an age or a minimum time was reached
	CauseFact        CauseKind = "fact"         // an object changed that protects pods or selects them, such as a namespace
	CauseRoom        CauseKind = "room"         // pods or storage changed, so other nodes may have room for a pod now, or no longer
	CauseRequest     CauseKind = "request"      // a user or a program requested it; the event is the request
)

// Cause is one reason for the evaluation of a scope.
type Cause struct {
	Kind CauseKind `json:"kind"`
	// Object is the object that changed. It is nil for a resync, and if a time was reached.
	Object *ObjectRef `json:"object,omitempty"`
	// Event is the ID of the delta, verdict, or request behind the cause, if there is one.
	Event string `json:"event,omitempty"`
	// Time is when the cause was observed.
	Time time.Time `json:"time"`
}

// Head returns h. It gives access to the head of any scope.
func (h ScopeHead) Head() ScopeHead { return h }

// EventType returns [ScopeType].
func (ScopeHead) EventType() string { return ScopeType }

// About returns KIND/KEY.
func (h ScopeHead) About() string { return string(h.Kind) + "/" + h.Key }

// Channel returns rehome.scope.STRATEGY.PROFILE.KIND.KEY.
func (h ScopeHead) Channel() string {
	return channel("scope", h.Strategy, h.Profile, string(h.Kind), h.Key)
}

// Describe returns KIND/KEY, and the strategy with the kinds of the causes.
func (h ScopeHead) Describe() (about, text string) {
	var kinds []string
	for _, c := range h.Causes {
		if kind := string(c.Kind); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return h.About(), h.Strategy + ": because of " + strings.Join(kinds, ", ")
}

// NodeScope is one node and all pods on it that have not ended.
type NodeScope struct {
	ScopeHead
	Node corev1.Node `json:"node"`
	Pods []ScopedPod `json:"pods"`
}

// PodScope is one pod on a node. The pod may have ended.
type PodScope struct {
	ScopeHead
	Pod ScopedPod `json:"pod"`
}

// ScopedPod is a pod, and the rules that protect it. Its objects are pruned: managed fields, and fields of spec and status that
// affect no scheduling decision, are removed.
type ScopedPod struct {
	Pod corev1.Pod `json:"pod"`
	// Protected lists the rules of the profile that protect the pod. If it is empty, the pod may move.
	Protected []Protection `json:"protected,omitempty"`
	// Elsewhere is where the replacement of the pod could run. It is nil unless the strategy needs it for this pod.
	Elsewhere *Elsewhere `json:"elsewhere,omitempty"`
}

// Elsewhere is the scheduler's view of the other nodes for the replacement of a pod.
type Elsewhere struct {
	// Fits reports that the scheduler would place the replacement on another node now. For a pod that cannot be judged, it
	// reports that the taints and labels of another node accept the pod; Node is the one that the pod prefers most.
	Fits bool `json:"fits"`
	// Node is the node on which the scheduler would place the replacement: the node with the best score. If several have it, the
	// current node of the pod wins, then the first name.
	Node string `json:"node,omitempty"`
	// Preference is the sum of the weights of the preferred node affinity terms that Node matches. Here is the same sum for the
	// current node of the pod.
	Preference int64 `json:"preference,omitempty" min:"-"`
	Here       int64 `json:"here,omitempty" min:"-"`
	// Why describes why the replacement fits on no other node.
	Why string `json:"why,omitempty" empty:"true"`
}

// Protection is a rule that protects a pod.
type Protection struct {
	// Rule names the rule, such as DaemonSetPods or SystemCriticalPods.
	Rule string `json:"rule"`
	// Detail describes what the rule found on the pod.
	Detail string `json:"detail" empty:"true"`
}

// Move returns an intent to move the pod off its node. The reason is a text.
func (p ScopedPod) Move(reason string) Intent {
	return Intent{
		Pod:  PodRef{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID},
		Node: p.Pod.Spec.NodeName, Ended: Ended(&p.Pod), Reason: reason,
	}
}

// Ended reports whether the pod has succeeded or failed, so its containers will not run again.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// GoneBy returns when a terminating pod should be gone: a minute after the end of its grace period. It returns zero for a pod
// that is not terminating.
func GoneBy(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp == nil || Ended(p) {
		return time.Time{}
	}
	return p.DeletionTimestamp.Add(time.Minute)
}

// Stuck reports whether a terminating pod should be gone already. Strategies do not rely on the capacity that it will free.
func Stuck(p *corev1.Pod, now time.Time) bool {
	by := GoneBy(p)
	return !by.IsZero() && !now.Before(by)
}

// Scope is a scope of any kind.
type Scope interface {
	Payload
	// Head returns what all scopes have in common.
	Head() ScopeHead
	// ScopedPods returns all pods of the scope in its order. An answer may name only these pods.
	ScopedPods() []ScopedPod
}

// DecodeScope decodes the data of e as a scope of the given kind. Its error wraps [ErrInvalid] if the data is not such a scope,
// or if this version does not know the kind.
func DecodeScope(e Event, kind ScopeKind) (Scope, error) {
	switch kind {
	case NodeKind:
		return decodeScope[NodeScope](e)
	case PodKind:
		return decodeScope[PodScope](e)
	case WorkloadKind:
		return decodeScope[WorkloadScope](e)
	case SpreadKind:
		return decodeScope[SpreadScope](e)
	case DomainKind:
		return decodeScope[DomainScope](e)
	case UsageKind:
		return decodeScope[UsageScope](e)
	}
	return nil, fmt.Errorf("event %s of type %s: kind is %q, which is not known: %w", e.ID, e.Type, kind, ErrInvalid)
}

func decodeScope[S Scope](e Event) (Scope, error) {
	s, err := Decode[S](e)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ScopedPods implements [Scope].
func (s NodeScope) ScopedPods() []ScopedPod { return s.Pods }

// ScopedPods implements [Scope].
func (s PodScope) ScopedPods() []ScopedPod { return []ScopedPod{s.Pod} }

// ScopedPods implements [Scope].
func (s WorkloadScope) ScopedPods() []ScopedPod { return s.Pods }

// ScopedPods implements [Scope].
func (s SpreadScope) ScopedPods() (pods []ScopedPod) {
	for _, d := range s.Domains {
		for _, p := range d.Pods {
			pods = append(pods, p.ScopedPod)
		}
	}
	return pods
}

// ScopedPods implements [Scope].
func (s DomainScope) ScopedPods() (pods []ScopedPod) {
	for _, p := range s.Pods {
		pods = append(pods, p.ScopedPod)
	}
	return pods
}

// ScopedPods implements [Scope].
func (s UsageScope) ScopedPods() (pods []ScopedPod) {
	for _, p := range s.Pods {
		pods = append(pods, p.ScopedPod)
	}
	return pods
}
