package maintenance

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// judge says whether a request for a maintenance is over, and why in words. is is the maintenance; nil: there is none. uid is
// that of the one that the request has asked for; empty: it is not known. other is another one whose mark is on the node; empty:
// none is. It is a pure function.
func judge(
	want schemas.NodeRequest, uid types.UID, is *v1alpha1.NodeMaintenance, other string,
) (end schemas.ReceiptReason, why string) {
	completes := want.Stage == v1alpha1.Complete
	switch {
	case is == nil || uid != "" && is.UID != uid:
		switch {
		case completes && other != "":
			return schemas.ReceiptHeldByAnother, heldBy(other, want.Node)
		case completes:
			return schemas.ReceiptDone, "node " + want.Node + " is given back"
		}
		return schemas.ReceiptCancelled, "the maintenance of node " + want.Node + " is over"
	case is.Spec.Stage == v1alpha1.Complete && !completes:
		return schemas.ReceiptCancelled, "node " + want.Node + " is to be given back, as was asked for meanwhile"
	case completes, is.Status.ObservedGeneration != is.Generation: // the next one can be asked for when this one is gone
		return "", ""
	}
	if c := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.Accepted); c != nil && c.Status == "False" && !begun(is) {
		return schemas.ReceiptRefused, c.Reason + ": " + c.Message + "; nothing is done"
	}
	n, known := nodeIn(is, want.Node)
	if !known {
		return "", ""
	}
	return reached(want, n)
}

// notHeld is the answer to who wants a node back that requests do not hold. other is who holds it; empty: nobody.
func notHeld(node, other string) (end schemas.ReceiptReason, why string) {
	if other == "" {
		return schemas.ReceiptNothingToDo, "node " + node + " is not maintained"
	}
	return schemas.ReceiptHeldByAnother, heldBy(other, node)
}

// heldBy says why a node stays cordoned that requests do not hold, and who can change that.
func heldBy(other, node string) string {
	text := fmt.Sprintf("node %s stays cordoned: maintenance %s holds it", node, other)
	if other == schemas.SignMaintenance(node) {
		return text + " until its sign is gone from the node"
	}
	return text + ": complete that"
}

// nodeIn is how far the node of a maintenance is.
func nodeIn(is *v1alpha1.NodeMaintenance, node string) (v1alpha1.NodeStatus, bool) {
	i := slices.IndexFunc(is.Status.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Name == node })
	if i < 0 {
		return v1alpha1.NodeStatus{}, false
	}
	return is.Status.Nodes[i], true
}

// begun says whether anything was done for a maintenance.
func begun(is *v1alpha1.NodeMaintenance) bool {
	return slices.ContainsFunc(is.Status.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Start != nil })
}

// reached says whether a node is as far as is wanted, or will not come that far.
func reached(want schemas.NodeRequest, n v1alpha1.NodeStatus) (end schemas.ReceiptReason, why string) {
	drains := want.Stage == v1alpha1.Drain
	switch n.Stage {
	case v1alpha1.Waiting, v1alpha1.Claimed, v1alpha1.Returning:
		return "", ""
	case v1alpha1.Cordoned, v1alpha1.Draining:
		if drains {
			return "", ""
		}
	case v1alpha1.Held:
		if drains {
			return schemas.ReceiptDeadlineExceeded, "node " + n.Name + " stays cordoned: " + n.Message
		}
	case v1alpha1.Returned:
		switch {
		case drains && n.DrainedAt == nil:
			return schemas.ReceiptDeadlineExceeded, "node " + n.Name + " was given back before it was drained"
		case drains:
			return schemas.ReceiptDone, "node " + n.Name + " was drained, and is given back"
		}
		return schemas.ReceiptDone, "node " + n.Name + " was given back already"
	case v1alpha1.Gone:
		return schemas.ReceiptDone, "node " + n.Name + " has left the cluster"
	case v1alpha1.IsDrained:
	}
	return schemas.ReceiptDone, "node " + n.Name + " is " + reachedWord(want.Stage) + counted(n)
}

// counted is how many pods have moved and stay.
func counted(n v1alpha1.NodeStatus) string {
	if n.Pods == nil || n.Stage != v1alpha1.IsDrained {
		return ""
	}
	return fmt.Sprintf(": %s, %d not to move", plural(int(n.Pods.Moved), "pod has left", "pods have left"), n.Pods.Staying)
}

// late is what is left of a request whose time is over.
func late(want schemas.NodeRequest, is *v1alpha1.NodeMaintenance) string {
	text := fmt.Sprintf("node %s is not %s yet", want.Node, reachedWord(want.Stage))
	if is != nil && is.Status.Summary.Message != "" {
		text += ": " + is.Status.Summary.Message
	}
	return text + goesOn(is)
}

// goesOn is what whoever does not wait any more is to know of the maintenance, which does the rest by itself. nil: it is not
// known.
func goesOn(is *v1alpha1.NodeMaintenance) string {
	text := "; its maintenance goes on until Complete is asked for"
	switch {
	case is == nil:
	case is.Spec.Stage == v1alpha1.Complete:
		return "; the node is given back as soon as that can be done"
	case is.Spec.Deadline == nil:
	case is.Spec.OnDeadline == v1alpha1.Hold:
		return fmt.Sprintf("%s; when the drain has taken %v no more pods move", text, is.Spec.Deadline.Duration)
	case is.Spec.OnDeadline == v1alpha1.Release:
		return fmt.Sprintf("%s, or the drain has taken %v: then the node is given back", text, is.Spec.Deadline.Duration)
	}
	return text
}

// reachedWord is the state of a node that has reached a stage.
func reachedWord(stage v1alpha1.Stage) string {
	switch stage {
	case v1alpha1.Cordon:
		return "cordoned"
	case v1alpha1.Drain:
		return "drained"
	case v1alpha1.Complete, v1alpha1.Idle:
	}
	return "given back"
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
