package workload

import "time"

// nodes are the nodes that are known, by name.
type nodes map[string]knownNode

// knownNode is a node, and when each taint that it has came; zero: before it was watched, with the node, or by a maintenance.
type knownNode struct {
	Node
	came map[taint]time.Time
}

// learn takes one change into account and returns the name of the node, if [Node] says something else now. old or new
// is nil where there is none. The taints that a node came with say nothing about how it is now: a new one has those
// that are taken off when it is set up. Of the nodes that were there before there is only what the taints say
// themselves. The cordon of a maintenance says nothing about how the node is, and neither does its taint, which comes after it
// and also goes after it.
func (n nodes) learn(old, new *keptNode, initial bool, now time.Time) string {
	if new == nil {
		delete(n, old.name)
		return old.name
	}
	before, known := n[new.name]
	after := knownNode{
		Node: Node{Name: new.name, Ready: new.ready, Maintained: new.maintained}, came: make(map[taint]time.Time, len(new.taints)),
	}
	for t, added := range new.taints {
		at, had := before.came[t]
		switch {
		case had, new.maintained && t.cordons():
		case initial:
			at = added
		case known:
			at = now
		}
		after.came[t] = at
		if at.After(after.Tainted) {
			after.Tainted = at
		}
	}
	n[new.name] = after
	if known && before.Node == after.Node {
		return ""
	}
	return new.name
}
