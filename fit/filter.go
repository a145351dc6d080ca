package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
)

// node judges by what the node is, whatever pods are on it. A verdict without a reason: no objection.
func (q *Question) node(h *host) Verdict {
	tolerations := q.pod.Spec.Tolerations
	if h.node.Spec.Unschedulable && !tolerates(tolerations, &corev1.Taint{
		Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule,
	}) {
		return no(Cordoned, "")
	}
	if taint := Untolerated(h.node.Spec.Taints, tolerations); taint != nil {
		return no(Taint, taint.Key)
	}
	if !q.nodes.matches(h.node) {
		return no(NodeAffinity, "")
	}
	for _, feature := range q.features {
		if !slices.Contains(h.node.Status.DeclaredFeatures, feature) {
			return no(NodeFeatures, feature)
		}
	}
	return q.claims.on(h)
}

// Untolerated is the first taint that keeps a pod with these tolerations away, nil if there is none.
func Untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range taints {
		if KeepsAway(&taints[i]) && !tolerates(tolerations, &taints[i]) {
			return &taints[i]
		}
	}
	return nil
}

// KeepsAway says whether the scheduler places no pod on a node with the taint that does not tolerate it.
func KeepsAway(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// tolerates asks the scheduler's own rule. The operators Gt and Lt count: where they are switched off, the API server
// lets no pod have them.
func tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	return silently(schedulingv1.TolerationsTolerateTaint, tolerations, taint)
}

// silently calls the rule with the zero value of its logger, which writes nothing. Its type is inferred, so that no
// logger has to be imported.
func silently[L any](rule func(L, []corev1.Toleration, *corev1.Taint, bool) bool,
	tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	var silent L
	return rule(silent, tolerations, taint, true)
}

// hosting judges by what the pods on the node leave: ports, room, resources, disks and attachments. A verdict without a
// reason: no objection.
func (q *Question) hosting(h *host) Verdict {
	for _, want := range q.ports {
		for taken := range h.ports {
			if want.collides(taken) {
				return no(HostPort, "")
			}
		}
	}
	if int64(len(h.pods))+1 > h.room {
		return no(PodCount, "")
	}
	if name := lacking(&q.wants, &h.allocatable, &h.requested); name != "" {
		return no(Resource, string(name))
	}
	for i := range q.disks {
		for _, other := range h.withVolumes {
			for j := range other.disks {
				if q.disks[i].excludes(&other.disks[j]) {
					return no(VolumeConflict, q.disks[i].volume)
				}
			}
		}
	}
	return q.claims.attachable(h)
}
