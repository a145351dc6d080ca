package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// capacity answers where pods fit. The informers pass it every change. Changes of one kind come in order, but changes
// of different kinds do not, so for a moment a pod may be known before its node. Questions can take long, and informer
// handlers must not wait for them, so changes that arrive during a question are applied before the next one. Safe for
// concurrent use.
type capacity struct {
	known bool // the cache holds all kinds that decide it
	mu    sync.RWMutex
	fit   *fit.Cluster
	// reserved are the reservations by the UIDs of the moved pods. mu guards it.
	reserved     map[types.UID]*reservation
	reservations int // the number of reservations so far

	changes sync.Mutex
	pending []func() // changes that are not applied yet, in order
}

func newCapacity(known bool) *capacity {
	return &capacity{known: known, fit: fit.New(), reserved: map[types.UID]*reservation{}}
}

// placement returns a handler of a kind that decides where pods fit. old is nil for a new object, new for a deleted
// one.
func placement[T any, P interface {
	*T
	metav1.Object
}](r *capacity) func(old, new *T) {
	return func(old, new *T) {
		switch {
		case new != nil:
			r.add(func() { r.fit.Set(P(new)) })
		case old != nil:
			r.add(func() { r.fit.Remove(P(old)) })
		}
	}
}

func (r *capacity) pod(old, new *corev1.Pod) {
	if old == nil || new == nil || !SamePlacement(old, new) {
		placement[corev1.Pod](r)(old, new)
	}
	switch {
	case new == nil:
		r.add(func() { r.gone(old.UID) })
	case new.Spec.NodeName != "" && (old == nil || old.Spec.NodeName == ""):
		r.add(func() { r.bound(new) })
	}
}

// add applies a change, now or before the next question.
func (r *capacity) add(apply func()) {
	if !r.known {
		return
	}
	r.changes.Lock()
	r.pending = append(r.pending, apply)
	r.changes.Unlock()
	if r.mu.TryLock() {
		r.apply()
		r.mu.Unlock()
	}
}

// lock locks for a change, with all earlier changes applied.
func (r *capacity) lock() {
	r.mu.Lock()
	r.apply()
}

// apply applies the pending changes. The caller holds mu.
func (r *capacity) apply() {
	r.changes.Lock()
	pending := r.pending
	r.pending = nil
	r.changes.Unlock()
	for _, apply := range pending {
		apply()
	}
}

// SamePlacement reports whether two states of a pod in the cache are equal for the decision where pods fit. It returns
// false during an in-place resize: the cache has the resources of containers only while they differ from the spec.
func SamePlacement(a, b *corev1.Pod) bool {
	return schemas.Ended(a) == schemas.Ended(b) && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		a.Status.NominatedNodeName == b.Status.NominatedNodeName && !Resizing(a) && !Resizing(b) &&
		maps.Equal(a.Labels, b.Labels) && reflect.DeepEqual(a.Spec, b.Spec)
}

// Resizing reports whether the kubelet has given a pod in the cache other resources than its spec has.
func Resizing(p *corev1.Pod) bool {
	differs := func(s corev1.ContainerStatus) bool { return s.Resources != nil || s.AllocatedResources != nil }
	return p.Status.Resources != nil || p.Status.AllocatedResources != nil ||
		slices.ContainsFunc(p.Status.ContainerStatuses, differs) || slices.ContainsFunc(p.Status.InitContainerStatuses, differs)
}

// notKnown is the reason in a process that does not watch the kinds that decide where pods fit.
const notKnown = "not judged: this process does not watch the kinds that decide it"

// Elsewhere reports whether the pod's replacement fits on another one of the targets, and if not, why not. judged is
// false if the pod cannot be judged; then it does not fit. It does not change the pod.
func (c *Cache) Elsewhere(pod *corev1.Pod, to policy.Targets) (fits, judged bool, why string) {
	result, why := c.Search(pod, to)
	return result.OK, result.Judged, why
}

// Search is Elsewhere with the first fitting node.
func (c *Cache) Search(pod *corev1.Pod, to policy.Targets) (result fit.Result, why string) {
	if !c.capacity.known {
		return result, notKnown
	}
	c.Ask(pod, func(q *fit.Question) { result = q.Elsewhere(fit.Search{Allowed: IsTarget(to)}) })
	return result, describe(result, to.Nodes)
}

// IsTarget returns a function that reports whether a node is one of the targets.
func IsTarget(to policy.Targets) func(*corev1.Node) bool {
	return func(n *corev1.Node) bool {
		return !NotReady(n) && (to.Nodes == nil || to.Nodes.Matches(labels.Set(n.Labels))) && Closed(n, to.Signals) == ""
	}
}

// describe returns the reason why a replacement fits on no other node that nodes selects, or "".
func describe(result fit.Result, nodes labels.Selector) string {
	switch {
	case result.OK:
		return ""
	case !result.Judged:
		return fmt.Sprintf("not judged: %s", result.Reason)
	case len(result.Refused) > 0:
		return Refusal(result.Refused)
	case nodes != nil:
		return fmt.Sprintf("there is no other node that is ready, not excluded, and matches %q", nodes)
	}
	return "there is no other node that is ready and not excluded"
}

// Ask prepares a question about a pod or its replacement. The cluster does not change while f runs. f must not keep the
// question.
func (c *Cache) Ask(pod *corev1.Pod, f func(*fit.Question)) {
	c.capacity.lock()
	c.capacity.mu.Unlock()
	c.capacity.mu.RLock()
	defer c.capacity.mu.RUnlock()
	f(c.capacity.fit.Ask(pod))
}

// Refusal describes why nodes refused a pod, with the number of nodes for each reason, most frequent first.
func Refusal(refused map[fit.Reason]int) string {
	all := 0
	for _, nodes := range refused {
		all += nodes
	}
	if all == 1 {
		for reason := range refused {
			return fmt.Sprintf("does not fit on the only other node: %s", reason)
		}
	}
	return fmt.Sprintf("fits on none of %d other nodes: %s", all, Reasons(refused))
}

// Reasons returns the reasons why nodes refused a pod, with the number of nodes for each, most frequent first.
func Reasons(refused map[fit.Reason]int) string {
	reasons := slices.SortedFunc(maps.Keys(refused), func(a, b fit.Reason) int {
		return cmp.Or(cmp.Compare(refused[b], refused[a]), cmp.Compare(a, b))
	})
	words := make([]string, len(reasons))
	for i, reason := range reasons {
		words[i] = fmt.Sprintf("%s on %d", reason, refused[reason])
	}
	return strings.Join(words, ", ")
}
