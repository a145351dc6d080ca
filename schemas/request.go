package schemas

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// RequestType is the CloudEvents type of a [Request].
const RequestType = "dev.rehome.request.v1"

// RequestStrategy is the strategy in the scopes, answers, and verdicts of requests.
const RequestStrategy = "Request"

// Limits of a request.
const (
	MaxRequestPods   = 1000 // pods of the target
	MaxRequestReason = 500  // characters of the reason
	MaxRequester     = 200  // characters of the requester
	MaxOverride      = 50   // rules to override
)

// RequestAction is the action of a request.
type RequestAction string

// The actions.
const (
	ActionDeschedule RequestAction = "deschedule" // move the pods of the target off their nodes
	ActionEvaluate   RequestAction = "evaluate"   // evaluate all scopes of one strategy or of all strategies
	ActionCancel     RequestAction = "cancel"     // cancel an earlier request of the same sender
	ActionMaintain   RequestAction = "maintain"   // bring a node to a stage of its maintenance
)

// RequestActions returns every action.
func RequestActions() []RequestAction {
	return []RequestAction{ActionDeschedule, ActionEvaluate, ActionCancel, ActionMaintain}
}

// RequestMethod is the method for the pods of a request.
type RequestMethod string

// The methods that a request can have.
const (
	UseAuto    RequestMethod = "auto"    // the method of the policy; the default
	UseEvict   RequestMethod = "evict"   // eviction, even if the policy restarts the workload
	UseRestart RequestMethod = "restart" // replacement first if possible
)

// RequestMethods returns every method that a request can have.
func RequestMethods() []RequestMethod { return []RequestMethod{UseAuto, UseEvict, UseRestart} }

var _ = define[Request]("sender, api", nil, Prefix+".request.SENDER.NAME")

// Request is a request of a user or a program. The NATS subject has the sender: the right to publish on it is the identity. A
// request with the same sender and name is the same request.
type Request struct {
	// Sender and Name are 1 to 63 of a-z, 0-9 and -, and equal to the words of the NATS subject.
	Sender string        `json:"sender" pattern:"^[a-z0-9-]{1,63}$"`
	Name   string        `json:"name" pattern:"^[a-z0-9-]{1,63}$"`
	Action RequestAction `json:"action"`
	// Target selects the pods. It is nil unless Action is [ActionDeschedule].
	Target *Target `json:"target,omitempty" requires:"action=deschedule"`
	// Strategy is the strategy to evaluate with [ActionEvaluate]. Empty means all.
	Strategy string `json:"strategy,omitempty"`
	// Profile is the profile whose protections apply, or whose strategies [ActionEvaluate] evaluates. Empty means the first
	// profile of the policy, or all profiles with ActionEvaluate.
	Profile string `json:"profile,omitempty"`
	// Request is the name of the request to cancel with [ActionCancel].
	Request string `json:"request,omitempty" requires:"action=cancel" pattern:"^[a-z0-9-]{1,63}$"`
	// Maintenance is the node and its stage. It is nil unless Action is [ActionMaintain].
	Maintenance *NodeRequest `json:"maintenance,omitempty" requires:"action=maintain"`
	// Reason is a text for verdicts and events.
	Reason string `json:"reason" textMax:"MaxRequestReason"`
	// Requester names the person behind the request. Over HTTP, it is the user, who may read the request and its receipts.
	Requester string        `json:"requester,omitempty" textMax:"MaxRequester"`
	Method    RequestMethod `json:"method,omitempty"`
	// Deadline is when Rehome stops working on the request, at most 24 hours after the bus has stored it. Zero means one hour,
	// or 24 hours with [ActionMaintain]. A maintenance that has begun continues after the deadline.
	Deadline time.Time `json:"deadline,omitzero"`
	// DryRun changes nothing. The verdicts report the expected results.
	DryRun bool `json:"dryRun,omitempty"`
	// Override lists protection rules to ignore, by their name in [Protection].
	Override []string `json:"override,omitempty" listMax:"MaxOverride"`
}

// Target selects pods. Exactly one field is set.
type Target struct {
	Pods     []PodTarget     `json:"pods,omitempty" listMax:"MaxRequestPods"`
	Workload *WorkloadTarget `json:"workload,omitempty"`
	Selector *SelectorTarget `json:"selector,omitempty"`
	// Node selects all pods of the node.
	Node string `json:"node,omitempty"`
}

