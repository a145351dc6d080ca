package schemas

import (
	"fmt"
	"time"
)

// VerdictType is the CloudEvents type of a [Verdict].
const VerdictType = "dev.rehome.verdict.v1"

// Outcome is the result of an intent.
type Outcome string

// The outcomes. Every intent ends in exactly one outcome other than [Settled]. A deferred pod gets a new intent when it is
// evaluated again. [Settled] follows the first three outcomes when the move ends.
const (
	Evicted   Outcome = "evicted"   // the API server accepted the eviction
	Restarted Outcome = "restarted" // the workload creates a replacement, and the pod goes when that is available
	Requested Outcome = "requested" // another program has agreed to move the pod
	Deferred  Outcome = "deferred"  // not now: the pod is evaluated again when the blocker changes, or after a delay
	Rejected  Outcome = "rejected"  // the pod has changed since the decision, or must not be moved
	Withdrawn Outcome = "withdrawn" // a newer evaluation does not list the pod
	Expired   Outcome = "expired"   // the intent expired before it was executed
	Failed    Outcome = "failed"    // the API server refused permanently
	Settled   Outcome = "settled"   // the move has ended; the settlement names the replacement
)

// Outcomes returns every outcome.
func Outcomes() []Outcome {
	return []Outcome{Evicted, Restarted, Requested, Deferred, Rejected, Withdrawn, Expired, Failed, Settled}
}

// Moves reports whether the outcome begins a move, which a verdict with the outcome [Settled] ends.
func (o Outcome) Moves() bool { return o == Evicted || o == Restarted || o == Requested }

// Method is how a pod is moved.
type Method string

// The methods.
const (
	MethodEviction        Method = "eviction"            // the eviction API
	MethodRestart         Method = "rollout-restart"     // a changed pod template makes its Deployment roll out
	MethodSurge           Method = "surge"               // its Deployment has one more replica until the replacement is available
	MethodBackground      Method = "background-eviction" // a webhook took over the eviction, as in KEP-1397
	MethodEvictionRequest Method = "eviction-request"    // an EvictionRequest of lifecycle.k8s.io
)

// ReasonCode is the reason of an outcome.
//
//schema:grouped
type ReasonCode string

var _ = define[Verdict]("actuator, operator", nil, Prefix+".verdict.OUTCOME.STRATEGY.NAMESPACE.POD")

// Verdict is the result of an intent. There is one for each final intent. If the intent began a move, a second verdict with the
// outcome [Settled] follows when the move ends; the first verdict is its cause. If an earlier intent of the same scope lists the
// pod and has no verdict yet, both intents share one verdict.
type Verdict struct {
	Outcome Outcome    `json:"outcome"`
	Reason  ReasonCode `json:"reason" by:"outcome"`
	// Message is the reason in words, with the names of objects.
	Message string `json:"message" empty:"true"`
	// Profile, Strategy, Scope, and Intent are copied from the intents message.
	Profile  string   `json:"profile"`
	Strategy string   `json:"strategy"`
	Scope    ScopeRef `json:"scope"`
	Intent   Intent   `json:"intent"`
	// Method is how the pod was moved. It is set if Outcome begins or ends a move.
	Method Method `json:"method,omitempty"`
	// Instead is the preferred method, if it was not possible. nil means that Method is the preferred one.
	Instead *Instead `json:"instead,omitempty"`
	// Workload is the controller of the pod, or the Deployment of its ReplicaSet. nil means that there is none, or that it is not
	// known.
	Workload *ObjectRef `json:"workload,omitempty"`
	// Settlement is the end of the move. It is nil unless Outcome is [Settled].
	Settlement *Settlement `json:"settlement,omitempty" only:"outcome=settled"`
	// Blockers are the objects that block a deferred pod.
	Blockers []ObjectRef `json:"blockers,omitempty"`
	// Again is when the blocker of a deferred pod can be gone at the earliest. Zero means unknown.
	Again time.Time `json:"again,omitzero"`
	// DryRun reports that nothing was changed. Outcome is the expected result.
	DryRun bool `json:"dryRun,omitempty"`
}

// Instead is a method that was not possible, and the reason.
type Instead struct {
	Method  Method     `json:"method"`
	Reason  ReasonCode `json:"reason" groups:"deferred rejected"`
	Message string     `json:"message" empty:"true"`
}

// Settlement is the end of a move.
type Settlement struct {
	// Replacement is the pod that replaced the moved one. nil means that there is none.
	Replacement *PodRef `json:"replacement,omitempty"`
	// Node is the node of the replacement. Empty means that it has none yet.
	Node string `json:"node,omitempty"`
	// Seconds is the time from the acceptance of the move until the replacement was ready, or until the actuator stopped
	// waiting for it.
	Seconds float64 `json:"seconds"`
}

// EventType returns [VerdictType].
func (Verdict) EventType() string { return VerdictType }

// About returns the path of the pod.
func (v Verdict) About() string {
	return "namespaces/" + v.Intent.Pod.Namespace + "/pods/" + v.Intent.Pod.Name
}

// Channel returns rehome.verdict.OUTCOME.STRATEGY.NAMESPACE.POD.
func (v Verdict) Channel() string {
	return channel("verdict", string(v.Outcome), v.Strategy, v.Intent.Pod.Namespace, v.Intent.Pod.Name)
}

// Describe returns pod/NAMESPACE/NAME, and the outcome with its reason.
func (v Verdict) Describe() (about, text string) {
	about, text = "pod/"+v.Intent.Pod.String(), string(v.Outcome)
	if v.DryRun {
		text += " (dry run)"
	}
	switch {
	case v.Outcome.Moves():
		return about, fmt.Sprintf("%s from %s%s: %s", text, v.Intent.Node, v.DescribeMethod(), v.Intent.Reason)
	case v.Outcome == Settled && v.Settlement != nil:
		return about, text + " " + v.describeSettlement()
	}
	return about, fmt.Sprintf("%s: %s: %s", text, v.Reason, v.Message)
}

// DescribeMethod returns the method of a move and the preferred one, such as " by rollout-restart", or "" for a plain eviction.
func (v Verdict) DescribeMethod() (text string) {
	if v.Method != "" && v.Method != MethodEviction {
		text = " by " + string(v.Method)
	}
	if v.Instead != nil {
		text += fmt.Sprintf(" instead of %s (%s)", v.Instead.Method, v.Instead.Reason)
	}
	return text
}

// describeSettlement describes the node of the replacement and the duration.
func (v Verdict) describeSettlement() string {
	s := v.Settlement
	where := ""
	if s.Node != "" {
		where = " on " + s.Node
	}
	text := fmt.Sprintf("%s %s%s after %.1fs", v.Reason, v.Intent.Pod, where, s.Seconds)
	if s.Replacement == nil {
		return text + ": " + v.Message
	}
	return text + ": replacement " + s.Replacement.Name
}
