package schemas

import "time"

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
type ReasonCode string

// The reason codes. Each comment begins with the outcome.
const (
	ReasonEvictionAccepted ReasonCode = "EvictionAccepted" // evicted

	ReasonRestartAccepted ReasonCode = "RestartAccepted" // restarted: the pod template of the Deployment was changed
	ReasonSurgeAccepted   ReasonCode = "SurgeAccepted"   // restarted: the Deployment has one more replica

	ReasonBackgroundAccepted      ReasonCode = "BackgroundAccepted"      // requested: a webhook moves the pod
	ReasonEvictionRequestAccepted ReasonCode = "EvictionRequestAccepted" // requested: a responder works on an EvictionRequest

	ReasonDisruptionBudget ReasonCode = "DisruptionBudget" // deferred: a PodDisruptionBudget, named in Blockers
	ReasonThrottled        ReasonCode = "Throttled"        // deferred: the API server throttles the actuator
	ReasonAPIUnavailable   ReasonCode = "APIUnavailable"   // deferred: the API server cannot be reached
	ReasonLimitNode        ReasonCode = "LimitNode"        // deferred: its node has reached its limit over a window
	ReasonLimitNamespace   ReasonCode = "LimitNamespace"   // deferred: its namespace has reached its limit over a window
	ReasonLimitTotal       ReasonCode = "LimitTotal"       // deferred: the cluster has reached its limit over a window

	ReasonMovingNode          ReasonCode = "MovingNode"          // deferred: its node has too many moves in flight
	ReasonMovingNamespace     ReasonCode = "MovingNamespace"     // deferred: its namespace has too many moves in flight
	ReasonMovingWorkload      ReasonCode = "MovingWorkload"      // deferred: its workload has too many moves in flight
	ReasonMovingTotal         ReasonCode = "MovingTotal"         // deferred: the cluster has too many moves in flight
	ReasonWorkloadUnavailable ReasonCode = "WorkloadUnavailable" // deferred: too few pods of its workload are available
	ReasonWorkloadPause       ReasonCode = "WorkloadPause"       // deferred: another pod of its workload was moved a moment ago
	ReasonNamespaceRate       ReasonCode = "NamespaceRate"       // deferred: its namespace has used up its rate
	ReasonOutdated            ReasonCode = "Outdated"            // deferred: the decision is outdated: another pod that it counted has moved
	ReasonNodeFit             ReasonCode = "NodeFit"             // deferred: its replacement fits on no other node
	ReasonInVain              ReasonCode = "InVain"              // deferred: the scheduler would choose a node that mends nothing
	ReasonLoop                ReasonCode = "Loop"                // deferred: workload circuit breaker; its pods came back
	ReasonStormNodes          ReasonCode = "StormNodes"          // deferred: cluster circuit breaker; too many unhealthy nodes
	ReasonStormPending        ReasonCode = "StormPending"        // deferred: cluster circuit breaker; too many pending pods
	ReasonStormFailures       ReasonCode = "StormFailures"       // deferred: cluster circuit breaker; too many evictions fail

	// The Deployment cannot create a replacement first. These are reasons of verdicts only if the policy skips such pods, and
	// otherwise in [Instead], next to the outcome of the eviction.
	ReasonRestartRunning   ReasonCode = "RestartRunning"   // deferred: a rollout is in progress
	ReasonRestartPaused    ReasonCode = "RestartPaused"    // deferred: the Deployment is paused
	ReasonRestartUnhealthy ReasonCode = "RestartUnhealthy" // deferred: not all pods are available, or the last rollout is stuck
	ReasonRestartNoRoom    ReasonCode = "RestartNoRoom"    // deferred: no node has capacity for two of its pods
	ReasonRestartCooldown  ReasonCode = "RestartCooldown"  // deferred: it was restarted a short time ago
	ReasonRestartStrategy  ReasonCode = "RestartStrategy"  // rejected: the Deployment stops its pods before it starts new ones
	ReasonRestartVolume    ReasonCode = "RestartVolume"    // rejected: a volume that two pods cannot use at the same time
	ReasonRestartScaled    ReasonCode = "RestartScaled"    // rejected: a HorizontalPodAutoscaler would remove the replica

	ReasonPodGone        ReasonCode = "PodGone"        // rejected: no pod has this name and UID
	ReasonPodTerminating ReasonCode = "PodTerminating" // rejected: the pod is being deleted already
	ReasonPodMoved       ReasonCode = "PodMoved"       // rejected: the pod runs on another node
	ReasonPodEnded       ReasonCode = "PodEnded"       // rejected: the pod has succeeded or failed
	ReasonProtected      ReasonCode = "Protected"      // rejected: a rule of the profile, named in Message, protects the pod
	ReasonProfileUnknown ReasonCode = "ProfileUnknown" // rejected: the policy has no such profile or strategy
	ReasonMoving         ReasonCode = "Moving"         // rejected: a move of the pod is in flight

	ReasonSuperseded ReasonCode = "Superseded" // withdrawn: a newer evaluation does not list the pod
	ReasonExpired    ReasonCode = "Expired"    // expired

	ReasonForbidden ReasonCode = "Forbidden" // failed: the actuator lacks a right
	ReasonInvalid   ReasonCode = "Invalid"   // failed: invalid for the API server, or several budgets select the pod

	ReasonReplaced           ReasonCode = "Replaced"           // settled: the replacement is ready on an allowed node
	ReasonCameBack           ReasonCode = "CameBack"           // settled: the replacement is ready on the same node
	ReasonReplacementPending ReasonCode = "ReplacementPending" // settled: the replacement is not ready after a long time
	ReasonNotReplaced        ReasonCode = "NotReplaced"        // settled: there is no replacement
	ReasonTakenBack          ReasonCode = "TakenBack"          // settled: the stuck move was undone, and the pod still runs
)

// Verdict is the result of an intent. There is one for each final intent. If the intent began a move, a second verdict with the
// outcome [Settled] follows when the move ends; the first verdict is its cause. If an earlier intent of the same scope lists the
// pod and has no verdict yet, both intents share one verdict.
type Verdict struct {
	Outcome  Outcome    `json:"outcome"`
	Reason   ReasonCode `json:"reason"`
	Message  string     `json:"message"`
	Profile  string     `json:"profile"`
	Strategy string     `json:"strategy"`
	Scope    ScopeRef   `json:"scope"`
	Intent   Intent     `json:"intent"`
	// Method is how the pod was moved. It is set if Outcome begins or ends a move.
	Method Method `json:"method,omitempty"`
	// Instead is the preferred method, if it was not possible. nil means that Method is the preferred one.
	Instead *Instead `json:"instead,omitempty"`
	// Workload is the controller of the pod, or the Deployment of its ReplicaSet. nil means that there is none, or that it is not
	// known.
	Workload *ObjectRef `json:"workload,omitempty"`
	// Settlement is the end of the move. It is nil unless Outcome is [Settled].
	Settlement *Settlement `json:"settlement,omitempty"`
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
	Reason  ReasonCode `json:"reason"`
	Message string     `json:"message"`
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
