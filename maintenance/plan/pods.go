package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// mostBlocked is how many blocked pods the status of a node names, and mostNamed how many that of a maintenance does: with
// [MostNodes] nodes it still fits into one object of the API server.
const mostBlocked, mostNamed = 20, 1000

// pod is a pod on a node in progress, and what becomes of it.
type pod struct {
	*PodFacts
	fate fate
	wave wave
	// blocked is why it cannot move though it should. barred: trying makes no sense.
	blocked *v1alpha1.BlockedPod
	barred  bool
}

// left says whether the pod has still to leave the node.
func (p pod) left() bool { return p.fate == ends || p.fate == moves }

// wave is when a pod moves: by the step of the plan, then by the order of its rule.
type wave struct {
	step  int
	order int32
}

func (a wave) compare(b wave) int {
	return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.order, b.order))
}

// step is one step of spec.plan. A plan with an invalid selector is refused, so such a selector selects nothing here.
type step struct {
	pods, namespaces labels.Selector
	priority         int32
	daemonSets       bool
}

func readPlan(plan []v1alpha1.DrainStep) (list []step) {
	for _, s := range plan {
		x := step{priority: math.MaxInt32, daemonSets: s.Type == v1alpha1.DaemonSetPods}
		if s.Priority != nil {
			x.priority = *s.Priority
		}
		var wrongPods, wrongNamespaces error
		x.pods, wrongPods = readSelector(s.Pods)
		x.namespaces, wrongNamespaces = readSelector(s.Namespaces)
		if wrongPods != nil || wrongNamespaces != nil {
			x.pods, x.namespaces = labels.Nothing(), labels.Nothing()
		}
		list = append(list, x)
	}
	return list
}

// stepOf is the number of the step that selects the pod; the one after the last if none does.
func (w *work) stepOf(p *corev1.Pod) (number int, selected bool) {
	var priority int32
	if p.Spec.Priority != nil {
		priority = *p.Spec.Priority
	}
	i := slices.IndexFunc(w.plan, func(s step) bool {
		return s.daemonSets == ofDaemonSet(p) && priority <= s.priority && s.pods.Matches(labels.Set(p.Labels)) &&
			s.namespaces.Matches(labels.Set(w.Namespaces[p.Namespace]))
	})
	if i < 0 {
		return len(w.plan), false
	}
	return i, true
}

