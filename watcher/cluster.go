package watcher

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"
)

// The indexes of pods: by the node that they are bound to, and by the UIDs of their owners. There is one by namespace, too,
// which every informer has.
const (
	byNode  = "node"
	byOwner = "owner"
)

// changes is told what the informers see. Its methods are called one at a time for each kind of object. An argument is
// nil where there is no object; none may be changed. initial says that the object was there when the cache was filled.
type changes interface {
	nodeChanged(old, new *corev1.Node, initial bool)
	podChanged(old, new *corev1.Pod, initial bool)
	budgetChanged(old, new *policyv1.PodDisruptionBudget, initial bool)
	namespaceChanged(old, new *corev1.Namespace, initial bool)
	claimChanged(old, new *corev1.PersistentVolumeClaim, initial bool)
	classChanged(old, new *schedulingv1.PriorityClass, initial bool)
	// storageChanged is told of everything else that decides where a volume can be; old and new are of one kind.
	storageChanged(kind string, old, new metav1.Object, initial bool)
}

// cluster is the watcher's view of the cluster: pruned copies, kept current by watches, and what is derived of them before
// anybody is told of a change. It answers [policy.Facts].
type cluster struct {
	factory    informers.SharedInformerFactory
	nodes      corelisters.NodeLister
	pods       cache.Indexer
	budgets    policylisters.PodDisruptionBudgetLister
	namespaces corelisters.NamespaceLister
	claims     corelisters.PersistentVolumeClaimLister
	classes    schedulinglisters.PriorityClassLister
	caches     []*filling
	room       *room
	owners     owners
	covers     covers
}

// newCluster prepares the informers; start fills them. onError is told every time a watch fails.
func newCluster(client kubernetes.Interface, to changes, onError cache.WatchErrorHandlerWithContext) (*cluster, error) {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(prune))
	core := f.Core().V1()
	pods := core.Pods().Informer()
	c := &cluster{
		factory: f, nodes: core.Nodes().Lister(), pods: pods.GetIndexer(), namespaces: core.Namespaces().Lister(),
		budgets: f.Policy().V1().PodDisruptionBudgets().Lister(), claims: core.PersistentVolumeClaims().Lister(),
		classes: f.Scheduling().V1().PriorityClasses().Lister(), room: newRoom(),
	}
	if err := pods.AddIndexers(cache.Indexers{byNode: podNode, byOwner: podOwners}); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	for _, i := range c.watched(to) {
		filling := &filling{}
		if err := i.informer.SetWatchErrorHandlerWithContext(filling.noting(onError)); err != nil {
			return nil, fmt.Errorf("set the watch error handler: %w", err)
		}
		registration, err := i.informer.AddEventHandler(i.handler)
		if err != nil {
			return nil, fmt.Errorf("add the event handler: %w", err)
		}
		filling.synced = registration.HasSynced
		c.caches = append(c.caches, filling)
	}
	return c, nil
}

// watched is one kind of object that is watched.
type watched struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandler
}

// watched lists all kinds. What is derived of an object is current by the time that anybody is told of the change.
func (c *cluster) watched(to changes) []watched {
	core, storage, r := c.factory.Core().V1(), c.factory.Storage().V1(), c.room
	return []watched{
		{core.Nodes().Informer(), handler(first(to.nodeChanged, r.node))},
		{core.Pods().Informer(), handler(first(to.podChanged, r.pod, c.owners.pod))},
		{c.factory.Policy().V1().PodDisruptionBudgets().Informer(), handler(first(to.budgetChanged, c.covers.budget))},
		{core.Namespaces().Informer(), handler(first(to.namespaceChanged, r.namespace))},
		{core.PersistentVolumeClaims().Informer(), handler(first(to.claimChanged, r.claim))},
		{c.factory.Scheduling().V1().PriorityClasses().Informer(), handler(to.classChanged)},
		{core.PersistentVolumes().Informer(), storing("PersistentVolume", to, r.volume)},
		{storage.StorageClasses().Informer(), storing("StorageClass", to, r.storageClass)},
		{storage.CSINodes().Informer(), storing("CSINode", to, r.csiNode)},
		{storage.CSIDrivers().Informer(), storing("CSIDriver", to, r.csiDriver)},
		{storage.CSIStorageCapacities().Informer(), storing("CSIStorageCapacity", to, r.capacity)},
		{storage.VolumeAttachments().Informer(), storing("VolumeAttachment", to, r.attachment)},
	}
}

