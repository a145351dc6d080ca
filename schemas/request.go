package schemas

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// RequestType is the CloudEvents type of a [Request].
const RequestType = "dev.rehome.request.v1"

// RequestStrategy stands where a strategy stands, in the scopes, answers and verdicts of requests.
const RequestStrategy = "Request"

// What a request may hold at most.
const (
	MaxRequestPods   = 1000 // pods, named or found
	MaxRequestReason = 500  // characters of the reason
	MaxRequester     = 200  // characters of who asks
	MaxOverride      = 50   // rules that are not to hold
)

// RequestAction says what is asked for.
type RequestAction string

// The actions.
const (
	ActionDeschedule RequestAction = "deschedule" // move the pods of the target from where they are
	ActionEvaluate   RequestAction = "evaluate"   // ask a strategy, or all of them, about everything now
	ActionCancel     RequestAction = "cancel"     // give up an earlier request of the same sender
	ActionMaintain   RequestAction = "maintain"   // bring a node to a stage of its maintenance
)

// RequestActions lists every action.
func RequestActions() []RequestAction {
	return []RequestAction{ActionDeschedule, ActionEvaluate, ActionCancel, ActionMaintain}
}

// RequestMethod says how the pods of a request are to be moved.
type RequestMethod string

// The methods that can be asked for.
const (
	UseAuto    RequestMethod = "auto"    // as the policy says; the same as none
	UseEvict   RequestMethod = "evict"   // by eviction, also where the policy would restart the workload
	UseRestart RequestMethod = "restart" // replacement first where that is possible
)

// RequestMethods lists every method that can be asked for.
func RequestMethods() []RequestMethod { return []RequestMethod{UseAuto, UseEvict, UseRestart} }

// Request is what a person or a program asks Rehome to do. Who asks is the sender in the NATS subject: the right to publish
// there is the identity. A request of the same sender and name is the same request.
type Request struct {
	// Sender and Name are 1 to 63 of a-z, 0-9 and -, and the same as in the NATS subject.
	Sender string        `json:"sender"`
	Name   string        `json:"name"`
	Action RequestAction `json:"action"`
	// Target is which pods are meant. nil unless Action is [ActionDeschedule].
	Target *Target `json:"target,omitempty"`
	// Strategy is the one that is to be asked, with [ActionEvaluate]. Empty: all of them.
	Strategy string `json:"strategy,omitempty"`
	// Profile is the one whose protections hold, or with [ActionEvaluate] whose strategies are asked. Empty: the first of the
	// policy, or with ActionEvaluate all.
	Profile string `json:"profile,omitempty"`
	// Request is the name of the request to give up, with [ActionCancel].
	Request string `json:"request,omitempty"`
	// Maintenance is what is wanted of a node. nil unless Action is [ActionMaintain].
	Maintenance *NodeRequest `json:"maintenance,omitempty"`
	// Reason says in words why, for people.
	Reason string `json:"reason"`
	// Requester says in words who asks, for people. Nothing rests on it.
	Requester string        `json:"requester,omitempty"`
	Method    RequestMethod `json:"method,omitempty"`
	// Deadline is when what is left of the request is given up. Zero: one hour after the bus stored it, with [ActionMaintain] 24
	// hours. It is at most 24 hours after that. What a maintenance has begun goes on after it.
	Deadline time.Time `json:"deadline,omitzero"`
	// DryRun: nothing is changed; the verdicts say what would have happened.
	DryRun bool `json:"dryRun,omitempty"`
	// Override lists the rules of protection that are not to hold, as [Protection] names them.
	Override []string `json:"override,omitempty"`
}

// Target is which pods are meant. Exactly one field is set.
type Target struct {
	Pods     []PodTarget     `json:"pods,omitempty"`
	Workload *WorkloadTarget `json:"workload,omitempty"`
	Selector *SelectorTarget `json:"selector,omitempty"`
	// Node is the name of a node, all pods of which are meant.
	Node string `json:"node,omitempty"`
}

// NodeRequest is what is wanted of one node. Exactly one of Node and ProviderID is set.
type NodeRequest struct {
	// Node is the name of the node.
	Node string `json:"node,omitempty"`
	// ProviderID is the spec.providerID of the node, or what follows the last slash in it: as the clouds name machines.
	ProviderID string `json:"providerID,omitempty"`
	// Stage is [v1alpha1.Cordon], [v1alpha1.Drain] or [v1alpha1.Complete]. A node only goes through them forwards.
	Stage v1alpha1.Stage `json:"stage"`
	// Deadline is how long the drain may take from the cordon on, and OnDeadline what happens then. nil: as long as it takes, or
	// as an earlier request said.
	Deadline   *metav1.Duration    `json:"deadline,omitempty"`
	OnDeadline v1alpha1.OnDeadline `json:"onDeadline,omitempty"`
	// Force lifts guards that would refuse the maintenance.
	Force []v1alpha1.Guard `json:"force,omitempty"`
}

// PodTarget is one pod.
type PodTarget struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID tells the pod from a later one of its name. Empty: whichever has the name when the request is accepted.
	UID types.UID `json:"uid,omitempty"`
}

// WorkloadTarget is the pods that one object controls, directly or as a Deployment does through its ReplicaSets.
type WorkloadTarget struct {
	// Kind is the Kubernetes kind, such as Deployment or StatefulSet.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// SelectorTarget is the pods whose labels match.
type SelectorTarget struct {
	// Namespace is where they are. Empty: wherever the sender may.
	Namespace string `json:"namespace,omitempty"`
	// Labels is a label selector in the syntax of kubectl, such as app=cart,tier!=test. It is never empty.
	Labels string `json:"labels"`
}

// IsRequestWord says whether s can be the sender or the name of a request: 1 to 63 of a-z, 0-9 and -.
func IsRequestWord(s string) bool {
	plain := func(c rune) bool { return c == '-' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	return len(s) >= 1 && len(s) <= 63 && strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0
}

// EventType returns [RequestType].
func (Request) EventType() string { return RequestType }

// About is requests/SENDER/NAME.
func (r Request) About() string { return "requests/" + r.Sender + "/" + r.Name }

// Channel is rehome.request.SENDER.NAME.
func (r Request) Channel() string { return channel("request", r.Sender, r.Name) }

// Asked is what the intents of the request say about how its pods are to be moved. nil: nothing but the move.
func (r Request) Asked() *Asked {
	if (r.Method == "" || r.Method == UseAuto) && !r.DryRun && len(r.Override) == 0 {
		return nil
	}
	return &Asked{Method: r.Method, DryRun: r.DryRun, Override: r.Override}
}

// RequestScope is one accepted request with those of its pods that are still there, as they are now.
type RequestScope struct {
	ScopeHead
	Request Request `json:"request"`
	// Pods are in the order of the receipt. Rules that the request overrides are left out of what protects them.
	Pods []ScopedPod `json:"pods"`
}
