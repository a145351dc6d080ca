package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Config configures a [Cache].
type Config struct {
	Client kubernetes.Interface
	// Kinds are the kinds to hold. The client needs the rights to list and watch them in all namespaces. Duplicates are allowed.
	Kinds []Kind
	// Log may be nil for no logs.
	Log *slog.Logger
}

// Cache is a view of the cluster, which may be milliseconds old. Use [New] or [NewOffline] to make one.
type Cache struct {
	kinds     []Kind
	client    kubernetes.Interface // nil if offline
	log       *slog.Logger
	factory   informers.SharedInformerFactory // nil if offline
	held      []*held
	shared    templates
	capacity  *capacity
	workloads *Workloads
	outage    rate.Sometimes // limits the warnings about an unavailable API server
	synced    chan struct{}

	mu       sync.Mutex
	failures map[Kind]error // the last failure of each kind
}

// New returns a cache that is empty until [Cache.Run].
func New(config Config) (*Cache, error) {
	c := newCache(config)
	c.factory = informers.NewSharedInformerFactoryWithOptions(config.Client, 0, informers.WithTransform(c.prune))
	if err := c.hold(); err != nil {
		return nil, err
	}
	for _, h := range c.held {
		if err := h.informer.SetWatchErrorHandlerWithContext(c.watchFailed(h.kind)); err != nil {
			return nil, fmt.Errorf("set the watch error handler of %s: %w", h.kind, err)
		}
		registration, err := h.informer.AddEventHandler(c.handler(h))
		if err != nil {
			return nil, fmt.Errorf("add the event handler of %s: %w", h.kind, err)
		}
		h.synced = registration.HasSynced
	}
	return c, nil
}

// NewOffline returns a cache without informers. [Cache.Set] and [Cache.Remove] change it; the caller makes one change
// at a time.
func NewOffline(kinds ...Kind) (*Cache, error) {
	c := newCache(Config{Kinds: kinds})
	close(c.synced)
	return c, c.hold()
}

func newCache(config Config) *Cache {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	c := &Cache{
		kinds: config.Kinds, client: config.Client, log: config.Log, outage: rate.Sometimes{Interval: outageInterval},
		synced: make(chan struct{}), failures: map[Kind]error{}, workloads: newWorkloads(time.Now),
	}
	c.capacity = newCapacity(c.wants(PlacementKinds()...))
	return c
}

// wants reports whether the configuration has all these kinds.
func (c *Cache) wants(kinds ...Kind) bool {
	return !slices.ContainsFunc(kinds, func(k Kind) bool { return !slices.Contains(c.kinds, k) })
}

// Run fills the cache and keeps it current until ctx ends. It returns nil. Call it once. While the API server is
// unavailable, or refuses a request, Run keeps trying. It asks for the version of the API server once, when the cache is
// filled.
func (c *Cache) Run(ctx context.Context) error {
	c.factory.StartWithContext(ctx)
	checks := make([]cache.InformerSynced, len(c.held))
	for i, h := range c.held {
		checks[i] = h.synced
	}
	if cache.WaitForCacheSync(ctx.Done(), checks...) {
		c.learnVersion(ctx)
		c.log.Info("caches are filled")
		close(c.synced)
	}
	<-ctx.Done()
	c.factory.Shutdown()
	return nil
}

// WaitForSync returns when the cache is filled, or false when ctx ends first.
func (c *Cache) WaitForSync(ctx context.Context) bool {
	select {
	case <-c.synced:
		return true
	case <-ctx.Done():
		return false
	}
}

// Synced is closed when the cache is filled.
func (c *Cache) Synced() <-chan struct{} { return c.synced }

// Ready returns the reasons why the cache is not filled, such as each missing right, or nil when it is filled.
func (c *Cache) Ready() error {
	select {
	case <-c.synced:
		return nil
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var failures []error
	for _, h := range c.held {
		if !h.synced() {
			failures = append(failures, c.failures[h.kind])
		}
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("cluster: the caches are not filled yet: %w", err)
	}
	return errors.New("cluster: the caches are not filled yet")
}

// outageInterval is how often a lasting outage is logged: each informer retries every few seconds.
const outageInterval = 30 * time.Second

// watchFailed records and logs that a kind could not be listed or watched. It logs each missing right separately,
// because an administrator must grant all of them. A watch that ended normally, or whose resource version expired, is
// no outage.
func (c *Cache) watchFailed(kind Kind) cache.WatchErrorHandlerWithContext {
	forbidden := &rate.Sometimes{Interval: outageInterval}
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		c.mu.Lock()
		c.failures[kind] = err
		c.mu.Unlock()
		warnings := &c.outage
		switch {
		case ctx.Err() != nil, errors.Is(err, io.EOF), apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			return
		case apierrors.IsForbidden(err):
			warnings = forbidden
		}
		warnings.Do(func() {
			c.log.Warn("cannot watch the API server; retrying", "kind", kind, "error", err)
		})
	}
}

