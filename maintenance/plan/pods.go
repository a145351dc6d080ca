package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// mostBlocked is the number of blocked pods in the status of a node, and mostNamed in the status of a maintenance. With
// [MostNodes] nodes the status still fits into one object of the API server.
const mostBlocked, mostNamed = 20, 1000

// pod is a pod on a node in progress, with its fate.
type pod struct {
	*PodFacts
	fate fate
	wave wave
	// blocked is the reason why it cannot move although it should. barred means that trying is useless.
	blocked *v1alpha1.BlockedPod
	barred  bool
}

// left reports whether the pod still must leave the node.
func (p pod) left() bool { return p.fate == ends || p.fate == moves || p.fate == leaves }

// wave is the time at which a pod moves: by the step of the plan, then by the order of its rule.
type wave struct {
	step  int
	order int32
}

func (a wave) compare(b wave) int {
	return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.order, b.order))
}

// drainStep is one step of spec.plan. A plan with an invalid selector is refused, so such a selector selects nothing here.
type drainStep struct {
	pods, namespaces labels.Selector
	priority         int32
	daemonSets       bool
}

func readPlan(plan []v1alpha1.DrainStep) (list []drainStep) {
	for _, s := range plan {
		x := drainStep{priority: math.MaxInt32, daemonSets: s.Type == v1alpha1.DaemonSetPods}
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

// stepOf returns the number of the step that selects the pod, or the number after the last step.
func (w *work) stepOf(p *corev1.Pod) (number int, selected bool) {
	var priority int32
	if p.Spec.Priority != nil {
		priority = *p.Spec.Priority
	}
	i := slices.IndexFunc(w.plan, func(s drainStep) bool {
		return s.daemonSets == ofDaemonSet(p) && priority <= s.priority && s.pods.Matches(labels.Set(p.Labels)) &&
			s.namespaces.Matches(labels.Set(w.Namespaces[p.Namespace]))
	})
	if i < 0 {
		return len(w.plan), false
	}
	return i, true
}

// sort determines the fate of the pods of a node.
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
		if p.fate == moves && p.Moving && len(p.Protected) == 0 {
			p.fate = leaves
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

// block returns the reason why the pod cannot move, or does not end. invalid is a rule with an invalid selector that
// may apply to the pod.
func (w *work) block(n *node, p pod, invalid *Rule) (b *v1alpha1.BlockedPod, barred bool) {
	b = &v1alpha1.BlockedPod{Namespace: p.Pod.Namespace, Name: p.Pod.Name}
	switch {
	case p.fate == ends && w.overdue(&p.Pod):
		b.Reason, b.Since = v1alpha1.BlockedTerminating, second(p.Pod.DeletionTimestamp.Time)
		b.Message = "it is terminating, and should have been gone since " + clock(p.Pod.DeletionTimestamp.Time)
		if len(p.Pod.Finalizers) > 0 {
			b.Message += "; it has the finalizer " + p.Pod.Finalizers[0]
		}
	case p.fate != moves:
		return nil, false
	case invalid != nil:
		b.Reason, b.By, barred = v1alpha1.BlockedInvalidRule, ruleName(invalid), true
		b.Message = "a selector of the rule is invalid, so the rule may select this pod; fix the selector"
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

// blocks reports whether the verdict explains why a pod does not move. Verdicts on pods that are gone or moving do not. A verdict
// that settles a move is recorded only if the pod still runs.
func (v *LastVerdict) blocks() bool {
	switch v.Reason {
	case schemas.ReasonPodGone, schemas.ReasonPodTerminating, schemas.ReasonPodMoved, schemas.ReasonPodEnded, schemas.ReasonMoving:
		return false
	}
	switch v.Outcome {
	case schemas.Deferred, schemas.Rejected, schemas.Failed, schemas.Settled:
		return true
	}
	return false
}

// blockedSince returns the time when the pod was first blocked for that reason, according to the status.
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

// left returns the number of pods that still have to leave the node.
func (n *node) left() (count int) {
	for _, p := range n.pods {
		if p.left() {
			count++
		}
	}
	return count
}

// now returns the wave that is moving: the first with a pod on the node.
func (n *node) now() wave {
	first := wave{step: math.MaxInt}
	for _, p := range n.pods {
		if p.left() && p.wave.compare(first) < 0 {
			first = p.wave
		}
	}
	return first
}

// intents returns the pods to move now: on nodes whose stored stage is draining and that are cordoned.
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

// moving returns the pods on draining nodes whose move is in progress and should go on. The move of a terminating pod
// goes on, so that the pod gets its replacement.
func (w *work) moving() map[types.UID]bool {
	moving := map[types.UID]bool{}
	for _, n := range w.nodes {
		for _, p := range n.pods {
			terminates := p.Pod.DeletionTimestamp != nil && p.fate != stays
			if n.is.Stage == v1alpha1.Draining && p.Moving && (p.fate == leaves || terminates) {
				moving[p.Pod.UID] = true
			}
		}
	}
	return moving
}

// count counts the pods of a node whose stored stage is in progress, and names the first blocked ones.
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
		excused := max(0, c.Staying-was.Staying) // they are still there, and no longer move
		c.Moved = was.Moved + max(0, was.Left-c.Left-excused)
	}
	n.is.More, n.is.Pods = c.Blocked-int32(len(n.is.Blocked)), &c
}

// counted reports whether the facts contain the pods of the node.
func (w *work) counted(n *node) bool { return InProgress(n.was.Stage) && n.was.UID == n.is.UID }
