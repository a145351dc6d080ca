package actuator

import (
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// candidate is everything that the rules of admission look at: the intent whose turn it is, and what is on the move.
type candidate struct {
	open   Open
	at     mark
	moves  *moves
	view   View
	limits policy.Limits
	now    time.Time
}

// rule says what holds an intent for now. It is a pure function.
type rule func(candidate) (hold, bool)

// rules hold an intent until something that is on the move arrives, in this order. The first one counts.
func rules() []rule {
	return []rule{
		totalMoving,     // no more at once at all
		nodeMoving,      // no more at once off one node
		namespaceMoving, // or out of one namespace
		workloadMoving,  // or of one workload
		paused,          // one move of a workload after the other, where the policy asks for it
		enoughAvailable, // of a workload without a budget some pods stay available, whatever else happens to it
	}
}

// held returns the first rule that holds the candidate, and whether there is one.
func held(c candidate) (hold, bool) {
	for _, r := range rules() {
		if h, holds := r(c); holds {
			return h, true
		}
	}
	return hold{}, false
}

func totalMoving(c candidate) (hold, bool) {
	most := c.limits.InFlight.Total
	if most == nil || uint(len(c.moves.all)) < *most {
		return hold{}, false
	}
	return hold{by: everything(), why: Objection{schemas.Deferred, schemas.ReasonMovingTotal, onTheMove(*most)}}, true
}

// everything is what holds whatever it is about.
func everything() holder { return holder{kind: "everything"} }

func nodeMoving(c candidate) (hold, bool) {
	most := c.limits.InFlight.PerNode
	if most == nil || uint(c.moves.nodes[c.at.node]) < *most {
		return hold{}, false
	}
	return hold{
		by: holder{"node", c.at.node}, blockers: []schemas.ObjectRef{{Kind: "Node", Name: c.at.node}},
		why: Objection{schemas.Deferred, schemas.ReasonMovingNode, "of node " + c.at.node + " " + onTheMove(*most)},
	}, true
}

func namespaceMoving(c candidate) (hold, bool) {
	most := c.limits.InFlight.PerNamespace
	if most == nil || uint(c.moves.namespaces[c.at.namespace]) < *most {
		return hold{}, false
	}
	return hold{
		by: holder{"namespace", c.at.namespace}, blockers: []schemas.ObjectRef{{Kind: "Namespace", Name: c.at.namespace}},
		why: Objection{schemas.Deferred, schemas.ReasonMovingNamespace, "of namespace " + c.at.namespace + " " + onTheMove(*most)},
	}, true
}

func workloadMoving(c candidate) (hold, bool) {
	most := c.limits.InFlight.PerWorkload
	if most == nil || c.at.workload == "" || uint(len(c.moves.workloads[c.at.workload])) < *most {
		return hold{}, false
	}
	return c.byWorkload(schemas.ReasonMovingWorkload, "of %s "+onTheMove(*most)), true
}

// paused counts from when a move was accepted. One that is asked for may take any time until it is, and has its pause
// before it.
func paused(c candidate) (hold, bool) {
	if c.limits.Pause <= 0 || c.at.workload == "" {
		return hold{}, false
	}
	for _, x := range c.moves.workloads[c.at.workload] {
		if x.Moved.IsZero() {
			return c.byWorkload(schemas.ReasonWorkloadPause, "another pod of %s is being moved at this moment"), true
		}
	}
	until := c.moves.last[c.at.workload].Add(c.limits.Pause)
	if !c.now.Before(until) {
		return hold{}, false
	}
	h := c.byWorkload(schemas.ReasonWorkloadPause, "another pod of %s was moved less than "+c.limits.Pause.String()+" ago")
	h.until = until
	return h, true
}

// enoughAvailable counts every pod that is wanted and not ready as unavailable, whatever the cause, and every one that is
// about to go. A pod that is not ready itself can go: it makes nothing worse.
func enoughAvailable(c candidate) (hold, bool) {
	pod, known := c.view.Pod(c.open.Intent.Pod.UID)
	if !known || pod.Budgeted || !pod.Ready || c.at.workload == "" {
		return hold{}, false
	}
	tally := c.view.Tally(c.at.workload)
	going := 0
	for uid := range c.moves.workloads[c.at.workload] {
		if p, ok := c.view.Pod(uid); ok && p.Ready {
			going++ // asked to go, which is not seen yet
		}
	}
	most := c.limits.MayBeUnavailable(tally.Wanted)
	if tally.Wanted-tally.Ready+going < most {
		return hold{}, false
	}
	return c.byWorkload(schemas.ReasonWorkloadUnavailable, fmt.Sprintf(
		"%d of %d pods of %%s are available, and without a poddisruptionbudget %d may be unavailable at once",
		tally.Ready-going, tally.Wanted, most)), true
}

// byWorkload is a hold by the workload, whose name takes the place of %s in the message.
func (c candidate) byWorkload(reason schemas.ReasonCode, message string) hold {
	ref := schemas.ObjectRef{Kind: "workload", UID: c.at.workload}
	if w := workloadOf(c.view, c.open.Intent.Pod.UID); w != nil {
		ref = *w
	}
	return hold{
		by: holder{"workload", string(c.at.workload)}, blockers: []schemas.ObjectRef{ref},
		why: Objection{schemas.Deferred, reason, fmt.Sprintf(message, ref)},
	}
}

func onTheMove(most uint) string {
	if most == 1 {
		return "1 pod is on the move, as many as may be"
	}
	return fmt.Sprintf("%d pods are on the move, as many as may be", most)
}