// sort decides what becomes of the pods of a node.
func (w *work) sort(n *node) []pod {
	list := make([]pod, len(n.in.Pods))
	for i := range n.in.Pods {
		p := pod{PodFacts: &n.in.Pods[i]}
		rule, readable := w.rules.For(&p.Pod, w.Namespaces[p.Pod.Namespace])
		behavior, selected := LabelledBehaviour(&p.Pod), false
		unknown := !readable && behavior == ""
		if p.wave.step, selected = w.stepOf(&p.Pod); rule != nil && readable {
			p.wave.order, behavior = rule.Spec.Order, cmp.Or(behavior, rule.Spec.Behavior)
		}
		p.fate = w.fate(n, &p.Pod, behavior, selected)
		if p.fate == moves && p.Moving {
			p.fate = ends
		}
		if !unknown {
			rule = nil
		}
		p.blocked, p.barred = w.block(n, p, rule)
		list[i] = p
	}
	slices.SortStableFunc(list, func(a, b pod) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return list
}

// block is why the pod cannot move, or does not end. invalid is a rule with an invalid selector that may be about the pod.
func (w *work) block(n *node, p pod, invalid *Rule) (b *v1alpha1.BlockedPod, barred bool) {
	b = &v1alpha1.BlockedPod{Namespace: p.Pod.Namespace, Name: p.Pod.Name}
	switch {
	case p.fate == ends && w.overdue(&p.Pod):
		b.Reason, b.Since = v1alpha1.BlockedTerminating, second(p.Pod.DeletionTimestamp.Time)
		b.Message = "it is terminating, and should be gone since " + clock(p.Pod.DeletionTimestamp.Time)
		if len(p.Pod.Finalizers) > 0 {
			b.Message += "; it has the finalizer " + p.Pod.Finalizers[0]
		}
	case p.fate != moves:
		return nil, false
	case invalid != nil:
		b.Reason, b.By, barred = v1alpha1.BlockedInvalidRule, ruleName(invalid), true
		b.Message = "a selector of the rule is invalid: the rule may be about this pod"
	case len(p.Protected) > 0:
		b.Reason, b.Message, barred = v1alpha1.BlockedProtected, p.Protected[0].Rule+": "+p.Protected[0].Detail, true
	case p.LastVerdict != nil && p.LastVerdict.blocks():
		b.Reason, b.Message, b.Since = string(p.LastVerdict.Reason), p.LastVerdict.Message, second(p.LastVerdict.Since)
		if len(p.LastVerdict.Blockers) > 0 {
			b.By = p.LastVerdict.Blockers[0].String()
		}
	default:
		return nil, false
	}
	if b.Since == nil {
		b.Since = w.blockedSince(n, *b)
	}
	b.Message = short(b.Message, mostOfOne)
	return b, barred
}

// blocks says whether the verdict says why a pod does not move. Those about pods that are gone or move already do not.
func (v *LastVerdict) blocks() bool {
	switch v.Reason {
	case schemas.ReasonPodGone, schemas.ReasonPodTerminating, schemas.ReasonPodMoved, schemas.ReasonPodEnded, schemas.ReasonMoving:
		return false
	}
	return v.Outcome == schemas.Deferred || v.Outcome == schemas.Rejected || v.Outcome == schemas.Failed
}

// blockedSince is when the pod was first blocked for that reason, by the status.
func (w *work) blockedSince(n *node, b v1alpha1.BlockedPod) *metav1.Time {
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

// left counts the pods that have still to leave the node.
func (n *node) left() (count int) {
	for _, p := range n.pods {
		if p.left() {
			count++
		}
	}
	return count
}

// now is the wave that moves: the first with a pod on the node.
func (n *node) now() wave {
	first := wave{step: math.MaxInt}
	for _, p := range n.pods {
		if p.left() && p.wave.compare(first) < 0 {
			first = p.wave
		}
	}
	return first
}

// intents are the pods to move now: on nodes that are stored as draining, and cordoned.
func (w *work) intents() (list []schemas.Intent) {
	for _, n := range w.nodes {
		if n.is.Stage != v1alpha1.Draining || !w.known(n) || !n.cordoned() || closedGate(n) != "" {
			continue
		}
		reason := fmt.Sprintf("maintenance %s drains node %s: %s", w.Maintenance.Name, n.is.Name, w.spec.Reason)
		now := n.now()
		for _, p := range n.pods {
			if p.fate == moves && p.wave == now && !p.barred {
				list = append(list, p.Move(reason))
			}
		}
	}
	return list
}

// count counts the pods of a node that is stored as in progress, and names the first blocked ones.
func (w *work) count(n *node) {
	if !w.counted(n) {
		return
	}
	c := v1alpha1.PodCounts{Left: int32(n.left())}
	for _, p := range n.pods {
		if p.fate == stays {
			c.Staying++
		}
		if p.blocked == nil {
			continue
		}
		if c.Blocked++; c.Blocked <= mostBlocked {
			n.is.Blocked = append(n.is.Blocked, *p.blocked)
		}
	}
	if was := n.was.Pods; was != nil {
		excused := max(0, c.Staying-was.Staying) // they are still there, and do not move any more
		c.Moved = was.Moved + max(0, was.Left-c.Left-excused)
	}
	n.is.More, n.is.Pods = c.Blocked-int32(len(n.is.Blocked)), &c
}

// counted says whether the facts have the pods of the node.
func (w *work) counted(n *node) bool { return InProgress(n.was.Stage) && n.was.UID == n.is.UID }
