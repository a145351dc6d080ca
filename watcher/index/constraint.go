package index

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// constraint is what decides which pods a topology spread constraint counts and on which nodes. Two pods of a namespace
// for which all of it is equal are in one group.
type constraint struct {
	key      string
	spec     corev1.TopologySpreadConstraint
	selector labels.Selector
	demand   demand
	place    [sha256.Size]byte // the same for constraints that count the same nodes
}

// newConstraint reads a constraint of a pod. ok is false if its selector is not valid.
func newConstraint(p *corev1.Pod, c corev1.TopologySpreadConstraint) (constraint, bool) {
	spec := *c.DeepCopy()
	spec.LabelSelector = withValues(spec.LabelSelector, spec.MatchLabelKeys, p.Labels)
	spec.MatchLabelKeys = nil
	selector, err := metav1.LabelSelectorAsSelector(spec.LabelSelector)
	if err != nil {
		return constraint{}, false
	}
	read := constraint{spec: spec, selector: selector}
	affinity, taints := spec.NodeAffinityPolicy, spec.NodeTaintsPolicy
	var of []any
	read.demand, of = newDemand(p, affinity == nil || *affinity == corev1.NodeInclusionPolicyHonor,
		taints != nil && *taints == corev1.NodeInclusionPolicyHonor)
	sum, ok := digest(append([]any{spec}, of...)...)
	if !ok {
		return constraint{}, false
	}
	if read.place, ok = digest(spec.TopologyKey, affinity, taints, of); !ok {
		return constraint{}, false
	}
	read.key = p.Namespace + "/" + spec.TopologyKey + "/" + hex.EncodeToString(sum[:5])
	return read, true
}

// withValues adds to a selector the pod's values of some label keys. A key that the pod does not have adds nothing.
func withValues(s *metav1.LabelSelector, keys []string, of map[string]string) *metav1.LabelSelector {
	if s == nil || len(keys) == 0 {
		return s
	}
	s.MatchLabels = maps.Clone(s.MatchLabels)
	for _, key := range keys {
		value, has := of[key]
		if !has {
			continue
		}
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]string{}
		}
		if _, there := s.MatchLabels[key]; !there {
			s.MatchLabels[key] = value
			continue
		}
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value},
		})
	}
	return s
}
