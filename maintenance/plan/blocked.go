package plan

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// mostBlocked is how many blocked pods the status of a node names, and mostNamed how many that of a maintenance does: with
// [MostNodes] nodes it still fits into one object of the API server.
const mostBlocked, mostNamed = 20, 1000

// barred says whether it makes no sense to try to move the pod. One that could not move when it was tried is tried again.
func (p pod) barred() bool {
	return p.blocked != nil && (p.blocked.Reason == v1alpha1.BlockedProtected && len(p.Protected) > 0 ||
		p.blocked.Reason == v1alpha1.BlockedInvalidRule)
}

// block is why the pod cannot move, or does not go. Its Since is empty where it is not known.
func (w *work) block(n *node, p pod, rule *Rule, readable bool) *v1alpha1.BlockedPod {
	b := &v1alpha1.BlockedPod{Namespace: p.Pod.Namespace, Name: p.Pod.Name}
	switch {
	case p.fate == ends && w.overdue(&p.Pod):
		b.Reason, b.Since = v1alpha1.BlockedTerminating, second(p.Pod.DeletionTimestamp.Time)
		b.Message = "it is terminating, and was to be gone at " + clock(p.Pod.DeletionTimestamp.Time)
		if len(p.Pod.Finalizers) > 0 {
			b.Message += "; it has the finalizer " + p.Pod.Finalizers[0]
		}
	case p.fate != moves:
		return nil
	case !readable && behaviour(&p.Pod, nil, true) == "":
		b.Reason, b.By = v1alpha1.BlockedInvalidRule, ruleName(rule)
		b.Message = "a selector of the rule cannot be read: it may be meant for this pod"
	case len(p.Protected) > 0:
		b.Reason, b.Message = v1alpha1.BlockedProtected, p.Protected[0].Rule+": "+p.Protected[0].Detail
	case p.Held != nil && holds(p.Held):
		b.Reason, b.Message, b.Since = string(p.Held.Reason), p.Held.Message, second(p.Held.Since)
		if len(p.Held.Blockers) > 0 {
			b.By = p.Held.Blockers[0].String()
		}
	default:
		return nil
	}
	if b.Since == nil {
		b.Since = w.since(n, *b)
	}
	b.Message = short(b.Message, mostOfOne)
	return b
}

// holds says whether a verdict tells why a pod does not move. Those that say that it is gone, or moves already, do not.
func holds(h *LastVerdict) bool {
	switch h.Reason {
	case schemas.ReasonPodGone, schemas.ReasonPodTerminating, schemas.ReasonPodMoved, schemas.ReasonPodEnded, schemas.ReasonMoving:
		return false
	}
	return h.Outcome == schemas.Deferred || h.Outcome == schemas.Rejected || h.Outcome == schemas.Failed
}

// since is when the same was said of the pod first, as far as the status tells.
func (w *work) since(n *node, b v1alpha1.BlockedPod) *metav1.Time {
	for _, was := range n.was.Blocked {
		if was.Namespace == b.Namespace && was.Name == b.Name && was.Reason == b.Reason && was.Since != nil {
			return was.Since
		}
	}
	return w.at.DeepCopy()
}

func ruleName(r *Rule) string {
	if r.Namespace == "" {
		return "clusterdrainrule/" + r.Name
	}
	return "drainrule/" + r.Namespace + "/" + r.Name
}

// blocked are the first of the pods of a node that cannot move, and how many there are.
func (n *node) blocked() (first []v1alpha1.BlockedPod, count int32) {
	for _, p := range n.pods {
		if p.blocked == nil {
			continue
		}
		if count++; count <= mostBlocked {
			first = append(first, *p.blocked)
		}
	}
	return first, count
}

// within names no more of the blocked pods of a node than there is room for, and counts the others.
func within(room int, is v1alpha1.NodeStatus) v1alpha1.NodeStatus {
	if others := len(is.Blocked) - room; others > 0 {
		is.Blocked, is.More = is.Blocked[:room], is.More+int32(others)
	}
	return is
}
