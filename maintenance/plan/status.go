package plan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// status returns the whole status to store.
func (w *work) status() v1alpha1.NodeMaintenanceStatus {
	s := v1alpha1.NodeMaintenanceStatus{ObservedGeneration: w.Maintenance.Generation, Stages: w.stages()}
	room := mostNamed
	for _, n := range w.nodes {
		if n.is.Stage == "" {
			continue
		}
		is := n.is
		is.Message = short(is.Message, mostOfOne)
		if over := len(is.Blocked) - room; over > 0 {
			is.Blocked, is.More = is.Blocked[:room], is.More+int32(over)
		}
		room -= len(is.Blocked)
		s.Nodes = append(s.Nodes, is)
	}
	c := w.counts()
	accepted, progressing := w.accepted(), w.progressing(c)
	s.Summary = v1alpha1.Summary{
		Nodes: fmt.Sprintf("%d/%s", c.done, c.total), PodsLeft: c.podsLeft, PodsBlocked: c.podsBlocked, Message: progressing.Message,
	}
	if c.blocked() != "" {
		s.Summary.Message = c.blocked()
	} else if accepted.Status == metav1.ConditionFalse {
		s.Summary.Message = accepted.Message
	}
	s.Summary.Message = short(s.Summary.Message, mostOfAll)
	s.Conditions = slices.Clone(w.Maintenance.Status.Conditions)
	for _, c := range []metav1.Condition{accepted, progressing, w.drained(c), w.completed(c)} {
		c.ObservedGeneration, c.LastTransitionTime, c.Message = w.Maintenance.Generation, w.at, short(c.Message, mostOfAll)
		meta.SetStatusCondition(&s.Conditions, c)
	}
	return s
}

// stages adds the desired stage to the begun stages. A refused maintenance begins none.
func (w *work) stages() []v1alpha1.StageTime {
	list := slices.Clone(w.Maintenance.Status.Stages)
	known := slices.ContainsFunc(list, func(s v1alpha1.StageTime) bool { return s.Stage == w.stage })
	if known || w.refused != nil && w.stage != v1alpha1.Complete && !w.begun() {
		return list
	}
	return append(list, v1alpha1.StageTime{Stage: w.stage, Start: w.at})
}

