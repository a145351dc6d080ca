package watcher

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"
)

// store stands for the informer of one kind: it keeps objects that it is given, and tells of each change.
type store interface {
	change(object any, gone bool) error
}

// kept is the store of objects of type T.
type kept[T any] struct {
	indexer cache.Indexer
	changed func(old, new *T, initial bool)
}

// change adds, replaces or removes an object.
func (k kept[T]) change(o any, gone bool) error {
	object, _ := o.(*T)
	found, exists, err := k.indexer.Get(object)
	if err != nil {
		return err
	}
	var before *T
	if exists {
		before, _ = found.(*T)
	}
	switch {
	case gone && before == nil:
		return nil
	case gone:
		if err := k.indexer.Delete(object); err != nil {
			return err
		}
		object = nil
	default:
		if err := k.indexer.Update(object); err != nil {
			return err
		}
	}
	k.changed(before, object, false)
	return nil
}

// newOfflineCluster is a view without informers, and the stores that fill it.
func newOfflineCluster(to changes) (*cluster, map[reflect.Type]store) {
	indexer := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	nodes, budgets, namespaces, claims, classes := indexer(), indexer(), indexer(), indexer(), indexer()
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, byNode: podNode, byOwner: podOwners,
	})
	c := &cluster{
		nodes: corelisters.NewNodeLister(nodes), pods: pods, budgets: policylisters.NewPodDisruptionBudgetLister(budgets),
		namespaces: corelisters.NewNamespaceLister(namespaces), claims: corelisters.NewPersistentVolumeClaimLister(claims),
		classes: schedulinglisters.NewPriorityClassLister(classes), room: newRoom(),
	}
	r := c.room
	return c, map[reflect.Type]store{
		reflect.TypeFor[*corev1.Node](): kept[corev1.Node]{nodes, first(to.nodeChanged, r.node)},
		reflect.TypeFor[*corev1.Pod]():  kept[corev1.Pod]{pods, first(to.podChanged, r.pod, c.owners.pod)},
		reflect.TypeFor[*policyv1.PodDisruptionBudget](): kept[policyv1.PodDisruptionBudget]{
			budgets, first(to.budgetChanged, c.covers.budget),
		},
		reflect.TypeFor[*corev1.Namespace]():             kept[corev1.Namespace]{namespaces, first(to.namespaceChanged, r.namespace)},
		reflect.TypeFor[*corev1.PersistentVolumeClaim](): kept[corev1.PersistentVolumeClaim]{claims, first(to.claimChanged, r.claim)},
		reflect.TypeFor[*schedulingv1.PriorityClass]():   kept[schedulingv1.PriorityClass]{classes, to.classChanged},
		reflect.TypeFor[*corev1.PersistentVolume]():      keeping("PersistentVolume", indexer(), to, r.volume),
		reflect.TypeFor[*storagev1.StorageClass]():       keeping("StorageClass", indexer(), to, r.storageClass),
		reflect.TypeFor[*storagev1.CSINode]():            keeping("CSINode", indexer(), to, r.csiNode),
		reflect.TypeFor[*storagev1.CSIDriver]():          keeping("CSIDriver", indexer(), to, r.csiDriver),
		reflect.TypeFor[*storagev1.CSIStorageCapacity](): keeping("CSIStorageCapacity", indexer(), to, r.capacity),
		reflect.TypeFor[*storagev1.VolumeAttachment]():   keeping("VolumeAttachment", indexer(), to, r.attachment),
	}
}

// keeping is the store of a kind that only decides where a volume can be.
func keeping[T any](kind string, in cache.Indexer, to changes, derive func(old, new *T)) store {
	return kept[T]{in, first(telling[T](kind, to), derive)}
}

// telling tells of changes of a kind that only decides where a volume can be.
func telling[T any](kind string, to changes) func(old, new *T, initial bool) {
	object := func(t *T) metav1.Object {
		if t == nil {
			return nil
		}
		o, _ := any(t).(metav1.Object)
		return o
	}
	return func(old, new *T, initial bool) { to.storageChanged(kind, object(old), object(new), initial) }
}
