package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// objects has the maintenances and the drain rules. Callers must not change the returned objects.
type objects struct {
	maintenances cache.Indexer // of *v1alpha1.NodeMaintenance; byNode: the nodes in progress
	rules        cache.Store   // of plan.Rule
}

const byNode = "node"

func newObjects() objects {
	return objects{
		maintenances: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byNode: func(o any) (nodes []string, _ error) {
			for _, n := range o.(*v1alpha1.NodeMaintenance).Status.Nodes {
				if plan.InProgress(n.Stage) {
					nodes = append(nodes, n.Name)
				}
			}
			return nodes, nil
		}}),
		rules: cache.NewStore(func(o any) (string, error) {
			r := o.(plan.Rule)
			return r.Namespace + "/" + r.Name, nil
		}),
	}
}

// set replaces a maintenance, or removes it if it is nil, and returns the previous one.
func (x objects) set(name string, m *v1alpha1.NodeMaintenance) (old *v1alpha1.NodeMaintenance) {
	if old = x.get(name); m != nil {
		_ = x.maintenances.Update(m)
	} else if old != nil {
		_ = x.maintenances.Delete(old)
	}
	return old
}

func (x objects) get(name string) *v1alpha1.NodeMaintenance {
	o, _, _ := x.maintenances.GetByKey(name)
	m, _ := o.(*v1alpha1.NodeMaintenance)
	return m
}

func (x objects) names() []string { return x.maintenances.ListKeys() }

// list returns all maintenances by name.
func (x objects) list() (list []*v1alpha1.NodeMaintenance) {
	for _, name := range slices.Sorted(slices.Values(x.names())) {
		if m := x.get(name); m != nil {
			list = append(list, m)
		}
	}
	return list
}

// workingOn returns the maintenances that have one of these nodes in progress, sorted.
func (x objects) workingOn(nodes ...string) (names []string) {
	for _, n := range nodes {
		keys, _ := x.maintenances.IndexKeys(byNode, n)
		names = append(names, keys...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// affectedBy returns the maintenances that select one of these nodes, have it in their status, or have changed it, by name.
func (x objects) affectedBy(nodes ...*corev1.Node) (names []string) {
	for _, m := range x.list() {
		selects := plan.Selector(m.Spec.Nodes)
		if slices.ContainsFunc(nodes, func(n *corev1.Node) bool {
			return selects(n) || plan.OnNode(m, n, schemas.MarkOn(n)) ||
				slices.ContainsFunc(m.Status.Nodes, func(is v1alpha1.NodeStatus) bool { return is.Name == n.Name })
		}) {
			names = append(names, m.Name)
		}
	}
	return names
}

// rulesOf returns the rules of some namespaces and of the cluster, by namespace and name.
func (x objects) rulesOf(namespaces map[string]map[string]string) (list []plan.Rule) {
	for _, o := range x.rules.List() {
		r := o.(plan.Rule)
		if _, has := namespaces[r.Namespace]; has || r.Namespace == "" {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b plan.Rule) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// discoveryInterval is how often to check whether the API server serves the kinds of maintenances, which are optional.
const discoveryInterval = 5 * time.Second

var errNotSynced = errors.New("maintenance: maintenances and drain rules are not known yet")

// kinds watches NodeMaintenances, DrainRules, and ClusterDrainRules, as soon as the API server serves them. The client
// is dynamic, because with a typed client one unreadable object would hide all others.
type kinds struct {
	c        *Controller
	interval time.Duration
	// state is the reason why the objects are unknown. It points to nil if they are known, or if the kinds are not served.
	state    atomic.Pointer[error]
	warnings rate.Sometimes
}

func newKinds(c *Controller) *kinds {
	k := &kinds{c: c, interval: discoveryInterval, warnings: rate.Sometimes{Interval: 30 * time.Second}}
	k.state.Store(&errNotSynced)
	return k
}

// ready returns the reason why the maintenances are unknown, or nil.
func (k *kinds) ready() error { return *k.state.Load() }

// run waits until the kinds are served and then watches them, until ctx ends.
func (k *kinds) run(ctx context.Context) {
	for !k.served(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(k.interval):
		}
	}
	k.state.Store(&errNotSynced)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(k.c.cfg.Dynamic, 0, metav1.NamespaceAll, nil)
	rules := watchKind(k, factory, v1alpha1.DrainRules, func(r *v1alpha1.DrainRule, exists bool) {
		spec := v1alpha1.ClusterDrainRuleSpec{DrainRuleSpec: r.Spec}
		k.c.ruleChanged(plan.Rule{Namespace: r.Namespace, Name: r.Name, Spec: spec}, exists)
	})
	clusterRules := watchKind(k, factory, v1alpha1.ClusterDrainRules, func(r *v1alpha1.ClusterDrainRule, exists bool) {
		k.c.ruleChanged(plan.Rule{Name: r.Name, Spec: r.Spec}, exists)
	})
	maintenances := watchKind(k, factory, v1alpha1.NodeMaintenances, func(m *v1alpha1.NodeMaintenance, exists bool) {
		if exists {
			k.c.maintenanceChanged(m.Name, m)
		} else {
			k.c.maintenanceChanged(m.Name, nil)
		}
	})
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if cache.WaitForCacheSync(ctx.Done(), rules, clusterRules, maintenances) {
		k.state.Store(new(error))
		k.c.log.Info("maintenances are watched")
		k.c.enqueueAll()
	}
	<-ctx.Done()
}

// watchKind returns an informer that calls changed with each added, changed, or removed object of Go type T. An
// unreadable object counts as removed.
func watchKind[T any](
	k *kinds, factory dynamicinformer.DynamicSharedInformerFactory, resource string, changed func(o *T, exists bool),
) cache.InformerSynced {
	call := func(o any, exists bool) {
		if unseen, is := o.(cache.DeletedFinalStateUnknown); is {
			o = unseen.Obj
		}
		if object, readable := o.(*T); readable {
			changed(object, exists)
		}
	}
	informer := factory.ForResource(v1alpha1.GroupVersion().WithResource(resource)).Informer()
	err := errors.Join(informer.SetTransform(decoding[T](k)),
		informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			k.failed(ctx, fmt.Errorf("watch: %w", err))
		}))
	registration, handlerErr := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { call(o, true) },
		UpdateFunc: func(old, new any) {
			if _, readable := new.(*T); !readable {
				call(old, false)
			}
			call(new, true)
		},
		DeleteFunc: func(o any) { call(o, false) },
	})
	if err := errors.Join(err, handlerErr); err != nil { // only a running informer rejects these
		k.c.log.Error("cannot watch maintenances", "resource", resource, "error", err)
		return func() bool { return false }
	}
	return registration.HasSynced
}

