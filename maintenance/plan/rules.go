package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// LabelDrainOfClusterAPI is the label that counts like [v1alpha1.LabelDrain], and less if a pod has both.
const LabelDrainOfClusterAPI = "cluster.x-k8s.io/drain"

// Rules are drain rules, ready to be asked about many pods. The zero value has none.
type Rules struct{ list []rule }

type rule struct {
	fact       *Rule
	pods       labels.Selector // nil: it cannot be read
	namespaces labels.Selector // nil: it cannot be read
}

// NewRules reads rules. The first that selects a pod counts, those of its namespace before those of the cluster.
func NewRules(facts []Rule) Rules {
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
func (r Rules) For(pod *corev1.Pod, namespace map[string]string) (found *Rule, readable bool) {
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

// fate is what is to become of a pod.
type fate int

const (
	stays fate = iota // it is not to move
	gone              // it counts as gone
	ends              // it goes by itself, or is on its way
	moves             // it is to move
)

// behaviour is what is wanted of the pod by itself, or else by its rule. Empty: nothing in particular.
func behaviour(p *corev1.Pod, rule *Rule, readable bool) v1alpha1.Behaviour {
	if labelled := LabelledBehaviour(p); labelled != "" || rule == nil || !readable {
		return labelled
	}
	return rule.Spec.Behavior
}

// fate is what is to become of a pod of which that is wanted. selected: a step of the plan names it.
func (w *work) fate(n *node, p *corev1.Pod, wanted v1alpha1.Behaviour, selected bool) fate {
	comesBack := comesBack(p)
	switch {
	case isMirror(p), wanted == v1alpha1.SkipPods:
		return stays
	case ofDaemonSet(p) && !selected:
		return stays
	case comesBack && !ofDaemonSet(p) && wanted != v1alpha1.DrainPods && wanted != v1alpha1.WaitCompleted:
		return stays
	case comesBack && p.CreationTimestamp.After(n.is.Start.Time): // it did come back
		return stays
	case p.DeletionTimestamp != nil && n.unreachable() && w.overdue(p):
		return gone
	case p.DeletionTimestamp != nil, wanted == v1alpha1.WaitCompleted:
		return ends
	}
	return moves
}

// overdue says whether the pod was to be gone long ago.
func (w *work) overdue(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && !w.Now.Before(p.DeletionTimestamp.Add(Grace))
}

// isMirror says whether the pod only shows one that the kubelet runs from a file.
func isMirror(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" })
}

func ofDaemonSet(p *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && owner.Kind == "DaemonSet"
}

// comesBack says whether the scheduler would place the pod on a cordoned node.
func comesBack(p *corev1.Pod) bool {
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return schedulingv1.TolerationsTolerateTaint(klog.Logger{}, p.Spec.Tolerations, &cordon, true)
}
