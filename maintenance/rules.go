package maintenance

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// LabelDrainOfClusterAPI is the label that counts like [v1alpha1.LabelDrain], and less if a pod has both.
const LabelDrainOfClusterAPI = "cluster.x-k8s.io/drain"

// Rules are drain rules, ready to be asked about many pods. The zero value has none.
type Rules struct{ list []rule }

type rule struct {
	fact       *schemas.DrainRuleFact
	pods       labels.Selector // nil: it cannot be read
	namespaces labels.Selector // nil: it cannot be read
}

// NewRules reads rules. The first that selects a pod counts, those of its namespace before those of the cluster.
func NewRules(facts []schemas.DrainRuleFact) Rules {
	var r Rules
	for i := range facts {
		r.list = append(r.list, rule{&facts[i], selector(facts[i].Spec.Pods), selector(facts[i].Spec.Namespaces)})
	}
	return r
}

// selector is everything for nil, and nil for what cannot be read.
func selector(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	read, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	return read
}

// For is the rule that counts for a pod whose namespace has these labels. nil: none does. readable is false for a rule that
// comes first and cannot be read: nobody knows whether it is meant for the pod.
func (r Rules) For(pod *corev1.Pod, namespace map[string]string) (found *schemas.DrainRuleFact, readable bool) {
	for _, ofNamespace := range []bool{true, false} {
		for _, x := range r.list {
			if (x.fact.Namespace != "") != ofNamespace || ofNamespace && x.fact.Namespace != pod.Namespace {
				continue
			}
			if !ofNamespace && x.namespaces != nil && !x.namespaces.Matches(labels.Set(namespace)) {
				continue
			}
			if x.pods == nil || x.namespaces == nil {
				return x.fact, false
			}
			if x.pods.Matches(labels.Set(pod.Labels)) {
				return x.fact, true
			}
		}
	}
	return nil, true
}

// LabelledBehaviour is what the pod says itself about how it takes part. Empty: nothing.
func LabelledBehaviour(pod *corev1.Pod) v1alpha1.Behaviour {
	for _, key := range []string{v1alpha1.LabelDrain, LabelDrainOfClusterAPI} {
		switch pod.Labels[key] {
		case "drain":
			return v1alpha1.DrainPods
		case "skip":
			return v1alpha1.SkipPods
		case "wait-completed":
			return v1alpha1.WaitCompleted
		}
	}
	return ""
}
