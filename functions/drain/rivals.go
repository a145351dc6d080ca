package drain

import (
	"cmp"
	"slices"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// others are the other maintenances that mean the node, with how far each is with it: the older ones first.
func (w *work) others(n *node) []rival {
	var list []rival
	for _, o := range w.Others {
		stage, both := o.Nodes[n.is.Name]
		if !both || o.Name == w.Maintenance.Name {
			continue
		}
		if marked := n.in.Mark != nil && n.in.Mark.Name == o.Name; marked && !maintenance.Holds(stage) && !over(stage) {
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
func (w *work) older(o schemas.OtherMaintenance) bool {
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
	if m == nil || n.mine || !w.Now.Before(m.At.Add(maintenance.Grace)) ||
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
	return maintenance.Holds(r.node) || r.older && wants && r.node != v1alpha1.Returned && r.node != v1alpha1.Gone
}

// lost says whether another maintenance has marked the node and works on it.
func (w *work) lost(n *node) bool {
	for _, r := range w.others(n) {
		if n.in.Mark != nil && !n.mine && n.in.Mark.Name == r.name && maintenance.Holds(r.node) {
			return true
		}
	}
	return false
}

// contested is the name of an older maintenance that has claimed the node too.
func (w *work) contested(n *node) string {
	for _, r := range w.others(n) {
		if r.older && maintenance.Holds(r.node) {
			return r.name
		}
	}
	return ""
}

// taker is the name of another maintenance that has claimed the node, to take it over as it is.
func (w *work) taker(n *node) string {
	for _, r := range w.others(n) {
		if maintenance.Holds(r.node) {
			return r.name
		}
	}
	return ""
}
