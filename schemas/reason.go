package schemas

// The reason codes. The first paragraph of each comment describes the reason, and the second one says what to do. Its outcome is
// at the end of the line.
const (
	// The API server accepted the eviction. The pod is terminating, and its owner replaces it.
	//
	// Nothing.
	ReasonEvictionAccepted ReasonCode = "EvictionAccepted" // evicted

	// Rehome changed the pod template of the Deployment, which rolls out as with `kubectl rollout restart`. The pod goes when its
	// replacement is available.
	//
	// Nothing. `kubectl rollout status deployment NAME` shows the progress.
	ReasonRestartAccepted ReasonCode = "RestartAccepted" // restarted

	// The Deployment has one more replica. When that replica is available and the budget of the pod allows a disruption, Rehome
	// restores the number of replicas, and the ReplicaSet removes the pod.
	//
	// Nothing. Do not scale the Deployment until the move is settled.
	ReasonSurgeAccepted ReasonCode = "SurgeAccepted" // restarted

	// A webhook took over the eviction and moves the pod itself, as KubeVirt does by live migration.
	//
	// Nothing. The program behind the webhook reports its progress, often in the pod's events: `kubectl describe pod`.
	ReasonBackgroundAccepted ReasonCode = "BackgroundAccepted" // requested

	// The pod has an EvictionRequest, and a responder that is responsible for the pod works on it.
	//
	// Nothing. `kubectl get evictionrequests -n NAMESPACE` shows the responder and its progress.
	ReasonEvictionRequestAccepted ReasonCode = "EvictionRequestAccepted" // requested

	// A PodDisruptionBudget, named in the message and in `blockers`, allows no disruption now.
	//
	// Nothing, if the workload recovers. If it does not, check the budget with `kubectl describe pdb`. A budget that can never
	// allow a disruption, such as `minAvailable: 1` for a single replica, blocks the pod forever.
	ReasonDisruptionBudget ReasonCode = "DisruptionBudget" // deferred

	// The API server throttles the actuator.
	//
	// Nothing. If it is frequent, lower `rate.evictionsPerSecond`, or check the API server's priority and fairness.
	ReasonThrottled ReasonCode = "Throttled" // deferred

	// The actuator got no clear answer from the API server. The pod may still leave.
	//
	// Check the API server, and the network between it and the actuator.
	ReasonAPIUnavailable ReasonCode = "APIUnavailable" // deferred

	// The API server answered the eviction with an internal error, and could read the pod after that.
	//
	// Read the message. Usually it names an admission webhook that does not respond: repair the webhook, or delete its
	// configuration.
	ReasonInternalError ReasonCode = "InternalError" // deferred

	// As many pods of the node were moved within the window as `maxNoOfPodsToEvictPerNode` allows.
	//
	// Nothing, or raise the limit. With 0 nothing moves until the policy changes.
	ReasonLimitNode ReasonCode = "LimitNode" // deferred

	// As many pods of the namespace were moved within the window as `maxNoOfPodsToEvictPerNamespace` allows.
	//
	// See `LimitNode`.
	ReasonLimitNamespace ReasonCode = "LimitNamespace" // deferred

	// As many pods of the cluster were moved within the window as `maxNoOfPodsToEvictTotal` allows.
	//
	// See `LimitNode`.
	ReasonLimitTotal ReasonCode = "LimitTotal" // deferred

	// As many moves from the node are in flight as the policy allows at once.
	//
	// Nothing: the pod can move when one of these moves is settled. If it takes long, `rehome status` shows the moves in flight and
	// what each of them waits for.
	ReasonMovingNode ReasonCode = "MovingNode" // deferred

	// As many moves in the namespace are in flight as the policy allows at once.
	//
	// See `MovingNode`.
	ReasonMovingNamespace ReasonCode = "MovingNamespace" // deferred

	// As many moves of the pod's workload are in flight as the policy allows at once.
	//
	// See `MovingNode`. Also check with `kubectl get pods` which of its pods does not become ready.
	ReasonMovingWorkload ReasonCode = "MovingWorkload" // deferred

	// As many moves in the cluster are in flight as the policy allows at once.
	//
	// See `MovingNode`. If it is frequent and no move is stuck, raise the limit.
	ReasonMovingTotal ReasonCode = "MovingTotal" // deferred

	// No PodDisruptionBudget selects the pod, and as many pods of its workload are unavailable as the policy allows, whatever the
	// cause.
	//
	// Find the cause with `kubectl describe pod`. A PodDisruptionBudget for the workload replaces this rule.
	ReasonWorkloadUnavailable ReasonCode = "WorkloadUnavailable" // deferred

	// Another pod of the workload was moved a moment ago, and the policy sets a pause between two moves.
	//
	// Nothing.
	ReasonWorkloadPause ReasonCode = "WorkloadPause" // deferred

	// The namespace has used up its rate of moves.
	//
	// Nothing, or raise the rate of the namespace.
	ReasonNamespaceRate ReasonCode = "NamespaceRate" // deferred

	// The decision counted pods together, such as the replicas in a zone, and another of them was moved since.
	//
	// Nothing: the pod is evaluated again.
	ReasonOutdated ReasonCode = "Outdated" // deferred

	// The replacement would fit on no other node, counting the replacements of all moves in flight. The policy has `nodeFit`, or
	// the strategy moves only pods whose replacements fit. If only moves in flight take the capacity, the message names the moved
	// pods.
	//
	// Nothing: the pod is evaluated again when capacity changes. If it happens often, add capacity.
	ReasonNodeFit ReasonCode = "NodeFit" // deferred

	// The scheduler would place the replacement on the same node, or on a node that a maintenance or another program empties. The
	// same holds for a node with as many replicas (RemoveDuplicates), or where the strategy would move it again (LowNodeUtilization,
	// HighNodeUtilization). The message names the node.
	//
	// Nothing: the pod is evaluated again. If it happens often, check `scheduler.profile` in the policy, and which rule of the
	// scheduler prefers that node.
	ReasonInVain ReasonCode = "InVain" // deferred

	// The workload circuit breaker is open: pods of this workload came back to the node after this strategy had moved them away.
	//
	// Find out why the scheduler prefers the node. It does not know the rule that the strategy enforces: often the pod lacks a node
	// affinity, or the node lacks a taint. Each further return doubles the wait; `rehome breakers clear TYPE NAME` ends it.
	ReasonLoop ReasonCode = "Loop" // deferred

	// The cluster circuit breaker is open: so many nodes became unhealthy at the same time that moving pods would make it worse.
	//
	// Check the nodes: `kubectl get nodes`. The circuit breaker closes when enough of them are healthy.
	ReasonStormNodes ReasonCode = "StormNodes" // deferred

	// The cluster circuit breaker is open: too many replacements have waited too long to become ready.
	//
	// Find the cause with `kubectl get pods -A --field-selector status.phase=Pending`, and `kubectl describe pod` for one of them.
	// Usually the cluster lacks capacity.
	ReasonStormPending ReasonCode = "StormPending" // deferred

	// The circuit breaker of the cluster or of the namespace is open: too many of the latest evictions failed, for reasons other
	// than a budget. Only failures of the API server itself open the circuit breaker of the cluster.
	//
	// Read the messages of the failed evictions: `rehome events --type verdict --since 10m`. Usually a webhook does not respond, or
	// a right is missing.
	ReasonStormFailures ReasonCode = "StormFailures" // deferred

	// The Deployment cannot create a replacement first, because a rollout is in progress. Or the Deployment is being restarted, and
	// the restart replaces the pod.
	//
	// Nothing. `kubectl rollout status deployment NAME` shows the progress.
	ReasonRestartRunning ReasonCode = "RestartRunning" // deferred

	// The Deployment cannot create a replacement first, because it is paused.
	//
	// Run `kubectl rollout resume deployment NAME`, if the person who paused it agrees.
	ReasonRestartPaused ReasonCode = "RestartPaused" // deferred

	// The Deployment cannot create a replacement first, because not all of its pods are available, or its last rollout got stuck.
	//
	// Run `kubectl describe deployment NAME` and fix the cause that keeps its pods from being ready, or run `kubectl rollout undo
	// deployment NAME`.
	ReasonRestartUnhealthy ReasonCode = "RestartUnhealthy" // deferred

	// The Deployment cannot create a replacement first, because no node has capacity for two of its pods at a time.
	//
	// Add capacity.
	ReasonRestartNoRoom ReasonCode = "RestartNoRoom" // deferred

	// The Deployment cannot create a replacement first, because it was restarted a short time ago. Each restart creates a revision
	// and reloads the configuration.
	//
	// Nothing, or shorten the cooldown in the policy.
	ReasonRestartCooldown ReasonCode = "RestartCooldown" // deferred

	// The Deployment cannot create a replacement first, because it stops its pods before it starts new ones: its strategy is
	// `Recreate`, or a rolling update without a surge.
	//
	// Set `strategy.rollingUpdate.maxSurge` of the Deployment, if the application can briefly run twice. If not, let the policy
	// evict such pods, or move the pod by hand.
	ReasonRestartStrategy ReasonCode = "RestartStrategy" // rejected

	// The Deployment cannot create a replacement first, because the pod has a volume that two pods cannot use at the same time.
	//
	// Let the policy evict such pods, or move the pod by hand when it may stop: `kubectl delete pod NAME`.
	ReasonRestartVolume ReasonCode = "RestartVolume" // rejected

	// Not reported any more: a Deployment under a HorizontalPodAutoscaler uses a rollout restart.
	//
	// Nothing.
	ReasonRestartScaled ReasonCode = "RestartScaled" // rejected

	// No pod with this name and UID exists any more.
	//
	// Nothing: the pod was already gone.
	ReasonPodGone ReasonCode = "PodGone" // rejected

	// The pod is being deleted already.
	//
	// Nothing. If it stays, its node may be gone: run `kubectl get node`, and find out why the kubelet does not respond.
	ReasonPodTerminating ReasonCode = "PodTerminating" // rejected

	// The pod no longer runs on the node that the strategy made its decision for.
	//
	// Nothing.
	ReasonPodMoved ReasonCode = "PodMoved" // rejected

	// The pod has succeeded or failed since the decision.
	//
	// Nothing.
	ReasonPodEnded ReasonCode = "PodEnded" // rejected

	// A rule protects the pod. The message names the rule.
	//
	// If the pod should move, change the [DefaultEvictor](policy.md#defaultevictor) of the profile, or the property of the pod or of
	// its node that the message names.
	ReasonProtected ReasonCode = "Protected" // rejected

	// The actuator's policy does not have the profile, or the profile does not have the strategy.
	//
	// Nothing right after a change of the policy. If it persists, give the watcher and the actuator the same file.
	ReasonProfileUnknown ReasonCode = "ProfileUnknown" // rejected

	// A move of the pod is already in flight, for another reason.
	//
	// Nothing: the verdict on that move follows.
	ReasonMoving ReasonCode = "Moving" // rejected

	// A newer evaluation does not want to move the pod any more.
	//
	// Nothing: the cause is gone.
	ReasonSuperseded ReasonCode = "Superseded" // withdrawn

	// The intent was not executed in time. The pod is evaluated again at once. `rehome once` fails instead.
	//
	// If it is frequent, the rate or a limit is too low for the number of moves, or the actuator does not work.
	ReasonExpired ReasonCode = "Expired" // expired

	// The actuator lacks the right that the message names. In `instead`: it lacks a right for this method, and moved the pod by
	// another.
	//
	// Grant the right to its ServiceAccount.
	ReasonForbidden ReasonCode = "Forbidden" // failed

	// The API server rejects the eviction as invalid: two PodDisruptionBudgets select the pod, or a webhook rejects it.
	//
	// Read the message. Remove one of the budgets.
	ReasonInvalid ReasonCode = "Invalid" // failed

	// The replacement is ready on another node.
	//
	// Nothing.
	ReasonReplaced ReasonCode = "Replaced" // settled

	// The replacement is ready on the node that the pod had to leave.
	//
	// Nothing for a single case. If it repeats, see `Loop`: the scheduler does not know why the pod should not run there.
	ReasonCameBack ReasonCode = "CameBack" // settled

	// The replacement exists but is not ready after a long time.
	//
	// Run `kubectl describe pod` for the pod in `settlement.replacement`. Common causes are missing capacity, a missing image, or a
	// failing probe.
	ReasonReplacementPending ReasonCode = "ReplacementPending" // settled

	// The pod has no replacement.
	//
	// Nothing, if the workload was scaled down or deleted meanwhile. If not, `kubectl describe` its controller: a quota or a
	// webhook may keep it from creating pods.
	ReasonNotReplaced ReasonCode = "NotReplaced" // settled

	// The move got stuck and was reverted, or the pod is back, as after a restore of etcd. It still runs on the node that it should
	// leave.
	//
	// Read the message. If the move got stuck, fix the cause that kept the replacement from becoming available:
	// `kubectl describe deployment NAME`.
	ReasonTakenBack ReasonCode = "TakenBack" // settled

	// The steps of the move failed for an hour with errors that a repetition does not change, such as a missing right, and the
	// move could not be undone. The pod may still run on the node that it should leave, and it is evaluated again.
	//
	// Read the message, and fix the error, such as the right that it names. Then check what the move left behind: an EvictionRequest
	// of the pod (`kubectl get evictionrequests -n NAMESPACE`), or annotations `rehome.dev/` on its Deployment.
	ReasonMoveFailed ReasonCode = "MoveFailed" // settled
)

// IsLimit reports whether a limit of the policy holds a deferred pod.
func (r ReasonCode) IsLimit() bool {
	switch r {
	case ReasonLimitNode, ReasonLimitNamespace, ReasonLimitTotal, ReasonMovingNode, ReasonMovingNamespace, ReasonMovingWorkload,
		ReasonMovingTotal, ReasonWorkloadUnavailable, ReasonNamespaceRate:
		return true
	}
	return false
}

// IsStorm reports whether the cluster circuit breaker holds a deferred pod.
func (r ReasonCode) IsStorm() bool {
	return r == ReasonStormNodes || r == ReasonStormPending || r == ReasonStormFailures
}

// IsOutage reports whether a deferred pod waits only for an answer of the API server.
func (r ReasonCode) IsOutage() bool {
	return r == ReasonAPIUnavailable || r == ReasonInternalError || r == ReasonThrottled
}

// Unmoved reports whether a move ended although its pod still runs, or may still run.
func (v Verdict) Unmoved() bool {
	return v.Outcome == Settled && (v.Reason == ReasonTakenBack || v.Reason == ReasonMoveFailed)
}
