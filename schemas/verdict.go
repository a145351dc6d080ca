package schemas

import "time"

// VerdictType is the CloudEvents type of a [Verdict].
const VerdictType = "dev.rehome.verdict.v1"

// Outcome says what became of an intent.
type Outcome string

// The outcomes. Each is final for its intent; a pod that was deferred gets a new intent when it is evaluated again.
const (
	Evicted   Outcome = "evicted"   // the API server accepted the eviction
	Deferred  Outcome = "deferred"  // not now: the pod is evaluated again when what held it changes, or after a delay
	Rejected  Outcome = "rejected"  // the pod is not what the intent was about any more, or must not be moved
	Withdrawn Outcome = "withdrawn" // a newer evaluation no longer wants the pod moved
	Expired   Outcome = "expired"   // the intent's time was over before its turn came
	Failed    Outcome = "failed"    // the API server refused for a reason that will not pass by itself
)

// Outcomes lists every outcome.
func Outcomes() []Outcome { return []Outcome{Evicted, Deferred, Rejected, Withdrawn, Expired, Failed} }

// ReasonCode says for machines why the outcome is what it is.
type ReasonCode string

// The reason codes, by the outcome they belong to.
const (
	ReasonEvictionAccepted ReasonCode = "EvictionAccepted" // evicted

	ReasonDisruptionBudget ReasonCode = "DisruptionBudget" // deferred: a PodDisruptionBudget, named in Blockers
	ReasonThrottled        ReasonCode = "Throttled"        // deferred: the API server asked to come back later
	ReasonAPIUnavailable   ReasonCode = "APIUnavailable"   // deferred: the API server could not be asked
	ReasonLimitNode        ReasonCode = "LimitNode"        // deferred: as many pods of its node were moved as the policy allows
	ReasonLimitNamespace   ReasonCode = "LimitNamespace"   // deferred: the same of its namespace
	ReasonLimitTotal       ReasonCode = "LimitTotal"       // deferred: the same of the cluster

	ReasonPodGone        ReasonCode = "PodGone"        // rejected: no pod of that name and UID
	ReasonPodTerminating ReasonCode = "PodTerminating" // rejected: the pod is being deleted already
	ReasonPodMoved       ReasonCode = "PodMoved"       // rejected: the pod runs on another node
	ReasonPodEnded       ReasonCode = "PodEnded"       // rejected: the pod has succeeded or failed by itself
	ReasonProtected      ReasonCode = "Protected"      // rejected: a rule of the profile protects it, named in Message
	ReasonProfileUnknown ReasonCode = "ProfileUnknown" // rejected: the policy has no such profile or strategy

	ReasonSuperseded ReasonCode = "Superseded" // withdrawn: a newer evaluation does not list the pod
	ReasonExpired    ReasonCode = "Expired"    // expired

	ReasonForbidden ReasonCode = "Forbidden" // failed: the actuator lacks a right
	ReasonInvalid   ReasonCode = "Invalid"   // failed: the API server calls the request invalid, or several budgets overlap
)

// Verdict says what became of one intent. There is one for each intent, with two exceptions when the actuator is killed or
// another takes over while an answer is worked on: an intent that was carried out can get a second verdict, rejected
// because the pod is gone, of which the first counts; and one whose answer was replaced at that moment can get none.
type Verdict struct {
	Outcome  Outcome    `json:"outcome"`
	Reason   ReasonCode `json:"reason"`
	Message  string     `json:"message"`
	Profile  string     `json:"profile"`
	Strategy string     `json:"strategy"`
	Scope    ScopeRef   `json:"scope"`
	Intent   Intent     `json:"intent"`
	// Blockers are the objects that held a deferred pod.
	Blockers []ObjectRef `json:"blockers,omitempty"`
	// Again is when what held a deferred pod is over at the earliest, where that is known. Zero: it is not.
	Again time.Time `json:"again,omitzero"`
	// DryRun: the outcome is what would have happened; nothing was changed.
	DryRun bool `json:"dryRun,omitempty"`
}

// EventType returns [VerdictType].
func (Verdict) EventType() string { return VerdictType }

// About is the pod's path.
func (v Verdict) About() string {
	return "namespaces/" + v.Intent.Pod.Namespace + "/pods/" + v.Intent.Pod.Name
}

// Channel is rehome.verdict.OUTCOME.STRATEGY.NAMESPACE.POD.
func (v Verdict) Channel() string {
	return channel("verdict."+string(v.Outcome), v.Strategy, v.Intent.Pod.Namespace, v.Intent.Pod.Name)
}
