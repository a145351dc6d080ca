package watcher

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// What protects a pod can change without the pod. Here each such change wakes the evaluations of the pods that it
// concerns, by the strategies of those profiles whose protections look at it.

// needing lists the strategies of profiles that need some facts.
func (l *lead) needing(which func(policy.Evictor) bool) []enabled {
	var list []enabled
	for _, s := range l.scopes.plan.all {
		if which(s.profile.Evictor) {
			list = append(list, s)
		}
	}
	return list
}

// fact is the wake that a changed object makes.
func (l *lead) fact(kind string, o metav1.Object) wake {
	now := l.w.now()
	return wake{
		cause: schemas.Cause{Kind: schemas.CauseFact, Object: refTo(kind, o), Time: now.UTC()}, at: now.Add(l.w.config.Settle),
	}
}

func refTo(kind string, o metav1.Object) *schemas.ObjectRef {
	return &schemas.ObjectRef{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
}

// wakePods makes the evaluations pending that concern those of the pods for which concerned is true.
func (l *lead) wakePods(list []enabled, w wake, pods []*corev1.Pod, concerned func(*corev1.Pod) bool) {
	if len(list) == 0 {
		return
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !concerned(p) })
	for _, s := range list {
		woken := map[string]bool{} // nodes, so that their scopes do not list the cause once for each pod
		for _, p := range pods {
			if s.strategy.Scope == schemas.NodeKind && woken[p.Spec.NodeName] {
				continue
			}
			woken[p.Spec.NodeName] = true
			l.wakeFor(s, p, w)
		}
	}
}

// wakeFor makes the evaluations pending that concern a pod. It counts as just bound: there is an answer about it only if
// it is due.
func (l *lead) wakeFor(s enabled, p *corev1.Pod, w wake) {
	var groups touched
	if s.grouped() {
		groups = l.groups.of(s, p)
	}
	l.enqueue(s, l.affectedKeys(s, podDelta(schemas.PodScheduled, p), groups, w))
}

// podFacts is told of every change of a pod: how many pods its owners have, whether a budget selects it, and whether it
// leaves room to others.
func (l *lead) podFacts(old, new *corev1.Pod) {
	l.arrived(old, new)
	if roomDiffers(old, new) {
		p := old
		if p == nil {
			p = new
		}
		w := l.fact("Pod", p)
		w.cause.Kind = schemas.CauseRoom
		l.waiting.room(w)
	}
	for uid := range ownersOf(old) {
		if new == nil || !slices.ContainsFunc(new.OwnerReferences, isOwner(uid)) {
			l.replicasChanged(uid, old, -1)
		}
	}
	for uid := range ownersOf(new) {
		if old == nil || !slices.ContainsFunc(old.OwnerReferences, isOwner(uid)) {
			l.replicasChanged(uid, new, 1)
		}
	}
	if old != nil && new != nil && old.UID == new.UID && !maps.Equal(old.Labels, new.Labels) {
		for _, s := range l.needing(func(e policy.Evictor) bool { return e.Needs().Budgets }) {
			l.wakeFor(s, new, l.fact("Pod", new))
		}
	}
}

func isOwner(uid types.UID) func(metav1.OwnerReference) bool {
	return func(r metav1.OwnerReference) bool { return r.UID == uid }
}

// replicasChanged wakes the pods of an owner by the strategies for which it came to have enough pods, or too few. by is
// how many it has more than before.
func (l *lead) replicasChanged(owner types.UID, p *corev1.Pod, by int) {
	n := l.w.cluster.Replicas(owner)
	list := l.needing(func(e policy.Evictor) bool {
		least := int(min(e.Args().MinReplicas, 1<<30))
		return e.Needs().Replicas && (n < least) != (n-by < least)
	})
	l.wakePods(list, l.fact("Pod", p), l.w.cluster.PodsOfOwner(owner), func(*corev1.Pod) bool { return true })
}

// budgetFacts is told of every change of a budget. What it allows is no fact here.
func (l *lead) budgetFacts(old, new *policyv1.PodDisruptionBudget) {
	b := newest(old, new)
	if old != nil && new != nil && equality.Semantic.DeepEqual(old.Spec.Selector, new.Spec.Selector) {
		return
	}
	list := l.needing(func(e policy.Evictor) bool { return e.Needs().Budgets })
	was, is := cluster.BudgetSelector(old), cluster.BudgetSelector(new)
	l.wakePods(list, l.fact("PodDisruptionBudget", b), l.w.cluster.PodsInNamespace(b.Namespace), func(p *corev1.Pod) bool {
		return was.Matches(labels.Set(p.Labels)) != is.Matches(labels.Set(p.Labels))
	})
}

// namespaceChanged is called by the informer of namespaces.
func (w *Watcher) namespaceChanged(old, new *corev1.Namespace, initial bool) {
	l := w.lead.Load()
	if l == nil || initial {
		return
	}
	n := newest(old, new)
	if old != nil && new != nil && maps.Equal(old.Labels, new.Labels) {
		return
	}
	fact := l.fact("Namespace", n)
	l.waiting.room(fact) // anti-affinity can select namespaces by their labels
	for at, keys := range l.groups.namespaceChanged(n.Name) {
		for _, key := range keys {
			l.add(l.scopes.plan.all[at], key, fact)
		}
	}
	list := l.needing(func(e policy.Evictor) bool { return e.Needs().Namespaces })
	l.wakePods(list, fact, l.w.cluster.PodsInNamespace(n.Name), func(*corev1.Pod) bool { return true })
}

// claimChanged is called by the informer of PersistentVolumeClaims.
func (w *Watcher) claimChanged(old, new *corev1.PersistentVolumeClaim, initial bool) {
	l := w.lead.Load()
	if l == nil || initial {
		return
	}
	c := newest(old, new)
	l.storageRoom("PersistentVolumeClaim", c)
	if old != nil && new != nil && cluster.ClassOf(old) == cluster.ClassOf(new) {
		return
	}
	list := l.needing(func(e policy.Evictor) bool { return e.Needs().StorageClasses })
	l.wakePods(list, l.fact("PersistentVolumeClaim", c), l.w.cluster.PodsInNamespace(c.Namespace), uses(c.Name))
}

// uses says of a pod whether it has the claim as a volume.
func uses(claim string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		})
	}
}

// classChanged is called by the informer of PriorityClasses. A threshold concerns every pod.
func (w *Watcher) classChanged(old, new *schedulingv1.PriorityClass, initial bool) {
	l := w.lead.Load()
	if l == nil || initial {
		return
	}
	c := newest(old, new)
	if old != nil && new != nil && old.Value == new.Value {
		return
	}
	list := l.needing(func(e policy.Evictor) bool { return e.Args().PriorityThreshold.Name == c.Name })
	if len(list) == 0 {
		return
	}
	nodes := nodeNames(l.w.cluster, l.scopes.plan.selector)
	fact := l.fact("PriorityClass", c)
	for _, s := range list {
		for _, n := range nodes {
			l.enqueue(s, l.keysOnNode(s, n, fact))
		}
		if s.grouped() {
			l.wakeAllGroups(s, fact)
		}
	}
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