// Workloads returns the view of pods by the workloads that they belong to.
func (c *Cache) Workloads() *Workloads { return c.workloads }

// Pod returns the pod of that name, or nil.
func (c *Cache) Pod(namespace, name string) *corev1.Pod {
	return get[corev1.Pod](c, Pods, namespace, name)
}

// PodByUID returns the pod with that UID, or nil.
func (c *Cache) PodByUID(uid types.UID) *corev1.Pod { return c.workloads.Object(uid) }

// AllPods lists all pods, in no order.
func (c *Cache) AllPods() []*corev1.Pod { return list[corev1.Pod](c, Pods, "", "") }

// PodsOnNode returns the pods that are bound to a node, including ended pods, in no order.
func (c *Cache) PodsOnNode(node string) []*corev1.Pod { return list[corev1.Pod](c, Pods, byNode, node) }

// PodsOfOwner returns the pods that name an owner, whether or not it controls them, in no order.
func (c *Cache) PodsOfOwner(owner types.UID) []*corev1.Pod {
	return list[corev1.Pod](c, Pods, byOwner, string(owner))
}

// PodsInNamespace returns the pods of a namespace, in no order.
func (c *Cache) PodsInNamespace(namespace string) []*corev1.Pod {
	return list[corev1.Pod](c, Pods, cache.NamespaceIndex, namespace)
}

// Node returns the node of that name, or nil.
func (c *Cache) Node(name string) *corev1.Node { return get[corev1.Node](c, Nodes, "", name) }

// AllNodes returns the nodes that match, in no order.
func (c *Cache) AllNodes(selector labels.Selector) []*corev1.Node {
	nodes := list[corev1.Node](c, Nodes, "", "")
	if selector.Empty() {
		return nodes
	}
	return slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return !selector.Matches(labels.Set(n.Labels)) })
}

// Budget returns the PodDisruptionBudget of that name, or nil.
func (c *Cache) Budget(namespace, name string) *policyv1.PodDisruptionBudget {
	return get[policyv1.PodDisruptionBudget](c, PodDisruptionBudgets, namespace, name)
}

// BudgetsInNamespace copies the PodDisruptionBudgets of a namespace, in no order.
func (c *Cache) BudgetsInNamespace(namespace string) (all []policyv1.PodDisruptionBudget) {
	for _, b := range list[policyv1.PodDisruptionBudget](c, PodDisruptionBudgets, cache.NamespaceIndex, namespace) {
		all = append(all, *b.DeepCopy())
	}
	return all
}

// Copies copies all objects of the types of [Kept], in no order.
func (c *Cache) Copies() (all []metav1.Object) {
	for _, h := range c.held {
		for _, o := range h.indexer.List() {
			kept, ok := o.(runtime.Object)
			if !ok {
				continue // a controller
			}
			if object, ok := kept.DeepCopyObject().(metav1.Object); ok {
				all = append(all, object)
			}
		}
	}
	return all
}

// NamespaceNames lists the names of all namespaces, in no order.
func (c *Cache) NamespaceNames() (names []string) {
	if h := c.of(Namespaces); h != nil {
		names = h.indexer.ListKeys()
	}
	return names
}

// Namespace returns the namespace of that name, or nil.
func (c *Cache) Namespace(name string) *corev1.Namespace {
	return get[corev1.Namespace](c, Namespaces, "", name)
}

func get[T any](c *Cache, kind Kind, namespace, name string) *T {
	h := c.of(kind)
	if h == nil {
		return nil
	}
	o, _, err := h.indexer.GetByKey(cache.NewObjectName(namespace, name).String())
	if err != nil { // a store in memory has no errors
		return nil
	}
	t, _ := o.(*T)
	return t
}

// list returns the objects of a kind with a key in an index, or all without an index.
func list[T any](c *Cache, kind Kind, index, key string) []*T {
	h := c.of(kind)
	if h == nil {
		return nil
	}
	var objects []any
	if index == "" {
		objects = h.indexer.List()
	} else {
		var err error
		if objects, err = h.indexer.ByIndex(index, key); err != nil { // there is such an index
			return nil
		}
	}
	all := make([]*T, 0, len(objects))
	for _, o := range objects {
		if t, ok := o.(*T); ok {
			all = append(all, t)
		}
	}
	return all
}

func (c *Cache) of(kind Kind) *held {
	for _, h := range c.held {
		if h.kind == kind {
			return h
		}
	}
	return nil
}
