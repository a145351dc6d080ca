package index

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/fit"
)

// constraint is what decides which pods a topology spread constraint counts and on which nodes. Two pods of a namespace
// for which all of it is equal are in one group.
type constraint struct {
	key      string
	spec     corev1.TopologySpreadConstraint
	selector labels.Selector
	affinity *nodeaffinity.RequiredNodeAffinity // nil: every node counts
	// tolerations count if the constraint honours taints.
	tolerations []corev1.Toleration
	honourTaint bool
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
	identity := []any{spec}
	if policy := spec.NodeAffinityPolicy; policy == nil || *policy == corev1.NodeInclusionPolicyHonor {
		affinity := nodeaffinity.GetRequiredNodeAffinity(p)
		read.affinity = &affinity
		var required *corev1.NodeSelector
		if p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil {
			required = p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
		identity = append(identity, p.Spec.NodeSelector, required)
	}
	if policy := spec.NodeTaintsPolicy; policy != nil && *policy == corev1.NodeInclusionPolicyHonor {
		read.honourTaint, read.tolerations = true, p.Spec.Tolerations
		identity = append(identity, p.Spec.Tolerations)
	}
	text, err := json.Marshal(identity)
	if err != nil {
		return constraint{}, false
	}
	sum := sha256.Sum256(text)
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

// eligible says whether pods with the constraint can be placed on the node, as far as the constraint's policies ask.
func (c *constraint) eligible(node *corev1.Node) bool {
	if c.affinity != nil {
		if match, err := c.affinity.Match(node); err != nil || !match {
			return false
		}
	}
	return !c.honourTaint || fit.Untolerated(node.Spec.Taints, c.tolerations) == nil
}
