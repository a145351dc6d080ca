package plan

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// status is the whole status that is to be stored.
func (w *work) status() v1alpha1.NodeMaintenanceStatus {
	s := v1alpha1.NodeMaintenanceStatus{ObservedGeneration: w.Maintenance.Generation, Stages: w.stages()}
	room := mostNamed
	for _, n := range w.nodes {
		if n.is.Stage != "" {
			is := within(room, n.is)
			is.Message = short(is.Message, mostOfOne)
			room -= len(is.Blocked)
			s.Nodes = append(s.Nodes, is)
		}
	}
	accepted, progressing := w.accepted(), w.progressing()
	s.Summary = w.summary(accepted, progressing)
	s.Summary.Message = short(s.Summary.Message, mostOfAll)
	for _, c := range []metav1.Condition{accepted, progressing, w.drained(), w.completed()} {
		s.Conditions = append(s.Conditions, w.dated(c))
	}
	return s
}

// stages adds the stage that is wanted to those that were begun. One that is refused begins nothing.
func (w *work) stages() []v1alpha1.StageTime {
	list := slices.Clone(w.Maintenance.Status.Stages)
	known := slices.ContainsFunc(list, func(s v1alpha1.StageTime) bool { return s.Stage == w.stage })
	if known || w.refused != nil && w.stage != v1alpha1.Complete && !w.begun() {
		return list
	}
	return append(list, v1alpha1.StageTime{Stage: w.stage, Start: w.at})
}

// dated gives the condition its time: of now, or of when it became what it is.
func (w *work) dated(c metav1.Condition) metav1.Condition {
	c.ObservedGeneration, c.LastTransitionTime, c.Message = w.Maintenance.Generation, w.at, short(c.Message, mostOfAll)
	for _, was := range w.Maintenance.Status.Conditions {
		if was.Type == c.Type && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
	}
	return c
}

func yes(name, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func no(name, reason, message string) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func (w *work) accepted() metav1.Condition {
	if w.refused == nil {
		return yes(v1alpha1.Accepted, v1alpha1.ReasonAccepted, "nothing speaks against it")
	}
	message := w.refused.Error()
	if w.some(WorkedOn) {
		message += "; nodes that were begun before are led to their end"
	}
	return no(v1alpha1.Accepted, w.refused.Reason, message)
}

// some says whether a node is in one of these stages.
func (w *work) some(in func(v1alpha1.NodeStage) bool) bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return in(n.is.Stage) })
}

// done is how many nodes are done of how many: drained, until they are to be given back.
func (w *work) done() (done, all int) {
	for _, n := range w.nodes {
		if n.is.Stage == "" || n.is.Stage == v1alpha1.Gone {
			continue
		}
		if n.is.Stage == v1alpha1.Returned || w.stage != v1alpha1.Complete && n.wasDrained() {
			done++
		}
		all++
	}
	return done, all
}

// wasDrained says whether the node is drained, or was until it was to be given back.
func (n *node) wasDrained() bool {
	goes := n.is.Stage == v1alpha1.Returning || n.is.Stage == v1alpha1.Returned
	return n.is.Stage == v1alpha1.IsDrained || goes && n.is.DrainedAt != nil
}

func (w *work) summary(accepted, progressing metav1.Condition) v1alpha1.Summary {
	done, all := w.done()
	s := v1alpha1.Summary{Nodes: fmt.Sprintf("%d/%d", done, all), Message: progressing.Message}
	for _, n := range w.nodes {
		if n.is.Pods != nil {
			s.PodsLeft += n.is.Pods.Left
			s.PodsBlocked += n.is.Pods.Blocked
		}
	}
	if blocked := w.blocked(); blocked != "" {
		s.Message = blocked
	} else if accepted.Status == metav1.ConditionFalse {
		s.Message = accepted.Message
	}
	return s
}

// drained says whether every node is drained, or was before it was given back.
func (w *work) drained() metav1.Condition {
	drained, all := 0, 0
	for _, n := range w.nodes {
		if n.is.Stage == "" || n.is.Stage == v1alpha1.Gone {
			continue
		}
		all++
		if n.wasDrained() {
			drained++
		}
	}
	message := fmt.Sprintf("%d of %d nodes are drained", drained, all)
	switch {
	case w.stage == v1alpha1.Complete:
		return no(v1alpha1.Drained, v1alpha1.ReasonCompleted, "the nodes are given back")
	case all == 0:
		return no(v1alpha1.Drained, v1alpha1.ReasonNoNodes, "it means no node that there is")
	case drained < all:
		return no(v1alpha1.Drained, v1alpha1.ReasonNodesLeft, message)
	}
	return yes(v1alpha1.Drained, v1alpha1.ReasonAllDrained, message)
}

// completed says whether every node was given back. Without a node, that is so once it is wanted.
func (w *work) completed() metav1.Condition {
	returned, all := 0, 0
	for _, n := range w.nodes {
		if n.is.Stage == v1alpha1.Returned {
			returned++
		}
		if n.is.Stage != "" && n.is.Stage != v1alpha1.Gone {
			all++
		}
	}
	message := fmt.Sprintf("%d of %d nodes were given back", returned, all)
	if returned < all || all == 0 && w.stage != v1alpha1.Complete {
		return no(v1alpha1.Completed, v1alpha1.ReasonNodesLeft, message)
	}
	return yes(v1alpha1.Completed, v1alpha1.ReasonCompleted, message)
}
