package watcher

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
)

// byNode is the index of pods by the node they are bound to.
const byNode = "node"

// changes is told what the informers see. Its methods are called one at a time for each kind of object. An argument is
// nil where there is no object; none may be changed. initial says that the object was there when the cache was filled.
type changes interface {
	nodeChanged(old, new *corev1.Node, initial bool)
	podChanged(old, new *corev1.Pod, initial bool)
	budgetChanged(old, new *policyv1.PodDisruptionBudget, initial bool)
}

// cluster is the watcher's view of the cluster: pruned copies, kept current by watches.
type cluster struct {
	factory informers.SharedInformerFactory
	nodes   corelisters.NodeLister
	pods    cache.Indexer
	budgets policylisters.PodDisruptionBudgetLister
	room    *room
	synced  []cache.InformerSynced
	// nodeStore and budgetStore are what the listers read.
	nodeStore, budgetStore cache.Indexer
}

// newCluster prepares the informers; start fills them. onError is told every time a watch fails.
func newCluster(client kubernetes.Interface, to changes, onError cache.WatchErrorHandlerWithContext) (*cluster, error) {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(prune))
	nodes, pods, budgets := f.Core().V1().Nodes(), f.Core().V1().Pods(), f.Policy().V1().PodDisruptionBudgets()
	c := &cluster{
		factory: f, nodes: nodes.Lister(), pods: pods.Informer().GetIndexer(), budgets: budgets.Lister(), room: newRoom(),
	}
	if err := pods.Informer().AddIndexers(cache.Indexers{byNode: podNode}); err != nil {
		return nil, fmt.Errorf("index pods by node: %w", err)
	}
	for _, i := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{nodes.Informer(), handler(to.nodeChanged)},
		{pods.Informer(), handler(to.podChanged)},
		{budgets.Informer(), handler(to.budgetChanged)},
	} {
		if err := i.informer.SetWatchErrorHandlerWithContext(onError); err != nil {
			return nil, fmt.Errorf("set the watch error handler: %w", err)
		}
		registration, err := i.informer.AddEventHandler(i.handler)
		if err != nil {
			return nil, fmt.Errorf("add the event handler: %w", err)
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

// newOfflineCluster is a view without informers, to be filled by hand.
func newOfflineCluster() *cluster {
	stores := [3]cache.Indexer{}
	for i := range stores {
		stores[i] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, byNode: podNode,
		})
	}
	return &cluster{
		nodeStore: stores[0], nodes: corelisters.NewNodeLister(stores[0]),
		pods: stores[1], room: newRoom(),
		budgetStore: stores[2], budgets: policylisters.NewPodDisruptionBudgetLister(stores[2]),
	}
}

// podNode is the key of a pod in the index by node.
func podNode(object any) ([]string, error) {
	p, ok := object.(*corev1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return nil, nil
	}
	return []string{p.Spec.NodeName}, nil
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
	return cache.WaitForCacheSync(ctx.Done(), c.synced...)
}

// stop waits until the informers have ended, after the context of start.
func (c *cluster) stop() { c.factory.Shutdown() }

// filled says whether the caches are filled.
func (c *cluster) filled() bool {
	for _, synced := range c.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// podsOn lists the pods that are bound to a node, also those that have ended, in no order.
func (c *cluster) podsOn(node string) ([]*corev1.Pod, error) {
	objects, err := c.pods.ByIndex(byNode, node)
	if err != nil {
		return nil, fmt.Errorf("pods of node %s: %w", node, err)
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

// namespaceLabels are the labels of a namespace, nil if they are not known.
func (c *cluster) namespaceLabels(string) labels.Set { return nil }

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