func yes(name, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func no(name, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// counts are the numbers of nodes and pods by their state. Nodes that left the cluster are not counted.
type counts struct {
	all, drained, returned int
	missing                int    // in all, but they do not exist yet
	total                  string // all, or that there are too many to list
	done                   int    // drained, or returned if the nodes are given back
	podsLeft, podsBlocked  int32
	doing                  map[string][]string // nodes that are being changed or drained, by verb
	stuck                  int32               // pods that cannot move
	firstStuck             string
	// waits is the reason of the first node that waits for something other than its turn, or else of the first waiting
	// node.
	waits string
}

func (w *work) counts() counts {
	c := counts{doing: map[string][]string{}}
	onTurn := true
	for _, n := range w.nodes {
		c.addPods(n.is)
		verb := w.verb(n)
		c.doing[verb] = append(c.doing[verb], n.is.Name)
		missing := w.missing(n)
		waits := n.is.Message != "" && (missing || n.is.Stage == v1alpha1.Waiting || Holds(n.is.Stage))
		if turns := strings.HasPrefix(n.is.Message, turn); waits && onTurn && (c.waits == "" || !turns) {
			c.waits, onTurn = n.is.Name+": "+n.is.Message, turns
		}
		if n.is.Stage == "" || n.is.Stage == v1alpha1.Gone && !missing {
			continue
		}
		if c.all++; missing {
			c.missing++
		}
		c.addStage(n.is, w.stage)
	}
	if c.total = fmt.Sprint(c.all); w.tooMany() && w.stage != v1alpha1.Complete {
		c.total = fmt.Sprintf("%d+", MostNodes)
	}
	return c
}

// addPods counts the pods of a node.
func (c *counts) addPods(is v1alpha1.NodeStatus) {
	if is.Pods != nil {
		c.podsLeft += is.Pods.Left
		c.podsBlocked += is.Pods.Blocked
	}
	if len(is.Blocked) > 0 && is.Stage == v1alpha1.Draining {
		if b := is.Blocked[0]; c.stuck == 0 {
			c.firstStuck = fmt.Sprintf("%s/%s on %s: %s", b.Namespace, b.Name, is.Name, b.Message)
		}
		c.stuck += is.Pods.Blocked
	}
}

// addStage counts a node that is drained or returned.
func (c *counts) addStage(is v1alpha1.NodeStatus, desired v1alpha1.Stage) {
	returned := is.Stage == v1alpha1.Returned
	drained := is.Stage == v1alpha1.IsDrained || (returned || is.Stage == v1alpha1.Returning) && is.DrainedAt != nil
	if returned {
		c.returned++
	}
	if drained {
		c.drained++
	}
	if returned || drained && desired != v1alpha1.Complete {
		c.done++
	}
}

// blocked returns the number of blocked pods and the first of them, or "".
func (c counts) blocked() string {
	switch c.stuck {
	case 0:
		return ""
	case 1:
		return "cannot move " + c.firstStuck
	}
	return fmt.Sprintf("cannot move %d pods, such as %s", c.stuck, c.firstStuck)
}

func (w *work) accepted() metav1.Condition {
	if w.refused == nil {
		return yes(v1alpha1.Accepted, v1alpha1.ReasonAccepted, "it can be carried out")
	}
	message := w.refused.Error()
	if w.some(InProgress) {
		message += "; nodes that were started before are finished"
	}
	return no(v1alpha1.Accepted, w.refused.Reason, message)
}

// drained returns the condition whether every node is drained, or was before it was given back.
func (w *work) drained(c counts) metav1.Condition {
	message := fmt.Sprintf("%d of %s nodes are drained", c.drained, c.total)
	switch {
	case w.stage == v1alpha1.Complete:
		return no(v1alpha1.Drained, v1alpha1.ReasonCompleted, "the nodes are given back")
	case c.drained < c.all && c.missing < c.all, w.tooMany():
		return no(v1alpha1.Drained, v1alpha1.ReasonNodesLeft, message)
	case c.missing == c.all:
		return no(v1alpha1.Drained, v1alpha1.ReasonNoNodes, "it selects no node that exists")
	}
	return yes(v1alpha1.Drained, v1alpha1.ReasonAllDrained, message)
}

// completed returns the condition whether every node was given back. Without a node that requires the stage Complete.
func (w *work) completed(c counts) metav1.Condition {
	message := fmt.Sprintf("%d of %s nodes were given back", c.returned, c.total)
	if c.returned < c.all || w.stage != v1alpha1.Complete && (c.all == 0 || w.tooMany()) {
		return no(v1alpha1.Completed, v1alpha1.ReasonNodesLeft, message)
	}
	return yes(v1alpha1.Completed, v1alpha1.ReasonCompleted, message)
}

// progressing returns the changes in progress, or the reason for waiting.
func (w *work) progressing(c counts) metav1.Condition {
	const name = v1alpha1.Progressing
	switch doing, blocked := c.working(), c.blocked(); {
	case doing != "":
		return yes(name, v1alpha1.ReasonWorking, doing)
	case w.refused != nil && !w.some(InProgress) && w.stage != v1alpha1.Complete:
		return no(name, v1alpha1.ReasonRefused, "it is not accepted: "+w.refused.Error())
	case blocked != "":
		return no(name, v1alpha1.ReasonBlocked, blocked)
	case w.stage == v1alpha1.Complete && c.done == c.all:
		return no(name, v1alpha1.ReasonCompleted, "every node was given back")
	case c.missing == c.all:
		return no(name, v1alpha1.ReasonNoNodes, "it selects no node that exists")
	case w.stage == v1alpha1.Idle:
		return no(name, v1alpha1.ReasonIdle, "it starts no node: spec.stage is Idle")
	case c.waits != "":
		return no(name, v1alpha1.ReasonWaiting, c.waits)
	case w.tooMany():
		return no(name, v1alpha1.ReasonRefused, "it is not accepted: "+w.refused.Error())
	}
	return no(name, v1alpha1.ReasonReached, fmt.Sprintf("spec.stage %s is reached", w.stage))
}

// working returns the nodes that are being changed or drained, or "".
func (c counts) working() string {
	var parts []string
	for _, verb := range []string{"cordons", "drains", "gives back"} {
		const most = 3
		switch names := c.doing[verb]; {
		case len(names) > most:
			parts = append(parts, fmt.Sprintf("%s %s and %d more", verb, strings.Join(names[:most], ", "), len(names)-most))
		case len(names) > 0:
			parts = append(parts, verb+" "+strings.Join(names, ", "))
		}
	}
	return strings.Join(parts, ", ")
}

// verb returns the change of a node that is in progress, or "".
func (w *work) verb(n *node) string {
	switch n.is.Stage {
	case v1alpha1.Claimed:
		if w.releases(n) {
			return "gives back"
		}
		if w.hindrance(n) == "" {
			return "cordons"
		}
	case v1alpha1.Cordoned: // the next decision begins with its pods
		if w.stage == v1alpha1.Drain && n.cordoned() && closedGate(n) == "" {
			return "drains"
		}
	case v1alpha1.Draining:
		if !w.counted(n) || n.left() == 0 || closedGate(n) == "" && n.moves() {
			return "drains"
		}
	case v1alpha1.Returning:
		return "gives back"
	default:
	}
	return ""
}

// moves reports whether a pod of the wave in progress can move.
func (n *node) moves() bool {
	now := n.now()
	return slices.ContainsFunc(n.pods, func(p pod) bool { return p.left() && p.wave == now && p.blocked == nil })
}
