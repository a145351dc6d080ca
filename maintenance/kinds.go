package maintenance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// lookAgain is how often the API server is asked whether it serves the kinds of maintenances, which are optional, and
	// lookRetry how long after a failure.
	lookAgain, lookRetry = 30 * time.Second, 2 * time.Second
)

// kinds watches NodeMaintenances, DrainRules, and ClusterDrainRules, as soon as the API server serves them.
//
// The client is dynamic: a typed client reads a list as a whole, so that one object that it cannot read hides all others.
type kinds struct {
	c      *Controller
	again  time.Duration
	asked  atomic.Bool // the API server has said what it serves
	served atomic.Bool // it serves all three kinds
	synced atomic.Bool // all objects are in the index
	last   atomic.Pointer[error]
}

func newKinds(c *Controller) *kinds { return &kinds{c: c, again: lookAgain} }

// run waits until the kinds are served and then watches them, until ctx ends.
func (k *kinds) run(ctx context.Context) {
	if !k.find(ctx) {
		return
	}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(k.c.cfg.Dynamic, 0, metav1.NamespaceAll, nil)
	var synced []cache.InformerSynced
	watch := func(resource string, decode cache.TransformFunc, changed func(old, new any)) {
		i := factory.ForResource(v1alpha1.GroupVersion().WithResource(resource)).Informer()
		err := errors.Join(i.SetTransform(decode), i.SetWatchErrorHandlerWithContext(k.watchFailed))
		registration, handlerErr := i.AddEventHandler(handler(changed))
		if err := errors.Join(err, handlerErr); err != nil { // only an informer that runs refuses these
			k.c.log.Error("maintenances cannot be watched", "resource", resource, "error", err)
			return
		}
		synced = append(synced, registration.HasSynced)
	}
	watch(v1alpha1.ClusterDrainRules, decoding[v1alpha1.ClusterDrainRule](k), func(old, new any) {
		if r, exists := newest[v1alpha1.ClusterDrainRule](old, new); r != nil {
			k.c.ruleChanged(plan.Rule{Name: r.Name, Spec: r.Spec}, exists)
		}
	})
	watch(v1alpha1.DrainRules, decoding[v1alpha1.DrainRule](k), func(old, new any) {
		if r, exists := newest[v1alpha1.DrainRule](old, new); r != nil {
			spec := v1alpha1.ClusterDrainRuleSpec{DrainRuleSpec: r.Spec}
			k.c.ruleChanged(plan.Rule{Namespace: r.Namespace, Name: r.Name, Spec: spec}, exists)
		}
	})
	watch(v1alpha1.NodeMaintenances, decoding[v1alpha1.NodeMaintenance](k), func(old, new any) {
		switch m, exists := newest[v1alpha1.NodeMaintenance](old, new); {
		case m == nil:
		case exists:
			k.c.maintenanceChanged(m.Name, m)
		default:
			k.c.maintenanceChanged(m.Name, nil)
		}
	})
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		k.synced.Store(true)
		k.c.log.Info("maintenances are watched")
		k.c.enqueueAll()
	}
	<-ctx.Done()
}

// handler turns the callbacks of an informer into one function; nil stands for an object that is not there.
func handler(changed func(old, new any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o) },
		UpdateFunc: changed,
		DeleteFunc: func(o any) {
			if unseen, is := o.(cache.DeletedFinalStateUnknown); is {
				o = unseen.Obj
			}
			changed(o, nil)
		},
	}
}

// newest is the object after a change, or the one before if it is gone. nil: it cannot be read.
func newest[T any](old, new any) (object *T, exists bool) {
	if object, exists = new.(*T); exists {
		return object, true
	}
	object, _ = old.(*T)
	return object, false
}

// find returns when the kinds are served, with false when ctx ended before.
func (k *kinds) find(ctx context.Context) bool {
	told := false
	for {
		served, err := k.look(ctx)
		wait := k.again
		switch {
		case ctx.Err() != nil:
			return false
		case served:
			k.served.Store(true)
			k.asked.Store(true)
			return true
		case err != nil && !apierrors.IsForbidden(err):
			k.failed(err)
			wait = lookRetry
		default: // they are not installed, or this process has no right to know
			if err != nil {
				k.failed(err)
			}
			if k.asked.CompareAndSwap(false, true) {
				k.c.enqueueAll()
			}
			if !told {
				k.c.log.Info("the API server does not serve the kinds of maintenances, which are optional; looking for them again",
					"version", v1alpha1.GroupVersion(), "every", k.again)
			}
			told = true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// look asks the API server whether it serves all kinds. A maintenance without the rules that are about to come would be planned
// wrong.
func (k *kinds) look(ctx context.Context) (served bool, err error) {
	path := "/apis/" + v1alpha1.GroupVersion().String()
	api := k.c.cfg.Client.Discovery().RESTClient()
	data, err := api.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return false, fmt.Errorf("list the resources of %s: %w", v1alpha1.GroupVersion(), err)
	}
	for _, name := range []string{v1alpha1.NodeMaintenances, v1alpha1.DrainRules, v1alpha1.ClusterDrainRules} {
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
			return false, nil
		}
	}
	return true, nil
}

// watchFailed is called whenever a watch breaks.
func (k *kinds) watchFailed(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() == nil {
		k.failed(fmt.Errorf("watch: %w", err))
	}
}

// failed keeps the last failure for [kinds.ready], and logs it if it differs from the one before.
func (k *kinds) failed(err error) {
	if before := k.last.Swap(&err); before == nil || (*before).Error() != err.Error() {
		k.c.log.Warn("maintenances cannot be read, trying again", "error", err)
	}
}

// ready says what keeps the maintenances from being known. nil: nothing, or the API server does not serve them.
func (k *kinds) ready() error {
	switch {
	case !k.asked.Load():
		return errors.New("maintenance: it is not known yet whether there are maintenances")
	case k.synced.Load() || !k.served.Load():
		return nil
	}
	if err := k.last.Load(); err != nil {
		return fmt.Errorf("maintenance: maintenances and drain rules are not known yet: %w", *err)
	}
	return errors.New("maintenance: maintenances and drain rules are not known yet")
}

// decoding reads objects as a Go type. One that cannot be read is logged and ignored; an error would end the whole list.
func decoding[T any](k *kinds) cache.TransformFunc {
	return func(object any) (any, error) {
		raw, is := object.(*unstructured.Unstructured)
		if !is {
			return object, nil // it was read before
		}
		raw.SetManagedFields(nil)
		unstructured.RemoveNestedField(raw.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
		read := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, read); err != nil {
			k.c.log.Error("an object cannot be read and is ignored", "kind", raw.GetKind(), "namespace", raw.GetNamespace(),
				"name", raw.GetName(), "error", err)
			return raw, nil
		}
		return read, nil
	}
}
