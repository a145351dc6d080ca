package watcher

import (
	"maps"
	"slices"
)

// ties are pairs of a maintenance and a node, found by either. The zero value has none.
type ties struct{ byMaintenance, byNode map[string]map[string]bool }

// tie makes a pair, or takes it apart.
func (t *ties) tie(maintenance, node string, tied bool) {
	if t.byMaintenance == nil {
		t.byMaintenance, t.byNode = map[string]map[string]bool{}, map[string]map[string]bool{}
	}
	mark(t.byMaintenance, maintenance, node, tied)
	mark(t.byNode, node, maintenance, tied)
}

func mark(in map[string]map[string]bool, key, member string, is bool) {
	switch {
	case !is:
		delete(in[key], member)
		if len(in[key]) == 0 {
			delete(in, key)
		}
	case in[key] == nil:
		in[key] = map[string]bool{member: true}
	default:
		in[key][member] = true
	}
}

// nodes ties a maintenance to exactly these nodes.
func (t *ties) nodes(maintenance string, nodes map[string]bool) {
	for _, n := range keysOf(t.byMaintenance[maintenance]) {
		if !nodes[n] {
			t.tie(maintenance, n, false)
		}
	}
	for n := range nodes {
		t.tie(maintenance, n, true)
	}
}

// maintenances ties a node to exactly these maintenances.
func (t *ties) maintenances(node string, names map[string]bool) {
	for _, m := range keysOf(t.byNode[node]) {
		if !names[m] {
			t.tie(m, node, false)
		}
	}
	for m := range names {
		t.tie(m, node, true)
	}
}

// keysOf are the members of a set, in no order, as a list that stays as it is when the set changes.
func keysOf(set map[string]bool) []string {
	return slices.Collect(maps.Keys(set))
}