// first calls what derives something of an object before what is told of the change.
func first[T any](tell func(old, new *T, initial bool), derive ...func(old, new *T)) func(old, new *T, initial bool) {
	return func(old, new *T, initial bool) {
		for _, d := range derive {
			d(old, new)
		}
		tell(old, new, initial)
	}
}

// storing is the handler of a kind that only decides where a volume can be.
func storing[T any](kind string, to changes, derive func(old, new *T)) cache.ResourceEventHandler {
	return handler(first(telling[T](kind, to), derive))
}

// podNode is the key of a pod in the index by node.
func podNode(object any) ([]string, error) {
	p, ok := object.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return nil, nil
	}
	return []string{p.Spec.NodeName}, nil
}

// podOwners are the keys of a pod in the index by owner.
func podOwners(object any) ([]string, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	var keys []string
	for uid := range ownersOf(p) {
		keys = append(keys, string(uid))
	}
	return keys, nil
}

// handler turns the informer's three callbacks into one function of old and new.
func handler[T any](changed func(old, new *T, initial bool)) cache.ResourceEventHandler {
	object := func(o any) *T {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		t, _ := o.(*T)
		return t
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initial bool) { changed(nil, object(o), initial) },
		UpdateFunc: func(a, b any) { changed(object(a), object(b), false) },
		DeleteFunc: func(o any) { changed(object(o), nil, false) },
	}
}

// start begins to fill the caches. They are current until ctx ends.
func (c *cluster) start(ctx context.Context) { c.factory.StartWithContext(ctx) }

// wait returns when the caches are filled, with false when ctx ended before.
func (c *cluster) wait(ctx context.Context) bool {
	synced := make([]cache.InformerSynced, len(c.caches))
	for i, f := range c.caches {
		synced[i] = f.synced
	}
	return cache.WaitForCacheSync(ctx.Done(), synced...)
}

// stop waits until the informers have ended, after the context of start.
func (c *cluster) stop() { c.factory.Shutdown() }

// filled says what keeps the caches from being filled; nil when they are.
func (c *cluster) filled() error {
	var failures []error
	filled := true
	for _, f := range c.caches {
		if !f.synced() {
			filled = false
			failures = append(failures, f.failure())
		}
	}
	switch err := errors.Join(failures...); {
	case filled:
		return nil
	case err != nil:
		return fmt.Errorf("the caches are not filled yet: %w", err)
	}
	return errors.New("the caches are not filled yet")
}

// podsOn lists the pods that are bound to a node, also those that have ended, in no order.
func (c *cluster) podsOn(node string) ([]*corev1.Pod, error) { return c.podsBy(byNode, node) }

// podsBy lists the pods with a key in an index, in no order.
func (c *cluster) podsBy(index, key string) ([]*corev1.Pod, error) {
	objects, err := c.pods.ByIndex(index, key)
	if err != nil {
		return nil, fmt.Errorf("pods of %s %s: %w", index, key, err)
	}
	list := make([]*corev1.Pod, 0, len(objects))
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			list = append(list, p)
		}
	}
	return list, nil
}

// allPods lists all pods, in no order.
func (c *cluster) allPods() []*corev1.Pod {
	objects := c.pods.List()
	list := make([]*corev1.Pod, 0, len(objects))
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			list = append(list, p)
		}
	}
	return list
}

// pod returns the pod of that namespace and name that is bound to a node, or nil.
func (c *cluster) pod(key string) (*corev1.Pod, error) {
	object, found, err := c.pods.GetByKey(key)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", key, err)
	}
	p, ok := object.(*corev1.Pod)
	if !found || !ok || p.Spec.NodeName == "" {
		return nil, nil
	}
	return p, nil
}

// nodeNames lists the names of all nodes that match.
func (c *cluster) nodeNames(selector labels.Selector) ([]string, error) {
	list, err := c.nodes.List(selector)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	names := make([]string, len(list))
	for i, n := range list {
		names[i] = n.Name
	}
	return names, nil
}

// allows says whether a budget allows a disruption now, as far as its status tells; a budget that is gone does.
func (c *cluster) allows(name types.NamespacedName) bool {
	b, err := c.budgets.PodDisruptionBudgets(name.Namespace).Get(name.Name)
	return err != nil || allows(b)
}

func allows(b *policyv1.PodDisruptionBudget) bool {
	return b.Status.DisruptionsAllowed > 0 && b.Status.ObservedGeneration >= b.Generation
}
