package plan

import (
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// LabelDrainOfClusterAPI is a label with the meaning of [v1alpha1.LabelDrain], which takes precedence.
const LabelDrainOfClusterAPI = "cluster.x-k8s.io/drain"

// Rules are drain rules with parsed selectors. The zero value has none.
type Rules []rule

type rule struct {
	*Rule
	pods, namespaces labels.Selector // nil if invalid
}

// NewRules parses rules. The first rule that selects a pod applies, rules of its namespace before cluster rules.
func NewRules(facts []Rule) Rules {
	var ofNamespaces, ofCluster Rules
	for i := range facts {
		r := rule{Rule: &facts[i]}
		r.pods, _ = readSelector(r.Spec.Pods)
		r.namespaces, _ = readSelector(r.Spec.Namespaces)
		if r.Namespace == "" {
			ofCluster = append(ofCluster, r)
		} else {
			ofNamespaces = append(ofNamespaces, r)
		}
	}
	return append(ofNamespaces, ofCluster...)
}

// readSelector parses a selector; without one it selects everything. It is nil with an error.
func readSelector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// For returns the rule for a pod whose namespace has these labels. readable is false if an earlier rule with an invalid
// selector may apply to the pod.
func (r Rules) For(pod *corev1.Pod, namespace map[string]string) (found *Rule, readable bool) {
	for _, x := range r {
		switch {
		case x.Namespace != "" && x.Namespace != pod.Namespace:
		case x.Namespace == "" && x.namespaces != nil && !x.namespaces.Matches(labels.Set(namespace)):
		case x.pods == nil || x.namespaces == nil:
			return x.Rule, false
		case x.pods.Matches(labels.Set(pod.Labels)):
			return x.Rule, true
		}
	}
	return nil, true
}

// LabelledBehaviour returns the behavior that a label of the pod requests, or "".
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

// fate is what happens to a pod on a node in progress.
type fate int

const (
	stays  fate = iota // it stays
	gone               // it counts as gone
	ends               // it ends by itself, or is terminating
	moves              // it moves
	leaves             // a move of it is in progress
)

// fate returns the fate of a pod with that behavior. selected means that a step of the plan selects it.
func (w *work) fate(n *node, p *corev1.Pod, behavior v1alpha1.Behaviour, selected bool) fate {
	comesBack := comesBack(p)
	switch {
	case isMirror(p), behavior == v1alpha1.SkipPods:
		return stays
	case ofDaemonSet(p) && !selected:
		return stays
	case comesBack && !ofDaemonSet(p) && behavior != v1alpha1.DrainPods && behavior != v1alpha1.WaitCompleted:
		return stays
	case comesBack && w.cameBack(n, p):
		return stays
	case p.DeletionTimestamp != nil && n.unreachable() && w.overdue(p):
		return gone
	case p.DeletionTimestamp != nil, behavior == v1alpha1.WaitCompleted:
		return ends
	}
	return moves
}

// cameBack reports whether a pod was created after the node began to drain.
func (w *work) cameBack(n *node, p *corev1.Pod) bool {
	from, _ := drainStart(&w.Maintenance, n.is)
	return p.CreationTimestamp.After(from)
}

// overdue reports whether the pod should have been gone for some time.
func (w *work) overdue(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && !w.Now.Before(p.DeletionTimestamp.Add(Grace))
}

// isMirror reports whether the pod only mirrors a static pod of the kubelet.
func isMirror(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" })
}

func ofDaemonSet(p *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && owner.Kind == "DaemonSet"
}

// comesBack reports whether the scheduler would place the pod on a cordoned node.
func comesBack(p *corev1.Pod) bool {
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return schedulingv1.TolerationsTolerateTaint(logr.Logger{}, p.Spec.Tolerations, &cordon, true)
}
