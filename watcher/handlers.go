package watcher

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// The informer handlers. Besides publishing deltas of nodes and pods, they enqueue the scopes of pods whose tolerations
// changed, or whose protection can change because the pod or a related object changed. They skip strategies whose
// profiles ignore that object.

func (w *Watcher) addHandlers() {
	cluster.AddHandler(w.cluster, w.nodeChanged)
	cluster.AddHandler(w.cluster, w.podChanged)
	cluster.AddHandler(w.cluster, whileLeading(w, (*session).budgetChanged))
	cluster.AddHandler(w.cluster, whileLeading(w, (*session).namespaceChanged))
	cluster.AddHandler(w.cluster, whileLeading(w, (*session).claimChanged))
	cluster.AddHandler(w.cluster, whileLeading(w, (*session).priorityClassChanged))
	cluster.AddHandler(w.cluster, storageChanged[corev1.PersistentVolume](w, "PersistentVolume"))
	cluster.AddHandler(w.cluster, storageChanged[storagev1.StorageClass](w, "StorageClass"))
	cluster.AddHandler(w.cluster, storageChanged[storagev1.CSINode](w, "CSINode"))
	cluster.AddHandler(w.cluster, storageChanged[storagev1.CSIDriver](w, "CSIDriver"))
	cluster.AddHandler(w.cluster, storageChanged[storagev1.CSIStorageCapacity](w, "CSIStorageCapacity"))
	cluster.AddHandler(w.cluster, storageChanged[storagev1.VolumeAttachment](w, "VolumeAttachment"))
}

// whileLeading returns a handler that calls f only while this replica leads.
func whileLeading[T any](w *Watcher, f func(s *session, old, new *T)) func(old, new *T, initial bool) {
	return func(old, new *T, initial bool) {
		if s := w.session.Load(); s != nil && !initial {
			f(s, old, new)
		}
	}
}

// storageChanged returns the handler of a kind that affects only where volumes can be attached.
func storageChanged[T any, P interface {
	*T
	metav1.Object
}](w *Watcher, kind string) func(old, new *T, initial bool) {
	return whileLeading(w, func(s *session, old, new *T) { s.capacityChanged(kind, P(cmp.Or(new, old))) })
}

func (w *Watcher) nodeChanged(old, new *corev1.Node, initial bool) {
	s := w.session.Load()
	if s == nil || initial {
		return
	}
	groups, minNodesCrossed := s.scopes.NodeChanged(old, new)
	s.Observe(ObserveNode(old, new), groups, nodeRef(cmp.Or(new, old)))
	switch {
	case minNodesCrossed:
		s.evaluateAll()
	case s.policy.ExclusionChanged(old, new):
		s.capacityChanged("Node", new)
		t := s.newTrigger(schemas.Cause{Kind: schemas.CauseResync})
		for _, st := range s.policy.Strategies {
			s.enqueueNode(st, new.Name, t)
		}
	}
}

func (w *Watcher) podChanged(old, new *corev1.Pod, initial bool) {
	s := w.session.Load()
	if s == nil || initial {
		return
	}
	p := cmp.Or(new, old)
	gone := old != nil && (new == nil || new.UID != old.UID)
	if gone { // before Observe enqueues a newer pod of the same name
		s.dequeue(old)
	}
	groups := s.scopes.PodChanged(old, new, w.now())
	s.Observe(ObservePod(old, new), groups, *refTo("Pod", p))
	if gone {
		s.blocked.gone(old.UID)
		s.moving.Delete(old.UID)
		s.requests.PodGone(old.UID)
	}
	if usesCapacity(old) != usesCapacity(new) || usesCapacity(new) && (old.UID != new.UID || !cluster.SamePlacement(old, new)) {
		s.capacityChanged("Pod", p)
	}
	woken := s.ownersChanged(old, new)
	if old != nil && new != nil && old.UID == new.UID {
		s.reviewProtections(old, new, woken)
	}
}

// ownersChanged enqueues the pods of owners that have another number of pods after a change of a pod. It returns the
// strategies for which it has enqueued the pod itself.
func (s *session) ownersChanged(old, new *corev1.Pod) (woken []*scope.Strategy) {
	was, is := cluster.Owners(old), cluster.Owners(new)
	for uid := range was {
		if !is[uid] {
			s.replicasChanged(uid, old, -1)
		}
	}
	for uid := range is {
		if !was[uid] {
			woken = append(woken, s.replicasChanged(uid, new, 1)...)
		}
	}
	return woken
}

// reviewProtections enqueues the scopes of a pod for the strategies that a change of the pod may affect without a delta,
// except the strategies in woken, which were enqueued before.
func (s *session) reviewProtections(old, new *corev1.Pod, woken []*scope.Strategy) {
	var list []*scope.Strategy
	switch {
	case !equality.Semantic.DeepEqual(old.Spec.Tolerations, new.Spec.Tolerations): // Observe has enqueued the groups
		list = slices.DeleteFunc(slices.Clone(s.policy.Strategies), (*scope.Strategy).Grouped)
	case protectionDiffers(old, new):
		now := s.w.now()
		protections := func(e policy.Evictor, p *corev1.Pod) []schemas.Protection {
			return e.ProtectsBut([]string{policy.NodeFitRule}, p, now, s.w.cluster)
		}
		list = s.reading(func(e policy.Evictor) bool { return !slices.Equal(protections(e, old), protections(e, new)) })
	}
	list = slices.DeleteFunc(list, func(st *scope.Strategy) bool { return slices.Contains(woken, st) })
	if len(list) > 0 {
		s.protectionChanged(list, "Pod", new, []*corev1.Pod{new})
	}
}

