package v1alpha1

// The Refusals are the reasons of the condition Accepted when it is False. The guards AllNodes, ControlPlane, and SingleNode are
// reasons too. Only guards can be disabled, with spec.force.
const (
	ReasonEmptySelector     = "EmptySelector"     // no names, and no selector or an empty one
	ReasonInvalidSelector   = "InvalidSelector"   // an invalid selector
	ReasonInvalidSchedule   = "InvalidSchedule"   // an invalid schedule, or one that never begins
	ReasonInvalidTimeZone   = "InvalidTimeZone"   // an unknown time zone
	ReasonTooManyNodes      = "TooManyNodes"      // more nodes than one maintenance supports
	ReasonPlanContradiction = "PlanContradiction" // an earlier step selects all pods of a later one
	ReasonWindowPast        = "WindowPast"        // the window ended before a node was begun
)

// Other reasons of conditions.
const (
	ReasonAccepted = "Accepted" // Accepted

	ReasonWorking   = "Working"   // Progressing: nodes are cordoned, drained, or released
	ReasonRefused   = "Refused"   // not Progressing: not accepted
	ReasonIdle      = "Idle"      // not Progressing: the stage is Idle
	ReasonNoNodes   = "NoNodes"   // not Progressing, not Drained: no selected node exists
	ReasonWaiting   = "Waiting"   // not Progressing: the message names what it waits for
	ReasonBlocked   = "Blocked"   // not Progressing: no remaining pod can move now
	ReasonReached   = "Reached"   // not Progressing: spec.stage is reached
	ReasonCompleted = "Completed" // not Progressing, Completed, no longer Drained: every node is released

	ReasonAllDrained = "AllDrained" // Drained
	ReasonNodesLeft  = "NodesLeft"  // not Drained or not Completed: some nodes remain
)

// The Blocks are reasons of a blocked pod that are not reason codes of verdicts.
const (
	BlockedProtected   = "Protected"   // the policy protects it
	BlockedInvalidRule = "InvalidRule" // a drain rule that may select it is invalid
	BlockedTerminating = "Terminating" // it should have terminated more than a minute ago
)
