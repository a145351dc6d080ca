// Package topologyspread is the strategy RemovePodsViolatingTopologySpreadConstraint: if pods are spread over zones,
// hosts, or other domains more unevenly than their constraint allows, it moves pods from the fullest domains to the
// emptiest.
package topologyspread

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. The zero value considers the DoNotSchedule constraints of all pods, and moves
// only pods that fit elsewhere.
type Args struct {
	// Selection limits whose constraints count and which pods may move. Other pods are counted nevertheless, like in
	// the scheduler.
	candidate.Selection
	// WhenUnsatisfiable limits the strategy to constraints with one of these actions. Empty means DoNotSchedule.
	WhenUnsatisfiable []corev1.UnsatisfiableConstraintAction `json:"constraints,omitzero"`
	// TopologyBalanceNodeFit lets a pod move only if it fits into a domain with at least two pods fewer than the
	// fullest. nil means true.
	TopologyBalanceNodeFit *bool `json:"topologyBalanceNodeFit,omitzero"`
}

// actions returns the valid values of whenUnsatisfiable.
func actions() []string { return []string{string(corev1.DoNotSchedule), string(corev1.ScheduleAnyway)} }

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("", a.Selection.Validate())
	for i, action := range a.WhenUnsatisfiable {
		if !slices.Contains(actions(), string(action)) {
			found.Add("constraints"+policy.Item(i), action, "is not an action of a constraint",
				"want "+strings.Join(actions(), " or "))
		}
	}
	return found.Err()
}

// Constraints returns the considered constraints of the pod, in order. A pod that is not selected has none.
func (a Args) Constraints(pod *corev1.Pod) []corev1.TopologySpreadConstraint {
	var found []corev1.TopologySpreadConstraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if a.takes(c.WhenUnsatisfiable) {
			found = append(found, c)
		}
	}
	if len(found) == 0 || !a.Has(pod) {
		return nil
	}
	return found
}

func (a Args) takes(action corev1.UnsatisfiableConstraintAction) bool {
	if len(a.WhenUnsatisfiable) == 0 {
		return action == corev1.DoNotSchedule
	}
	return slices.Contains(a.WhenUnsatisfiable, action)
}

// NeedsRoom reports whether a pod moves only if it fits into a domain with fewer pods.
func (a Args) NeedsRoom() bool { return a.TopologyBalanceNodeFit == nil || *a.TopologyBalanceNodeFit }

// Decide returns the smallest set of moves after which all constraints of the scope hold: no domain has more than
// maxSkew pods more than the emptiest one. Each pod leaves the place that is the fullest by then. If that is
// impossible, it comes as close as pods can move. A large scope can get one move more than necessary.
//
// The emptiest domain is an eligible one: no pod can be placed in the others, so they only lose pods. Within a place,
// pods without a node selector and node affinity move first, because they are easier to place; then by
// [candidate.Compare]. Protected pods, and pods that the arguments exclude, are counted and stay.
//
// With NeedsRoom a pod moves only to a place that has room for it, and uses up this room. A pod without room anywhere
// stays and does not count as moved, and the next one is tried. Without NeedsRoom, every eligible place takes any
// number.
//
// Under DoNotSchedule, a pod moves only if the scheduler would find a place for it under these constraints: not to a
// domain that would then have more than maxSkew pods more than the emptiest, even if that one must stay empty.
//
// With fewer eligible domains than minDomains, the scheduler treats the least count as 0, so no domain should have more
// than maxSkew pods. No pod can move to the missing domains. Pods beyond maxSkew move to a domain that has fewer than
// maxSkew, and stay if there is none: after an eviction they would only wait for a domain that may never exist.
func (a Args) Decide(scope schemas.SpreadScope) []schemas.Intent {
	b := newBalance(&scope, a.movable, a.NeedsRoom())
	if b == nil || slices.ContainsFunc(b.spreads, func(s *spread) bool { return s.targets() == 0 }) {
		return nil
	}
	explain := b.explanation()
	var intents []schemas.Intent
	for _, m := range b.plan() {
		intents = append(intents, m.pod.Move(explain(m)))
	}
	return intents
}

// movable returns the pods of a domain that may move, in the order of their moves.
func (a Args) movable(pods []schemas.SpreadPod) []*schemas.SpreadPod {
	selects := a.Selects()
	var found []*schemas.SpreadPod
	for i := range pods {
		p := &pods[i]
		if candidate.Movable(&p.ScopedPod) && selects(&p.Pod) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, order)
	return found
}

// order returns a negative number if a should move before b.
func order(a, b *schemas.SpreadPod) int {
	return cmp.Or(cmp.Compare(choosy(&a.Pod), choosy(&b.Pod)), candidate.Compare(&a.Pod, &b.Pod))
}

// choosy returns 1 for a pod that requires or prefers certain nodes, and 0 for others.
func choosy(pod *corev1.Pod) int {
	if len(pod.Spec.NodeSelector) > 0 || pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
		return 1
	}
	return 0
}

// explanation returns a function that explains why a pod moves, with the numbers of the scope:
//
//	zone eu-1a has 7 pods, eu-1c has 3: more than 1 apart (topology.kubernetes.io/zone)
//	zone eu-1a has 5 pods: more than 3 while there are 2 of at least 3 domains (topology.kubernetes.io/zone)
//	zone eu-1b keeps 10 pods, eu-1c has 7: more than 2 apart (topology.kubernetes.io/zone)
//
// The last is for a domain that is not too full itself. Of several constraints it names the first one that the pod
// violates.
func (b *balance) explanation() func(move) string {
	texts := map[*schemas.Domain]string{} // of the domains that are too full
	helps := ""
	for _, s := range b.spreads {
		if !s.skewed() {
			continue
		}
		word := s.TopologyKey[strings.LastIndex(s.TopologyKey, "/")+1:]
		low, high := s.extremes()
		apart := fmt.Sprintf("pods, %s has %d: more than %d apart (%s)", low.Value, low.Count, s.maxSkew, s.TopologyKey)
		if s.tooFew {
			apart = fmt.Sprintf("pods: more than %d while there are %d of at least %d domains (%s)",
				s.maxSkew, s.targets(), *s.MinDomains, s.TopologyKey)
		}
		for i := range s.domains {
			if d := &s.domains[i]; d.Eligible && d.Count-s.least > s.maxSkew {
				texts[d] = fmt.Sprintf("%s %s has %d %s", word, d.Value, d.Count, apart)
			}
		}
		helps = cmp.Or(helps, fmt.Sprintf("%s %s keeps %d %s", word, high.Value, high.Count, apart))
	}
	return func(m move) string {
		for i, s := range b.spreads {
			if text := texts[&s.domains[b.places[m.from].domains[i]]]; text != "" {
				return text
			}
		}
		return helps
	}
}

// extremes returns the emptiest and the fullest eligible domain of the scope, the first by value among equals.
func (s *spread) extremes() (low, high *schemas.Domain) {
	before := func(a, b *schemas.Domain) bool { return a.Value < b.Value }
	for i := range s.domains {
		d := &s.domains[i]
		if !d.Eligible {
			continue
		}
		if low == nil || d.Count < low.Count || d.Count == low.Count && before(d, low) {
			low = d
		}
		if high == nil || d.Count > high.Count || d.Count == high.Count && before(d, high) {
			high = d
		}
	}
	return low, high
}