// NodeRequest is the desired stage of a node. Exactly one of Node and ProviderID is set.
type NodeRequest struct {
	// Node is the name of the node.
	Node string `json:"node,omitempty" textMax:"253"`
	// ProviderID is the spec.providerID of the node, or the part after its last slash, which is the instance ID of most clouds.
	ProviderID string `json:"providerID,omitempty" textMax:"1024"`
	// Stage is [v1alpha1.Cordon], [v1alpha1.Drain], or [v1alpha1.Complete]. A node never goes back to an earlier stage.
	Stage v1alpha1.Stage `json:"stage"`
	// Deadline is the longest time for the drain, counted from the cordon, and OnDeadline is what happens then. nil keeps the
	// deadline of an earlier request, if there is one.
	Deadline   *metav1.Duration    `json:"deadline,omitempty" textMax:"20"`
	OnDeadline v1alpha1.OnDeadline `json:"onDeadline,omitempty"`
	// Force disables guards that would refuse the maintenance.
	Force []v1alpha1.Guard `json:"force,omitempty" listMax:"3"`
}

// PodTarget selects one pod.
type PodTarget struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID requires this UID. Empty selects the pod that has the name when the request is accepted.
	UID types.UID `json:"uid,omitempty"`
}

// WorkloadTarget selects the pods that an object controls, directly or like a Deployment through its ReplicaSets.
type WorkloadTarget struct {
	// Kind is the Kubernetes kind, such as Deployment or StatefulSet.
	Kind      string `json:"kind" pattern:"^[A-Z][A-Za-z0-9]*$"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// SelectorTarget selects pods by their labels.
type SelectorTarget struct {
	// Namespace is the namespace of the pods. Empty means all namespaces that the sender may use.
	Namespace string `json:"namespace,omitempty"`
	// Labels is a label selector in the syntax of kubectl, such as app=cart,tier!=test. It must not be empty.
	Labels string `json:"labels"`
}

// IsRequestWord reports whether s is a valid sender or name of a request: 1 to 63 of a-z, 0-9 and -.
func IsRequestWord(s string) bool {
	plain := func(c rune) bool { return c == '-' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	return len(s) >= 1 && len(s) <= 63 && strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0
}

// EventType returns [RequestType].
func (Request) EventType() string { return RequestType }

// About returns requests/SENDER/NAME.
func (r Request) About() string { return "requests/" + r.Sender + "/" + r.Name }

// Channel returns rehome.request.SENDER.NAME.
func (r Request) Channel() string { return channel("request", r.Sender, r.Name) }

// Describe returns SENDER/NAME, and the action with its target, reason, and requester.
func (r Request) Describe() (about, text string) {
	text = string(r.Action)
	switch t := r.Target; {
	case r.Action == ActionCancel:
		text += " " + r.Sender + "/" + r.Request
	case r.Maintenance != nil:
		text += r.Maintenance.describe()
	case r.Action == ActionEvaluate && r.Strategy != "":
		text += " " + r.Strategy
	case t == nil:
	case t.Workload != nil:
		text += fmt.Sprintf(" %s %s/%s", t.Workload.Kind, t.Workload.Namespace, t.Workload.Name)
	case t.Selector != nil:
		text += " " + strings.TrimPrefix(t.Selector.Namespace+"/", "/") + t.Selector.Labels
	case t.Node != "":
		text += " node " + t.Node
	default:
		text += fmt.Sprintf(" %d pods", len(t.Pods))
	}
	if r.DryRun {
		text += " (dry run)"
	}
	text += ": " + r.Reason
	if r.Requester != "" {
		text += ", by " + r.Requester
	}
	return r.Sender + "/" + r.Name, text
}

func (n NodeRequest) describe() string {
	node := n.Node
	if node == "" {
		node = "with provider ID " + n.ProviderID
	}
	text := fmt.Sprintf(" node %s: %s", node, n.Stage)
	if n.Deadline != nil {
		text += " within " + n.Deadline.Duration.String()
	}
	return text
}

// Asked returns the options for the intents of the request, or nil if it has only defaults.
func (r Request) Asked() *Asked {
	if (r.Method == "" || r.Method == UseAuto) && !r.DryRun && len(r.Override) == 0 {
		return nil
	}
	return &Asked{Method: r.Method, DryRun: r.DryRun, Override: r.Override}
}

// RequestScope is an accepted request with the current state of its remaining pods.
type RequestScope struct {
	ScopeHead
	Request Request `json:"request"`
	// Pods are in the order of the receipt. Their protections do not include overridden rules.
	Pods []ScopedPod `json:"pods"`
}
