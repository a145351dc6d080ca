package v1alpha1

// The Refusals: the reasons of the condition Accepted when it is False. The guards AllNodes, ControlPlane and SingleNode
// are reasons too; they alone can be lifted, by spec.force.
const (
	ReasonEmptySelector     = "EmptySelector"     // neither names nor a selector that asks for anything
	ReasonInvalidSelector   = "InvalidSelector"   // a selector that cannot be read
	ReasonInvalidSchedule   = "InvalidSchedule"   // a schedule that cannot be read, or never begins
	ReasonInvalidTimeZone   = "InvalidTimeZone"   // a time zone that is not known
	ReasonTooManyNodes      = "TooManyNodes"      // more nodes than one maintenance can be about
	ReasonPlanContradiction = "PlanContradiction" // a step that can select nothing that a step before it does not
	ReasonWindowPast        = "WindowPast"        // the window was over before a node was begun
)

// The reasons of the conditions otherwise.
const (
	ReasonAccepted = "Accepted" // Accepted: nothing speaks against it

	ReasonWorking   = "Working"   // Progressing: nodes are cordoned, drained or given back
	ReasonRefused   = "Refused"   // not Progressing: it is not accepted
	ReasonIdle      = "Idle"      // not Progressing: nothing is wanted yet
	ReasonNoNodes   = "NoNodes"   // not Progressing: it means no node that there is; not Drained
	ReasonWaiting   = "Waiting"   // not Progressing: something has to happen first
	ReasonBlocked   = "Blocked"   // not Progressing: no pod that is to move can move now
	ReasonReached   = "Reached"   // not Progressing: what spec.stage wants is reached
	ReasonCompleted = "Completed" // not Progressing, Completed, and not Drained any more: every node was given back

	ReasonAllDrained = "AllDrained" // Drained
	ReasonNodesLeft  = "NodesLeft"  // not Drained, or not Completed: some nodes are left
)

// The Blocks: reasons of a blocked pod besides the codes of verdicts.
const (
	BlockedProtected   = "Protected"   // a rule of the policy protects it
	BlockedInvalidRule = "InvalidRule" // a drain rule that may be meant for it cannot be read
	BlockedTerminating = "Terminating" // it was to be gone more than a minute ago
)
