package schemas

import "time"

// VerdictType is the CloudEvents type of a [Verdict].
const VerdictType = "dev.rehome.verdict.v1"

// Outcome says what became of an intent.
type Outcome string

// The outcomes. Every intent ends in exactly one of them other than [Settled]; a pod that was deferred gets a new intent
// when it is evaluated again. Settled follows the first three, once the move is over.
const (
	Evicted   Outcome = "evicted"   // the API server accepted the eviction
	Restarted Outcome = "restarted" // the pod's workload makes a replacement first, and the pod goes when that is available
	Requested Outcome = "requested" // somebody else was asked to move the pod, and said that it will
	Deferred  Outcome = "deferred"  // not now: the pod is evaluated again when what held it changes, or after a delay
	Rejected  Outcome = "rejected"  // the pod is not what the intent was about any more, or must not be moved
	Withdrawn Outcome = "withdrawn" // a newer evaluation no longer wants the pod moved
	Expired   Outcome = "expired"   // the intent's time was over before its turn came
	Failed    Outcome = "failed"    // the API server refused for a reason that will not pass by itself
	Settled   Outcome = "settled"   // what came of a move that was begun: where the replacement runs
)

// Outcomes lists every outcome.
func Outcomes() []Outcome {
	return []Outcome{Evicted, Restarted, Requested, Deferred, Rejected, Withdrawn, Expired, Failed, Settled}
}

// Moves says whether the outcome is the beginning of a move, which a verdict with the outcome [Settled] ends.
func (o Outcome) Moves() bool { return o == Evicted || o == Restarted || o == Requested }

// Method says how a pod is moved.
type Method string

// The methods.
const (
	MethodEviction        Method = "eviction"            // the eviction API
	MethodRestart         Method = "rollout-restart"     // the template of its Deployment is touched, which rolls out anew
	MethodSurge           Method = "surge"               // its Deployment gets one replica more until the replacement is available
	MethodBackground      Method = "background-eviction" // a webhook took over the eviction, as in KEP-1397
	MethodEvictionRequest Method = "eviction-request"    // an EvictionRequest of lifecycle.k8s.io
)

// ReasonCode says for machines why the outcome is what it is.
type ReasonCode string

// The reason codes, by the outcome they belong to.
const (
	ReasonEvictionAccepted ReasonCode = "EvictionAccepted" // evicted

	ReasonRestartAccepted ReasonCode = "RestartAccepted" // restarted: the template of the Deployment was touched
	ReasonSurgeAccepted   ReasonCode = "SurgeAccepted"   // restarted: the Deployment has one replica more

	ReasonBackgroundAccepted      ReasonCode = "BackgroundAccepted"      // requested: a webhook moves the pod
	ReasonEvictionRequestAccepted ReasonCode = "EvictionRequestAccepted" // requested: an EvictionRequest is worked on

	ReasonDisruptionBudget ReasonCode = "DisruptionBudget" // deferred: a PodDisruptionBudget, named in Blockers
	ReasonThrottled        ReasonCode = "Throttled"        // deferred: the API server asked to come back later
	ReasonAPIUnavailable   ReasonCode = "APIUnavailable"   // deferred: the API server could not be asked
	ReasonLimitNode        ReasonCode = "LimitNode"        // deferred: as many pods of its node were moved as the policy allows
	ReasonLimitNamespace   ReasonCode = "LimitNamespace"   // deferred: the same of its namespace
	ReasonLimitTotal       ReasonCode = "LimitTotal"       // deferred: the same of the cluster

	ReasonMovingNode          ReasonCode = "MovingNode"          // deferred: as many pods of its node are on the move as allowed
	ReasonMovingNamespace     ReasonCode = "MovingNamespace"     // deferred: the same of its namespace
	ReasonMovingWorkload      ReasonCode = "MovingWorkload"      // deferred: the same of its workload
	ReasonMovingTotal         ReasonCode = "MovingTotal"         // deferred: the same of the cluster
	ReasonWorkloadUnavailable ReasonCode = "WorkloadUnavailable" // deferred: its workload, of no budget, has too few pods available
	ReasonWorkloadPause       ReasonCode = "WorkloadPause"       // deferred: another pod of its workload was moved a moment ago
	ReasonNamespaceRate       ReasonCode = "NamespaceRate"       // deferred: its namespace has used up its rate
	ReasonOutdated            ReasonCode = "Outdated"            // deferred: a counted pod was moved since, or it fits nowhere
	ReasonLoop                ReasonCode = "Loop"                // deferred: workload circuit breaker; moving it there has not helped before
	ReasonStormNodes          ReasonCode = "StormNodes"          // deferred: cluster circuit breaker; too many nodes went bad at once
	ReasonStormPending        ReasonCode = "StormPending"        // deferred: cluster circuit breaker; too many replacements find no place
	ReasonStormFailures       ReasonCode = "StormFailures"       // deferred: cluster circuit breaker; too many evictions fail

	// Why the workload could not make a replacement first. As the reason of a verdict only when the policy says to skip
	// such pods; otherwise in [Instead], beside the outcome of the eviction.
	ReasonRestartRunning   ReasonCode = "RestartRunning"   // deferred: a rollout is in progress
	ReasonRestartPaused    ReasonCode = "RestartPaused"    // deferred: the Deployment is paused
	ReasonRestartUnhealthy ReasonCode = "RestartUnhealthy" // deferred: not all pods are available, or the last rollout got stuck
	ReasonRestartNoRoom    ReasonCode = "RestartNoRoom"    // deferred: no node has room for two
	ReasonRestartCooldown  ReasonCode = "RestartCooldown"  // deferred: it was restarted a short time ago
	ReasonRestartStrategy  ReasonCode = "RestartStrategy"  // rejected: the Deployment stops its pods before it starts new ones
	ReasonRestartVolume    ReasonCode = "RestartVolume"    // rejected: a volume that two pods cannot use at the same time
	ReasonRestartScaled    ReasonCode = "RestartScaled"    // rejected: a HorizontalPodAutoscaler would undo it

	ReasonPodGone        ReasonCode = "PodGone"        // rejected: no pod of that name and UID
	ReasonPodTerminating ReasonCode = "PodTerminating" // rejected: the pod is being deleted already
	ReasonPodMoved       ReasonCode = "PodMoved"       // rejected: the pod runs on another node
	ReasonPodEnded       ReasonCode = "PodEnded"       // rejected: the pod has succeeded or failed by itself
	ReasonProtected      ReasonCode = "Protected"      // rejected: a rule of the profile protects it, named in Message
	ReasonProfileUnknown ReasonCode = "ProfileUnknown" // rejected: the policy has no such profile or strategy
	ReasonMoving         ReasonCode = "Moving"         // rejected: the pod is on the move already, for another reason

	ReasonSuperseded ReasonCode = "Superseded" // withdrawn: a newer evaluation does not list the pod
	ReasonExpired    ReasonCode = "Expired"    // expired

	ReasonForbidden ReasonCode = "Forbidden" // failed: the actuator lacks a right
	ReasonInvalid   ReasonCode = "Invalid"   // failed: the API server calls the request invalid, or several budgets overlap

	ReasonReplaced           ReasonCode = "Replaced"           // settled: the replacement is ready where it may be
	ReasonCameBack           ReasonCode = "CameBack"           // settled: the replacement is ready on the node that was to be left
	ReasonReplacementPending ReasonCode = "ReplacementPending" // settled: the replacement is not ready after a long time
	ReasonNotReplaced        ReasonCode = "NotReplaced"        // settled: nobody made a replacement
	ReasonTakenBack          ReasonCode = "TakenBack"          // settled: the move got stuck and was undone; the pod still runs
)

