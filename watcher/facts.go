package watcher

import (
	"iter"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
)

var _ policy.Facts = (*cluster)(nil)

// Replicas counts the pods of an owner.
func (c *cluster) Replicas(owner types.UID) int { return c.owners.of(owner) }

// Budgeted says whether a PodDisruptionBudget selects the pod.
func (c *cluster) Budgeted(pod *corev1.Pod) bool { return c.covers.pod(pod) }

// StorageClass is the class that a claim names in its spec.
func (c *cluster) StorageClass(namespace, claim string) (class string, found bool) {
	pvc, err := c.claims.PersistentVolumeClaims(namespace).Get(claim)
	if err != nil { // a cache has no other error than that it is not there
		return "", false
	}
	return classOf(pvc), true
}

// classOf is the storage class that a claim names; empty if none.
func classOf(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Spec.StorageClassName == nil {
		return ""
	}
	return *pvc.Spec.StorageClassName
}

// Priority is the value of a PriorityClass.
func (c *cluster) Priority(class string) (value int32, found bool) {
	p, err := c.classes.Get(class)
	if err != nil {
		return 0, false
	}
	return p.Value, true
}

// NamespaceLabels are the labels of a namespace.
func (c *cluster) NamespaceLabels(name string) (of labels.Set, found bool) {
	n, err := c.namespaces.Get(name)
	if err != nil {
		return nil, false
	}
	return n.Labels, true
}

// labelsOfNamespace are the labels of a namespace, nil if it is not known.
func (c *cluster) labelsOfNamespace(name string) labels.Set {
	of, _ := c.NamespaceLabels(name)
	return of
}

// Elsewhere asks the room.
func (c *cluster) Elsewhere(pod *corev1.Pod, nodes labels.Selector) (fits bool, why string) {
	return c.room.elsewhere(pod, nodes)
}

// owners counts pods by the UID of their owner. The zero value has none. Its methods may be called from many goroutines.
type owners struct {
	mu    sync.Mutex
	count map[types.UID]int
}

// pod takes one change of a pod into account.
func (o *owners) pod(old, new *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count == nil {
		o.count = map[types.UID]int{}
	}
	for uid := range ownersOf(old) {
		if o.count[uid]--; o.count[uid] == 0 {
			delete(o.count, uid)
		}
	}
	for uid := range ownersOf(new) {
		o.count[uid]++
	}
}

// of is how many pods an owner has.
func (o *owners) of(uid types.UID) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count[uid]
}

// ownersOf yields the UID of each owner of a pod once; of nil none.
func ownersOf(p *corev1.Pod) iter.Seq[types.UID] {
	return func(yield func(types.UID) bool) {
		if p == nil {
			return
		}
		for i := range p.OwnerReferences {
			uid := p.OwnerReferences[i].UID
			isFirst := !slices.ContainsFunc(p.OwnerReferences[:i], isOwner(uid))
			if isFirst && !yield(uid) {
				return
			}
		}
	}
}

// covers knows which pods PodDisruptionBudgets select. The zero value knows of none. Its methods may be called from many
// goroutines.
type covers struct {
	mu  sync.RWMutex
	all map[string]map[string]labels.Selector // by namespace, then by the name of the budget
}

// budget takes one change of a budget into account. Its selector is compiled here, and not for each pod.
func (c *covers) budget(old, new *policyv1.PodDisruptionBudget) {
	if old != nil && new != nil && equality.Semantic.DeepEqual(old.Spec.Selector, new.Spec.Selector) {
		return // only what it allows, as happens all the time
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case new != nil:
		if c.all == nil {
			c.all = map[string]map[string]labels.Selector{}
		}
		if c.all[new.Namespace] == nil {
			c.all[new.Namespace] = map[string]labels.Selector{}
		}
		c.all[new.Namespace][new.Name] = selectorOf(new)
	case old != nil:
		delete(c.all[old.Namespace], old.Name)
		if len(c.all[old.Namespace]) == 0 {
			delete(c.all, old.Namespace)
		}
	}
}

// pod says whether a budget of its namespace selects the pod.
func (c *covers) pod(p *corev1.Pod) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, selector := range c.all[p.Namespace] {
		if selector.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}
