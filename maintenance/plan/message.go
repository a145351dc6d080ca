package plan

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// message is what a node that was begun waits for, or what is to be known about it.
func (w *work) message(n *node) string {
	late := ""
	if Holds(n.is.Stage) && n.is.Stage != v1alpha1.Claimed && w.late(n) {
		late = "late: its deadline was " + clock(Deadline(&w.Maintenance, n.is))
	}
	switch n.is.Stage {
	case v1alpha1.Claimed, v1alpha1.Cordoned, v1alpha1.Draining, v1alpha1.IsDrained, v1alpha1.Held:
		return join(late, w.hindrance(n))
	case v1alpha1.Returning:
		if taker := w.taker(n); taker != "" {
			return "maintenance " + taker + " takes it over"
		}
	case v1alpha1.Returned:
		if n.is.Start != nil && n.is.DrainedAt == nil {
			return "given back before it was drained"
		}
	case v1alpha1.Gone:
		return "it is not meant any more"
	case v1alpha1.Waiting:
	}
	return ""
}

// hindrance is what keeps a node from going on.
func (w *work) hindrance(n *node) string {
	switch {
	case n.is.Stage == v1alpha1.Claimed && w.releases(n):
		return "is given up, once it is certain that it was not cordoned"
	case n.is.Stage == v1alpha1.Claimed && !n.mine && w.contested(n) != "":
		return "maintenance " + w.contested(n) + " has claimed it too, and is older"
	case n.is.Stage == v1alpha1.Claimed && !n.mine:
		return w.quorum(n)
	case n.is.Stage == v1alpha1.Claimed:
		return ""
	case w.lost(n):
		return "maintenance " + n.in.Mark.Name + " has taken it"
	case !n.cordoned():
		return "somebody has uncordoned it; it is cordoned again"
	case n.is.Stage == v1alpha1.Held:
		return fmt.Sprintf("it stays cordoned with %d pods left", n.left())
	case w.stage == v1alpha1.Drain && n.is.Stage != v1alpha1.IsDrained:
		return closedGate(n)
	}
	return ""
}

// Somebody else's words are in messages, such as those of an admission webhook that refuses an eviction, and can be of any
// length. So many bytes are kept of what is said of one pod or node, and of what is said of the maintenance: the status fits
// into one object of the API server, whoever says what.
const mostOfOne, mostOfAll = 256, 1024

// short cuts a text to so many bytes, and marks where.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const cut = "…"
	return strings.ToValidUTF8(text[:most-len(cut)], "") + cut
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// progressing says what is done, or what has to happen first.
func (w *work) progressing() metav1.Condition {
	const name = v1alpha1.Progressing
	done, all := w.done()
	doing, blocked := w.doing(), w.blocked()
	switch {
	case doing != "":
		return yes(name, v1alpha1.ReasonWorking, doing)
	case w.refused != nil && !w.some(WorkedOn) && w.stage != v1alpha1.Complete:
		return no(name, v1alpha1.ReasonRefused, "it is not accepted: "+w.refused.Error())
	case blocked != "":
		return no(name, v1alpha1.ReasonBlocked, blocked)
	case w.stage == v1alpha1.Complete && done == all:
		return no(name, v1alpha1.ReasonCompleted, "every node was given back")
	case all == 0:
		return no(name, v1alpha1.ReasonNoNodes, "it means no node that there is")
	case w.stage == v1alpha1.Idle:
		return no(name, v1alpha1.ReasonIdle, "nothing is wanted yet: spec.stage is Idle")
	}
	if waits := w.waits(); waits != "" {
		return no(name, v1alpha1.ReasonWaiting, waits)
	}
	return no(name, v1alpha1.ReasonReached, fmt.Sprintf("spec.stage %s is reached", w.stage))
}

// doing says which nodes are changed or emptied now. Empty: none.
func (w *work) doing() string {
	byVerb := map[string][]string{}
	for _, n := range w.nodes {
		if verb := w.verb(n); verb != "" {
			byVerb[verb] = append(byVerb[verb], n.is.Name)
		}
	}
	var parts []string
	for _, verb := range []string{"cordons", "drains", "gives back"} {
		if names := byVerb[verb]; len(names) > 0 {
			parts = append(parts, verb+" "+list(names))
		}
	}
	return strings.Join(parts, ", ")
}

// list names the first three.
func list(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// verb is what is done with a node.
func (w *work) verb(n *node) string {
	switch n.is.Stage {
	case v1alpha1.Claimed:
		if w.releases(n) {
			return "gives back"
		}
		if w.hindrance(n) == "" {
			return "cordons"
		}
	case v1alpha1.Cordoned: // the next answer begins with its pods
		if w.stage == v1alpha1.Drain && n.cordoned() && closedGate(n) == "" {
			return "drains"
		}
	case v1alpha1.Draining:
		if w.drains(n) {
			return "drains"
		}
	case v1alpha1.Returning:
		return "gives back"
	case v1alpha1.Waiting, v1alpha1.IsDrained, v1alpha1.Held, v1alpha1.Returned, v1alpha1.Gone:
	}
	return ""
}

// drains says whether some pod of the node goes, or can, or none is left, which the next answer finds.
func (w *work) drains(n *node) bool {
	now := n.now()
	return !w.counted(n) || n.left() == 0 || closedGate(n) == "" && slices.ContainsFunc(n.pods, func(p pod) bool {
		return (p.fate == ends || p.fate == moves) && p.wave == now && p.blocked == nil
	})
}

// blocked names the first pod that cannot move, and how many there are.
func (w *work) blocked() string {
	var first string
	count := int32(0)
	for _, n := range w.nodes {
		if len(n.is.Blocked) == 0 || n.is.Stage != v1alpha1.Draining {
			continue
		}
		if first == "" {
			b := n.is.Blocked[0]
			first = fmt.Sprintf("%s/%s on %s: %s", b.Namespace, b.Name, n.is.Name, b.Message)
		}
		count += n.is.Pods.Blocked
	}
	switch count {
	case 0:
		return ""
	case 1:
		return "cannot move " + first
	}
	return fmt.Sprintf("cannot move %d pods, such as %s", count, first)
}

// waits is what the first node waits for that waits for something other than its turn, or else that one.
func (w *work) waits() string {
	var first string
	for _, n := range w.nodes {
		waiting := n.is.Stage == v1alpha1.Waiting || Holds(n.is.Stage)
		if !waiting || n.is.Message == "" {
			continue
		}
		message := n.is.Name + ": " + n.is.Message
		if !strings.HasPrefix(n.is.Message, turn) {
			return message
		}
		if first == "" {
			first = message
		}
	}
	return first
}