// Verdict says what became of one intent. There is exactly one for each intent that is final, and for an intent that began
// a move a second one, with the outcome [Settled], when the move is over; its cause is the first. An intent whose pod an
// earlier intent of the same scope had asked for, without a verdict yet, is the same wish: the verdict on the earlier one is
// the verdict on both.
type Verdict struct {
	Outcome  Outcome    `json:"outcome"`
	Reason   ReasonCode `json:"reason"`
	Message  string     `json:"message"`
	Profile  string     `json:"profile"`
	Strategy string     `json:"strategy"`
	Scope    ScopeRef   `json:"scope"`
	Intent   Intent     `json:"intent"`
	// Method is how the pod was moved, where Outcome is the beginning of a move or its end.
	Method Method `json:"method,omitempty"`
	// Instead is the method that was to be used and could not be. nil: Method is the one that was wanted.
	Instead *Instead `json:"instead,omitempty"`
	// Workload is what the pod belongs to: its controller, or the Deployment behind its ReplicaSet. nil: not known, or the
	// pod has none.
	Workload *ObjectRef `json:"workload,omitempty"`
	// Settlement is how the move ended. nil unless Outcome is [Settled].
	Settlement *Settlement `json:"settlement,omitempty"`
	// Blockers are the objects that held a deferred pod.
	Blockers []ObjectRef `json:"blockers,omitempty"`
	// Again is when what held a deferred pod is over at the earliest, where that is known. Zero: it is not.
	Again time.Time `json:"again,omitzero"`
	// DryRun: the outcome is what would have happened; nothing was changed.
	DryRun bool `json:"dryRun,omitempty"`
}

// Instead is a method that could not be used, and why.
type Instead struct {
	Method  Method     `json:"method"`
	Reason  ReasonCode `json:"reason"`
	Message string     `json:"message"`
}

// Settlement is how a move ended.
type Settlement struct {
	// Replacement is the pod that took the place of the one that was moved. nil: there is none.
	Replacement *PodRef `json:"replacement,omitempty"`
	// Node is where it runs. Empty: nowhere yet.
	Node string `json:"node,omitempty"`
	// Seconds is how long it took from the acceptance of the move until now: when the replacement was seen ready, or when it
	// was given up.
	Seconds float64 `json:"seconds"`
}

// EventType returns [VerdictType].
func (Verdict) EventType() string { return VerdictType }

// About is the pod's path.
func (v Verdict) About() string {
	return "namespaces/" + v.Intent.Pod.Namespace + "/pods/" + v.Intent.Pod.Name
}

// Channel is rehome.verdict.OUTCOME.STRATEGY.NAMESPACE.POD.
func (v Verdict) Channel() string {
	return channel("verdict", string(v.Outcome), v.Strategy, v.Intent.Pod.Namespace, v.Intent.Pod.Name)
}
