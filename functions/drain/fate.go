package drain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/placement"
	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// fate is what is to become of a pod.
type fate int

const (
	stays fate = iota // it is not to move
	gone              // it counts as gone
	ends              // it goes by itself, or is on its way
	moves             // it is to move
)

// behaviour is what is wanted of the pod by itself, or else by its rule. Empty: nothing in particular.
func behaviour(p *corev1.Pod, rule *schemas.DrainRuleFact, readable bool) v1alpha1.Behaviour {
	if labelled := maintenance.LabelledBehaviour(p); labelled != "" || rule == nil || !readable {
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
	return p.DeletionTimestamp != nil && !w.Now.Before(p.DeletionTimestamp.Add(maintenance.Grace))
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
	return placement.Tolerates(p.Spec.Tolerations, &cordon)
}
