package drain

import (
	"fmt"
	"strings"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// message is what a node that was begun waits for, or what is to be known about it.
func (w *work) message(n *node) string {
	late := ""
	if maintenance.Holds(n.is.Stage) && n.is.Stage != v1alpha1.Claimed && w.late(n) {
		late = "late: its deadline was " + clock(maintenance.Deadline(&w.Maintenance, n.is))
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