// served reports whether the API server serves all kinds: without its rules, a maintenance would be planned wrong.
// Without the right to check, there are none.
func (k *kinds) served(ctx context.Context) bool {
	list, err := discovery.ToServerResourcesInterfaceWithContext(k.c.cfg.Client.Discovery()).
		ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.GroupVersion().String())
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		list, err = &metav1.APIResourceList{}, nil
	}
	if err != nil {
		k.failed(ctx, fmt.Errorf("list the resources of %s: %w", v1alpha1.GroupVersion(), err))
		return false
	}
	for _, name := range []string{v1alpha1.NodeMaintenances, v1alpha1.DrainRules, v1alpha1.ClusterDrainRules} {
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
			continue
		}
		if was := k.state.Swap(new(error)); *was != nil {
			k.c.log.Info("the API server does not serve the optional kinds of maintenances; checking again later",
				"version", v1alpha1.GroupVersion(), "every", k.interval)
			k.c.enqueueAll()
		}
		return false
	}
	return true
}

// failed records a failure, and logs it at most every 30 seconds.
func (k *kinds) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	k.warnings.Do(func() { k.c.log.Warn("cannot read maintenances; retrying", "error", err) })
	if k.ready() != nil {
		err := fmt.Errorf("%w: %w", errNotSynced, err)
		k.state.Store(&err)
	}
}

// decoding decodes objects as a Go type. It logs and ignores an unreadable object, because an error would end the whole
// list.
func decoding[T any](k *kinds) cache.TransformFunc {
	return func(object any) (any, error) {
		raw, is := object.(*unstructured.Unstructured)
		if !is {
			return object, nil // it was decoded before
		}
		raw.SetManagedFields(nil)
		unstructured.RemoveNestedField(raw.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
		read := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, read); err != nil {
			k.c.log.Error("ignoring an unreadable object", "kind", raw.GetKind(), "namespace", raw.GetNamespace(),
				"name", raw.GetName(), "error", err)
			return raw, nil
		}
		return read, nil
	}
}
