package cluster

import (
	"errors"
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Kind is a kind of object that a [Cache] can hold, named by its resource.
type Kind string

// The kinds.
const (
	Nodes                  Kind = "nodes"
	Pods                   Kind = "pods"
	PodDisruptionBudgets   Kind = "poddisruptionbudgets"
	Namespaces             Kind = "namespaces"
	PriorityClasses        Kind = "priorityclasses"
	PersistentVolumeClaims Kind = "persistentvolumeclaims"
	PersistentVolumes      Kind = "persistentvolumes"
	StorageClasses         Kind = "storageclasses"
	CSINodes               Kind = "csinodes"
	CSIDrivers             Kind = "csidrivers"
	CSIStorageCapacities   Kind = "csistoragecapacities"
	VolumeAttachments      Kind = "volumeattachments"
	ReplicaSets            Kind = "replicasets"
	Deployments            Kind = "deployments"
	StatefulSets           Kind = "statefulsets"
	ReplicationControllers Kind = "replicationcontrollers"
)

// PlacementKinds returns the kinds that decide where a pod fits. With all of them the cache answers [Cache.Elsewhere].
func PlacementKinds() []Kind {
	return []Kind{
		Nodes, Pods, Namespaces, PersistentVolumeClaims, PersistentVolumes, StorageClasses, CSINodes, CSIDrivers,
		CSIStorageCapacities, VolumeAttachments,
	}
}

// WorkloadKinds returns the kinds that [Workloads] depends on.
func WorkloadKinds() []Kind {
	return []Kind{Nodes, Pods, PodDisruptionBudgets, ReplicaSets, Deployments, StatefulSets, ReplicationControllers}
}

// held is one kind that a cache holds.
type held struct {
	kind     Kind
	object   reflect.Type // as the API server sends it
	informer cache.SharedIndexInformer
	indexer  cache.Indexer // the informer's store; offline the only store
	synced   cache.InformerSynced
	// handlers are the indexes of the cache, then the handlers of the roles.
	handlers []func(old, new any, initial bool)
}

// add makes the cache hold the kind of objects O, stored as T, if the configuration wants it. update are the indexes.
func add[O, T any](
	c *Cache, group schema.GroupVersion, kind Kind, indexers cache.Indexers, update ...func(old, new *T, initial bool),
) error {
	if !c.wants(kind) {
		return nil
	}
	h := &held{kind: kind, object: reflect.TypeFor[*O]()}
	if c.factory == nil {
		h.indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	} else {
		informer, err := c.factory.ForResource(group.WithResource(string(kind)))
		if err != nil {
			return fmt.Errorf("informer of %s: %w", kind, err)
		}
		h.informer = informer.Informer()
		h.indexer = h.informer.GetIndexer()
	}
	if err := h.indexer.AddIndexers(indexers); err != nil {
		return fmt.Errorf("index %s: %w", kind, err)
	}
	for _, f := range update {
		h.handlers = append(h.handlers, typed(f))
	}
	c.held = append(c.held, h)
	return nil
}

// typed returns an untyped handler that calls a typed one.
func typed[T any](f func(old, new *T, initial bool)) func(old, new any, initial bool) {
	return func(old, new any, initial bool) {
		before, _ := old.(*T)
		after, _ := new.(*T)
		f(before, after, initial)
	}
}

// Kept lists the types that the cache stores. Their objects lack the fields that no role reads. The cache stores ReplicaSets,
// Deployments, StatefulSets, and ReplicationControllers as another type, which only [Workloads] reads.
type Kept interface {
	corev1.Node | corev1.Pod | policyv1.PodDisruptionBudget | corev1.Namespace | schedulingv1.PriorityClass |
		corev1.PersistentVolumeClaim | corev1.PersistentVolume | storagev1.StorageClass | storagev1.CSINode | storagev1.CSIDriver |
		storagev1.CSIStorageCapacity | storagev1.VolumeAttachment
}

// AddHandler calls f for every change of a kind of object. old is nil for an added object, new for a deleted one. If an
// object was replaced under the same name between two lists, f gets both. initial reports that the object existed when
// the cache was filled. Add handlers before [Cache.Run]. For a kind that the cache does not hold, f is never called.
func AddHandler[T Kept](c *Cache, f func(old, new *T, initial bool)) {
	for _, h := range c.held {
		if h.object == reflect.TypeFor[*T]() {
			h.handlers = append(h.handlers, typed(f))
		}
	}
}

// OnUpdate passes a change to the indexes and then to the roles.
func (c *Cache) OnUpdate(h *held, old, new any, initial bool) {
	for _, f := range h.handlers {
		f(old, new, initial)
	}
}

// handler returns a handler that calls OnUpdate for every event of an informer.
func (c *Cache) handler(h *held) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initial bool) { c.OnUpdate(h, nil, o, initial) },
		UpdateFunc: func(a, b any) { c.OnUpdate(h, a, b, false) },
		DeleteFunc: func(o any) {
			if unseen, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unseen.Obj
			}
			c.OnUpdate(h, o, nil, false)
		},
	}
}

