package schemas

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ScopeType is the CloudEvents type of every scope.
const ScopeType = "dev.rehome.scope.v1"

// ScopeKind says what a scope is about.
type ScopeKind string

// The kinds of scopes.
const (
	NodeKind ScopeKind = "node" // a [NodeScope]; the key is the node's name
	PodKind  ScopeKind = "pod"  // a [PodScope]; the key is NAMESPACE/NAME
	// A [WorkloadScope]; the key is NAMESPACE/KIND/NAME of the owner.
	WorkloadKind ScopeKind = "workload"
	// A [SpreadScope]; the key is NAMESPACE/TOPOLOGYKEY/HASH, the last of what else tells the group from others.
	SpreadKind ScopeKind = "spread"
	// A [DomainScope]; the key is TOPOLOGYKEY=VALUE.
	DomainKind ScopeKind = "domain"
	UsageKind  ScopeKind = "usage" // a [UsageScope]; the key is the word cluster
	// A [RequestScope]; the key is SENDER/NAME.
	RequestKind ScopeKind = "request"
	// No scope is published: the intents of a maintenance have this kind, and the key is its name.
	MaintenanceKind ScopeKind = "maintenance"
)

var _ = define[ScopeHead]("watcher, operator", Prefix+".scope.STRATEGY.PROFILE.KIND.KEY")

// ScopeHead is the common part of all scopes. A scope has everything that one function needs to decide about one thing.
type ScopeHead struct {
	Kind ScopeKind `json:"kind"`
	// Key names what the scope is about, unique within the kind.
	Key string `json:"key"`
	// Profile and Strategy are from the policy. Copy them to the answer.
	Profile  string `json:"profile"`
	Strategy string `json:"strategy"`
	// Args are the strategy's arguments from the policy, as JSON. Absent: all defaults.
	Args json.RawMessage `json:"args,omitempty"`
	// Now is the time that the strategy decides at; it must not ask another clock.
	Now time.Time `json:"now"`
	// Since is when the oldest of the causes was observed.
	Since time.Time `json:"since"`
	// Causes are what led to this evaluation, oldest first, at most [MaxCauses].
	Causes []Cause `json:"causes" listMax:"MaxCauses"`
}

// MaxCauses bounds the causes that one scope lists, so that a scope woken by thousands of deltas stays small. The
// oldest are kept.
const MaxCauses = 16

// CauseKind says why something is evaluated: a [DeltaKind], or one of the kinds below.
//
//schema:includes DeltaKind
type CauseKind string

// The causes that are not deltas.
const (
	CauseResync      CauseKind = "resync"       // everything is evaluated: at start, on a policy change and every resync interval
	CauseRetry       CauseKind = "retry"        // an intent was deferred, and its delay or what held it is over
	CauseBudgetFreed CauseKind = "budget.freed" // a PodDisruptionBudget that held a pod allows a disruption again
	CauseDue         CauseKind = "due"          // an age or a minimum time was reached
	CauseFact        CauseKind = "fact"         // an object changed that the answer rests on, and no delta tells of it
	CauseRoom        CauseKind = "room"         // pods came or went, or storage changed, so that other nodes may take a pod or not
	CauseRequest     CauseKind = "request"      // somebody asked for it; the event is the request
)

// Cause is one reason why a scope is evaluated now.
type Cause struct {
	Kind CauseKind `json:"kind"`
	// Object is what changed or is concerned; nil for a resync and a time that was reached.
	Object *ObjectRef `json:"object,omitempty"`
	// Event is the ID of the delta, verdict or request behind the cause, if there is one.
	Event string `json:"event,omitempty"`
	// Time is when it was observed.
	Time time.Time `json:"time"`
}

// Head returns h, so that code can ask any scope for it.
func (h ScopeHead) Head() ScopeHead { return h }

// EventType returns [ScopeType].
func (ScopeHead) EventType() string { return ScopeType }

// About is KIND/KEY.
func (h ScopeHead) About() string { return string(h.Kind) + "/" + h.Key }

// Channel is rehome.scope.STRATEGY.PROFILE.KIND.KEY.
func (h ScopeHead) Channel() string {
	return channel("scope", h.Strategy, h.Profile, string(h.Kind), h.Key)
}

// NodeScope is one node with all pods on it that have not ended.
type NodeScope struct {
	ScopeHead
	Node corev1.Node `json:"node"`
	Pods []ScopedPod `json:"pods"`
}

// PodScope is one pod that is bound to a node, whether or not it has ended.
type PodScope struct {
	ScopeHead
	Pod ScopedPod `json:"pod"`
}

// ScopedPod is a pod with what forbids to move it. The objects are pruned: managed fields, and parts of spec and
// status that no scheduling decision rests on, are left out.
type ScopedPod struct {
	Pod corev1.Pod `json:"pod"`
	// Protected lists what forbids to move the pod, by the rules of its profile. Empty: it may be moved.
	Protected []Protection `json:"protected,omitempty"`
	// Elsewhere is where its replacement could run, in the scope of a strategy that asks for it, for the pods that it asks
	// about. nil: not asked.
	Elsewhere *Elsewhere `json:"elsewhere,omitempty"`
}

// Elsewhere is what the rules of the scheduler say about the other nodes for the replacement of a pod.
type Elsewhere struct {
	// Fits: it would be placed on another node now.
	Fits bool `json:"fits"`
	// Node is the node where the scheduler is predicted to place it: the node with the best score, and of several the node that the
	// pod runs on, or else the first by name.
	Node string `json:"node,omitempty"`
	// Preference is the sum of the weights of the preferred node affinity terms that Node matches, and Here that of the
	// node that the pod runs on.
	Preference int64 `json:"preference,omitempty" min:"-"`
	Here       int64 `json:"here,omitempty" min:"-"`
	// Why says in words why it fits nowhere else.
	Why string `json:"why,omitempty" empty:"true"`
}

// Protection is one rule that forbids to move a pod.
type Protection struct {
	// Rule names the rule, such as DaemonSetPods or SystemCriticalPods.
	Rule string `json:"rule"`
	// Detail says in words what was found on the pod.
	Detail string `json:"detail" empty:"true"`
}

// Move is the intent to move the pod from where it is, for a reason in words.
func (p ScopedPod) Move(reason string) Intent {
	return Intent{
		Pod:  PodRef{Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: p.Pod.UID},
		Node: p.Pod.Spec.NodeName, Ended: Ended(&p.Pod), Reason: reason,
	}
}

// Ended says whether the pod has succeeded or failed: its containers will not run again.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// GoneBy is when a terminating pod should be gone: a minute after the end of its grace period. Zero: the pod is not terminating.
func GoneBy(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp == nil || Ended(p) {
		return time.Time{}
	}
	return p.DeletionTimestamp.Add(time.Minute)
}

// Stuck says whether a terminating pod should be gone already, and is not. Strategies do not rely on
// the capacity that it will free.
func Stuck(p *corev1.Pod, now time.Time) bool {
	by := GoneBy(p)
	return !by.IsZero() && !now.Before(by)
}

// Scope is a scope of any kind.
type Scope interface {
	Payload
	// Head returns what all scopes have in common.
	Head() ScopeHead
	// ScopedPods are all pods that the scope lists, in its order: those that an answer to it may name.
	ScopedPods() []ScopedPod
}

// DecodeScope reads the data of e as a scope of a kind, as its head says. It fails with an error that wraps [ErrInvalid] when e is
// no such scope, or when this version does not know the kind.
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