// protectionDiffers reports whether a change of a pod can change which rules protect it. It ignores the phase, whose changes
// are deltas.
func protectionDiffers(old, new *corev1.Pod) bool {
	return !maps.Equal(old.Labels, new.Labels) || !maps.Equal(old.Annotations, new.Annotations) ||
		!old.Status.StartTime.Equal(new.Status.StartTime) || !reflect.DeepEqual(old.OwnerReferences, new.OwnerReferences)
}

// reading returns the strategies of the profiles whose protections read the changed field or object.
func (s *session) reading(reads func(policy.Evictor) bool) []*scope.Strategy {
	return slices.DeleteFunc(slices.Clone(s.policy.Strategies), func(st *scope.Strategy) bool { return !reads(st.Profile.Evictor) })
}

func refTo(kind string, o metav1.Object) *schemas.ObjectRef {
	return &schemas.ObjectRef{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}
}

// protectionChanged enqueues the scopes of pods whose protection may have changed because an object changed.
func (s *session) protectionChanged(strategies []*scope.Strategy, kind string, because metav1.Object, pods []*corev1.Pod) {
	t := s.newTrigger(schemas.Cause{Kind: schemas.CauseFact, Object: refTo(kind, because)})
	for _, st := range strategies {
		s.enqueuePods(st, t, pods...)
	}
}

// replicasChanged enqueues the pods of an owner when their number crosses the minimum that a policy requires, and returns
// the strategies with that minimum. by is the change of the number.
func (s *session) replicasChanged(owner types.UID, p *corev1.Pod, by int) (list []*scope.Strategy) {
	n := s.w.cluster.Replicas(owner)
	list = s.reading(func(e policy.Evictor) bool {
		least := int(min(e.Args().MinReplicas, 1<<30))
		return e.Needs().Replicas && (n < least) != (n-by < least)
	})
	if len(list) > 0 {
		s.protectionChanged(list, "Pod", p, s.w.cluster.PodsOfOwner(owner))
	}
	return list
}

func (s *session) budgetChanged(old, new *policyv1.PodDisruptionBudget) {
	b := cmp.Or(new, old)
	if new == nil || cluster.Allows(new) {
		ref := refTo(budgetKind, b)
		s.unblock(s.newTrigger(schemas.Cause{Kind: schemas.CauseBudgetFreed, Object: ref}), *ref)
	}
	list := s.reading(func(e policy.Evictor) bool { return e.Needs().Budgets })
	if len(list) == 0 || old != nil && new != nil && equality.Semantic.DeepEqual(old.Spec.Selector, new.Spec.Selector) {
		return
	}
	was, is := cluster.BudgetSelector(old), cluster.BudgetSelector(new)
	s.protectionChanged(list, budgetKind, b, slices.DeleteFunc(s.w.cluster.PodsInNamespace(b.Namespace), func(p *corev1.Pod) bool {
		return was.Matches(labels.Set(p.Labels)) == is.Matches(labels.Set(p.Labels))
	}))
}

func (s *session) namespaceChanged(old, new *corev1.Namespace) {
	n := cmp.Or(new, old)
	if old != nil && new != nil && maps.Equal(old.Labels, new.Labels) {
		return
	}
	t := s.newTrigger(schemas.Cause{Kind: schemas.CauseFact, Object: refTo("Namespace", n)})
	s.capacity.changed(t) // anti-affinity can select namespaces by label
	for st, keys := range s.scopes.NamespaceChanged(n.Name) {
		s.enqueue(st, t, keys...)
	}
	if list := s.reading(func(e policy.Evictor) bool { return e.Needs().Namespaces }); len(list) > 0 {
		s.protectionChanged(list, "Namespace", n, s.w.cluster.PodsInNamespace(n.Name))
	}
}

func (s *session) claimChanged(old, new *corev1.PersistentVolumeClaim) {
	c := cmp.Or(new, old)
	s.capacityChanged("PersistentVolumeClaim", c)
	list := s.reading(func(e policy.Evictor) bool { return e.Needs().StorageClasses })
	if len(list) == 0 || old != nil && new != nil && cluster.ClassOf(old) == cluster.ClassOf(new) {
		return
	}
	uses := func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == c.Name
	}
	s.protectionChanged(list, "PersistentVolumeClaim", c, slices.DeleteFunc(s.w.cluster.PodsInNamespace(c.Namespace),
		func(p *corev1.Pod) bool { return !slices.ContainsFunc(p.Spec.Volumes, uses) }))
}

func (s *session) priorityClassChanged(old, new *schedulingv1.PriorityClass) {
	c := cmp.Or(new, old)
	if old != nil && new != nil && old.Value == new.Value {
		return
	}
	list := s.reading(func(e policy.Evictor) bool { return e.Args().PriorityThreshold.Name == c.Name })
	s.enqueueAll(list, s.newTrigger(schemas.Cause{Kind: schemas.CauseFact, Object: refTo("PriorityClass", c)}), s.policy.Nodes)
}