// hold makes the cache hold the kinds that the configuration wants.
func (c *Cache) hold() error {
	core, apps, storage := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, storagev1.SchemeGroupVersion
	r, w := c.capacity, c.workloads
	return errors.Join(
		add[corev1.Node](c, core, Nodes, nil, every(placement[corev1.Node](r)), w.nodeChanged),
		add[corev1.Pod](c, core, Pods, cache.Indexers{byNode: nodeOf, byOwner: ownersOf}, every(r.pod), every(w.podChanged)),
		add[policyv1.PodDisruptionBudget](c, policyv1.SchemeGroupVersion, PodDisruptionBudgets, nil, every(w.budgetChanged)),
		add[corev1.Namespace](c, core, Namespaces, nil, every(placement[corev1.Namespace](r))),
		add[schedulingv1.PriorityClass, schedulingv1.PriorityClass](c, schedulingv1.SchemeGroupVersion, PriorityClasses, nil),
		add[corev1.PersistentVolumeClaim](c, core, PersistentVolumeClaims, nil, every(placement[corev1.PersistentVolumeClaim](r))),
		add[corev1.PersistentVolume](c, core, PersistentVolumes, nil, every(placement[corev1.PersistentVolume](r))),
		add[storagev1.StorageClass](c, storage, StorageClasses, nil, every(placement[storagev1.StorageClass](r))),
		add[storagev1.CSINode](c, storage, CSINodes, nil, every(placement[storagev1.CSINode](r))),
		add[storagev1.CSIDriver](c, storage, CSIDrivers, nil, every(placement[storagev1.CSIDriver](r))),
		add[storagev1.CSIStorageCapacity](c, storage, CSIStorageCapacities, nil, every(placement[storagev1.CSIStorageCapacity](r))),
		add[storagev1.VolumeAttachment](c, storage, VolumeAttachments, nil, every(placement[storagev1.VolumeAttachment](r))),
		add[appsv1.ReplicaSet](c, apps, ReplicaSets, nil, every(w.controllerChanged)),
		add[appsv1.Deployment](c, apps, Deployments, nil, every(w.controllerChanged)),
		add[appsv1.StatefulSet](c, apps, StatefulSets, nil, every(w.controllerChanged)),
		add[corev1.ReplicationController](c, core, ReplicationControllers, nil, every(w.controllerChanged)),
	)
}

// object is an object that has a UID.
type object[T any] interface {
	*T
	GetUID() types.UID
}

// every returns a handler that treats initial objects like others. It splits an unseen replacement into a deletion and
// an addition.
func every[T any, P object[T]](f func(old, new *T)) func(old, new *T, initial bool) {
	return func(old, new *T, _ bool) {
		if old != nil && new != nil && P(old).GetUID() != P(new).GetUID() {
			f(old, nil)
			old = nil
		}
		f(old, new)
	}
}

// The indexes of pods in addition to the index by namespace.
const (
	byNode  = "node"
	byOwner = "owner"
)

func nodeOf(object any) ([]string, error) {
	if p, ok := object.(*corev1.Pod); ok && p.Spec.NodeName != "" {
		return []string{p.Spec.NodeName}, nil
	}
	return nil, nil
}

func ownersOf(object any) ([]string, error) {
	var uids []string
	if p, ok := object.(*corev1.Pod); ok {
		for i := range p.OwnerReferences {
			uids = append(uids, string(p.OwnerReferences[i].UID))
		}
	}
	return uids, nil
}

// Set adds or replaces an object of a cache without informers, and drops its fields that no role reads. It fails for a
// kind that the cache does not hold.
func (c *Cache) Set(o any) error { return c.set(o, false) }

func (c *Cache) set(o any, initial bool) error {
	h, old, err := c.find(o)
	if err != nil {
		return err
	}
	pruned, err := c.prune(o)
	if err != nil {
		return err
	}
	if err := h.indexer.Update(pruned); err != nil {
		return err
	}
	c.OnUpdate(h, old, pruned, initial)
	return nil
}

// Remove removes an object of a cache without informers, if it exists.
func (c *Cache) Remove(o any) error {
	h, old, err := c.find(o)
	if err != nil || old == nil {
		return err
	}
	if err := h.indexer.Delete(old); err != nil {
		return err
	}
	c.OnUpdate(h, old, nil, false)
	return nil
}

// find returns the kind of an object, and the object of that name in the cache, or nil.
func (c *Cache) find(o any) (*held, any, error) {
	for _, h := range c.held {
		if h.object != reflect.TypeOf(o) {
			continue
		}
		m, ok := o.(metav1.Object)
		if !ok {
			break
		}
		old, _, err := h.indexer.GetByKey(cache.MetaObjectToName(m).String())
		return h, old, err
	}
	return nil, nil, fmt.Errorf("this cache holds no objects of type %T", o)
}
