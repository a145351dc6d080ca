package utilization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Rules say which pods may leave a node, and how many.
type Rules struct {
	// Namespaces are those whose pods may leave.
	Namespaces policy.Namespaces
	// Only are the pods that may leave. nil: all.
	Only func(pod *corev1.Pod) bool
	// PerNode is how many pods of one node are on their way out at most. nil: any number.
	PerNode *uint
	// Unmeasured: pods of which the usage is not known may leave. Nobody can tell how much that helps, so a node loses
	// as many as PerNode says, and one at a time when it says nothing.
	Unmeasured bool
}

func (r Rules) allow(pod *corev1.Pod) bool {
	return r.Namespaces.Has(pod.Namespace) && (r.Only == nil || r.Only(pod))
}

// Moves returns the pods that should leave their nodes: those of one source after the other, in the order of
// [rank.Compare]. The pods may be in any order; they are not changed.
//
// A pod that is being deleted has left already: its usage is neither on its node any more nor free at the targets, and it
// counts in PerNode. So the answer to the cluster in the middle of the moves is the rest of them, and no more.
func (p Plan) Moves(pods []schemas.UsingPod, rules Rules) []schemas.Intent {
	if len(p.sources) == 0 {
		return nil
	}
	m := mover{Plan: p, rules: rules, left: slices.Clone(p.room)}
	loads := m.unload(pods)
	for i := range loads {
		if full(m.left) {
			break
		}
		m.source(&p.sources[i], &loads[i])
	}
	if len(m.moves) == 0 {
		return nil
	}
	intents := make([]schemas.Intent, len(m.moves)) // made at the end, since growing a list of them copies much
	for i, move := range m.moves {
		intents[i] = move.pod.Move(move.reason)
	}
	return intents
}

// move is a pod that should leave, and why.
type move struct {
	pod    *schemas.UsingPod
	reason string
}

// mover is one run through a plan.
type mover struct {
	Plan
	rules Rules
	left  []int64 // of the room
	moves []move
}

// source moves pods from one source until there is no more need or no more room.
func (m *mover) source(s *source, l *load) {
	reason := ""
	for m.goesOn(s, l) {
		pod := l.next()
		if pod == nil {
			return
		}
		if !m.doors.open(pod.Pod.Spec.Tolerations) || pod.Used == nil && !m.rules.Unmeasured {
			continue
		}
		if reason == "" {
			reason = m.why.about(s.Node)
		}
		m.moves = append(m.moves, move{pod, reason})
		m.gone(l, pod)
	}
}

// goesOn says whether one more pod is to leave the source.
func (m *mover) goesOn(s *source, l *load) bool {
	switch {
	case m.rules.PerNode != nil && l.gone >= *m.rules.PerNode,
		m.rules.Unmeasured && m.rules.PerNode == nil && l.unmeasured,
		full(m.left):
		return false
	case s.keep == nil:
		return true
	}
	for i, keep := range s.keep {
		if l.used[i] > keep {
			return true
		}
	}
	return false
}

// gone takes a pod that leaves off its node and off the room at the targets.
func (m *mover) gone(l *load, pod *schemas.UsingPod) {
	l.gone++
	if pod.Used == nil {
		l.unmeasured = true
		return
	}
	for i, name := range m.resources {
		used := whole(name, pod.Used[name])
		l.used[i] -= used
		m.left[i] -= used
	}
}
