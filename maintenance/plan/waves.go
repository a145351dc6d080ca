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

// pod is a pod of a node that is worked on, and what is to become of it.
type pod struct {
	*PodFacts
	fate fate
	wave wave
	// blocked is why it cannot move though it is to. nil: nothing.
	blocked *v1alpha1.BlockedPod
}

// wave is when a pod moves: by the step of the plan, and then by the order of its rule.
type wave struct {
	step  int
	order int32
}

func (a wave) compare(b wave) int {
	return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.order, b.order))
}

// step is one step of the plan with its selectors read. A selector that cannot be read selects nothing, since such a plan is
// refused.
type step struct {
	pods, namespaces labels.Selector
	priority         int32
	daemonSets       bool
}

func readPlan(plan []v1alpha1.DrainStep) []step {
	var list []step
	for _, s := range plan {
		priority := int32(math.MaxInt32)
		if s.Priority != nil {
			priority = *s.Priority
		}
		list = append(list, step{readSelector(s.Pods), readSelector(s.Namespaces), priority, s.Type == v1alpha1.DaemonSetPods})
	}
	return list
}

func readSelector(s *metav1.LabelSelector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	read, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return read
}

// stepOf is the number of the step that selects the pod; the one after the last if none does.
func (w *work) stepOf(p *corev1.Pod) (number int, selected bool) {
	var priority int32
	if p.Spec.Priority != nil {
		priority = *p.Spec.Priority
	}
	for i, s := range w.plan {
		if s.daemonSets == ofDaemonSet(p) && priority <= s.priority && s.pods.Matches(labels.Set(p.Labels)) &&
			s.namespaces.Matches(labels.Set(w.Namespaces[p.Namespace])) {
			return i, true
		}
	}
	return len(w.plan), false
}

// sort says of every pod of the node what is to become of it.
func (w *work) sort(n *node) []pod {
	list := make([]pod, len(n.in.Pods))
	for i := range n.in.Pods {
		p := pod{PodFacts: &n.in.Pods[i]}
		rule, readable := w.rules.For(&p.Pod, w.Namespaces[p.Pod.Namespace])
		number, selected := w.stepOf(&p.Pod)
		p.wave.step = number
		if rule != nil && readable {
			p.wave.order = rule.Spec.Order
		}
		p.fate = w.fate(n, &p.Pod, behaviour(&p.Pod, rule, readable), selected)
		if p.fate == moves && p.Moving {
			p.fate = ends
		}
		p.blocked = w.block(n, p, rule, readable)
		list[i] = p
	}
	slices.SortStableFunc(list, func(a, b pod) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return list
}

// left are the pods that are to go and are still there.
func (n *node) left() int {
	count := 0
	for _, p := range n.pods {
		if p.fate == ends || p.fate == moves {
			count++
		}
	}
	return count
}

// now is the wave that is on: the first of which pods are left.
func (n *node) now() wave {
	first := wave{step: math.MaxInt}
	for _, p := range n.pods {
		if (p.fate == ends || p.fate == moves) && p.wave.compare(first) < 0 {
			first = p.wave
		}
	}
	return first
}

// intents are the pods that are to move now: on nodes that are stored as being drained, and cordoned.
func (w *work) intents() []schemas.Intent {
	var list []schemas.Intent
	for _, n := range w.nodes {
		if n.is.Stage != v1alpha1.Draining || !w.known(n) || !n.cordoned() || closedGate(n) != "" {
			continue
		}
		reason := fmt.Sprintf("maintenance %s drains node %s: %s", w.Maintenance.Name, n.is.Name, w.spec.Reason)
		now := n.now()
		for _, p := range n.pods {
			if p.fate == moves && p.wave == now && !p.barred() {
				list = append(list, p.Move(reason))
			}
		}
	}
	return list
}

// count counts the pods of a node.
func (w *work) count(n *node) {
	if !w.counted(n) {
		return
	}
	c := v1alpha1.PodCounts{Left: int32(n.left())}
	for _, p := range n.pods {
		if p.fate == stays {
			c.Staying++
		}
	}
	if was := n.was.Pods; was != nil {
		excused := max(0, c.Staying-was.Staying) // are still there, and not to move any more
		c.Moved = was.Moved + max(0, was.Left-c.Left-excused)
	}
	n.is.Blocked, c.Blocked = n.blocked()
	n.is.More = c.Blocked - int32(len(n.is.Blocked))
	n.is.Pods = &c
}

// counted says whether the pods of the node are known: it was stored as one that is worked on.
func (w *work) counted(n *node) bool {
	return WorkedOn(n.was.Stage) && n.was.UID == n.is.UID
}
