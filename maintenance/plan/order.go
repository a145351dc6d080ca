package plan

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// begin claims as many nodes as may be worked on at a time, and says of the others what they wait for. Nodes of the first
// value of the topology come first, then those of the first name.
func (w *work) begin() {
	most := w.atOnce()
	var waiting, begun []*node
	for _, n := range w.nodes {
		if WorkedOn(n.is.Stage) {
			begun = append(begun, n)
		}
		if n.is.Stage == v1alpha1.Waiting && n.in.Meant {
			waiting = append(waiting, n)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *node) int { return cmp.Compare(w.domain(a), w.domain(b)) })
	for _, n := range waiting {
		if w.refused != nil || w.stage != v1alpha1.Cordon && w.stage != v1alpha1.Drain {
			continue
		}
		if n.is.Message = w.holdsUp(n, begun); n.is.Message != "" {
			continue
		}
		if len(begun) >= most {
			n.is.Message = fmt.Sprintf(turn+": %d at a time", most)
			continue
		}
		begun = append(begun, n)
		n.is.Stage, n.is.Start, n.is.CordonedBefore = v1alpha1.Claimed, w.at.DeepCopy(), n.before()
	}
}

// turn is how the message of a node begins that waits for no more than that.
const turn = "waits for its turn"

// atOnce is how many nodes may be worked on at a time.
func (w *work) atOnce() int {
	if w.spec.AtOnce == nil {
		return 1
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(w.spec.AtOnce, len(w.meant()), false)
	if err != nil {
		return 1
	}
	return max(1, most)
}

// domain is the value of the topology that the node has.
func (w *work) domain(n *node) string { return n.in.Node.Labels[w.spec.Topology] }

// holdsUp is why a node cannot be begun beside those that are, apart from how many these are. Empty: it can.
func (w *work) holdsUp(n *node, begun []*node) string {
	if !w.InWindow {
		return w.outside()
	}
	if len(n.in.Locks) > 0 {
		return n.in.Locks[0].Tool + " is at work on it: " + n.in.Locks[0].Sign
	}
	for _, r := range w.others(n) {
		if Holds(r.node) {
			return "maintenance " + r.name + " works on it"
		}
		if r.comesFirst() {
			return "maintenance " + r.name + " is older and works on it first"
		}
	}
	if name := w.stranger(n); name != "" {
		return "maintenance " + name + " has cordoned it"
	}
	return cmp.Or(closedGate(n), w.quorum(n), w.beside(n, begun), w.elsewhere(n, begun))
}

// outside says when the window opens.
func (w *work) outside() string {
	if w.NextWindow.IsZero() {
		return "the window is over"
	}
	return "outside of the window, which opens at " + clock(w.NextWindow)
}

// elsewhere says that nodes of another domain are worked on. A node without the label shares its domain with nobody.
func (w *work) elsewhere(n *node, begun []*node) string {
	if w.spec.Topology == "" {
		return ""
	}
	domain, has := n.in.Node.Labels[w.spec.Topology]
	for _, o := range begun {
		if other, hasToo := o.in.Node.Labels[w.spec.Topology]; !has || !hasToo || other != domain {
			return fmt.Sprintf("node %s of another %s is worked on", o.is.Name, w.spec.Topology)
		}
	}
	return ""
}

// others are the other maintenances that mean the node, with how far each is with it: the older ones first.
func (w *work) others(n *node) []rival {
	var list []rival
	for _, o := range w.Others {
		stage, both := o.Nodes[n.is.Name]
		if !both || o.Name == w.Maintenance.Name {
			continue
		}
		if marked := n.in.Mark != nil && n.in.Mark.Name == o.Name; marked && !Holds(stage) && !over(stage) {
			stage = v1alpha1.Claimed // its claim is not known here yet, and the mark is
		}
		list = append(list, rival{o.Name, o.Stage, o.Refused, stage, w.older(o)})
	}
	slices.SortFunc(list, func(a, b rival) int {
		if a.older != b.older {
			if a.older {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	return list
}

// older says whether another maintenance was made before this one.
func (w *work) older(o Other) bool {
	return cmp.Or(o.Since.Compare(w.Maintenance.CreationTimestamp.Time), cmp.Compare(o.Name, w.Maintenance.Name)) < 0
}

// over says whether a maintenance has done with a node of that stage, or is about to.
func over(stage v1alpha1.NodeStage) bool {
	return stage == v1alpha1.Returning || stage == v1alpha1.Returned || stage == v1alpha1.Gone
}

// stranger is the name of a maintenance that marked the node a moment ago and is not known here yet. One that is not known
// for longer does not exist any more.
func (w *work) stranger(n *node) string {
	m := n.in.Mark
	if m == nil || n.mine || !w.Now.Before(m.At.Add(Grace)) ||
		slices.ContainsFunc(w.others(n), func(r rival) bool { return r.name == m.Name }) {
		return ""
	}
	return m.Name
}

// rival is another maintenance that means a node.
type rival struct {
	name    string
	stage   v1alpha1.Stage     // what it wants
	refused bool               // it begins no node, whatever it wants
	node    v1alpha1.NodeStage // how far it is with the node
	older   bool
}

// comesFirst says whether it is to have the node before this maintenance.
func (r rival) comesFirst() bool {
	wants := !r.refused && (r.stage == v1alpha1.Cordon || r.stage == v1alpha1.Drain)
	return Holds(r.node) || r.older && wants && r.node != v1alpha1.Returned && r.node != v1alpha1.Gone
}

// lost says whether another maintenance has marked the node and works on it.
func (w *work) lost(n *node) bool {
	for _, r := range w.others(n) {
		if n.in.Mark != nil && !n.mine && n.in.Mark.Name == r.name && Holds(r.node) {
			return true
		}
	}
	return false
}

// contested is the name of an older maintenance that has claimed the node too.
func (w *work) contested(n *node) string {
	for _, r := range w.others(n) {
		if r.older && Holds(r.node) {
			return r.name
		}
	}
	return ""
}

// taker is the name of another maintenance that has claimed the node, to take it over as it is.
func (w *work) taker(n *node) string {
	for _, r := range w.others(n) {
		if Holds(r.node) {
			return r.name
		}
	}
	return ""
}
