package watcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// kindsAgain is how often the kinds of Rehome are looked for while the API server does not serve them: kinds.again, but in
	// tests.
	kindsAgain = 30 * time.Second
	// kindsRetry is how long after a failure the API server is asked again.
	kindsRetry = 2 * time.Second
)

// kinds watches the kinds of Rehome, if the API server serves them: they can be installed at any time, or never.
//
// The client is the dynamic one. A typed client reads a list as one whole, so that one object that it cannot read hides all
// others; here each object is read for itself.
type kinds struct {
	client dynamic.Interface
	api    rest.Interface // to ask what is served
	to     kindChanges
	failed func(error) // is told when a watch fails
	again  time.Duration
	log    *slog.Logger

	asked  atomic.Bool // the API server has said what it serves
	served atomic.Bool // all three
	synced atomic.Bool // and all that there is of them was seen
	gone   sync.Once   // is done when a kind is not served any more
	last   filling     // of all three
}

// kindChanges is told of changes of the kinds of Rehome. The methods are called one at a time for each kind; an argument is nil
// where there is no object.
type kindChanges interface {
	maintenanceChanged(old, new *v1alpha1.NodeMaintenance, initial bool)
	ruleChanged(old, new *v1alpha1.DrainRule, initial bool)
	clusterRuleChanged(old, new *v1alpha1.ClusterDrainRule, initial bool)
	// nowKnown is called when ready may say something else: when it is known whether the kinds are served, and when everything
	// that is there was told.
	nowKnown()
}

// run looks for the kinds and then watches them, until ctx ends.
func (k *kinds) run(ctx context.Context) {
	if !k.find(ctx) {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var synced []cache.InformerSynced
	for _, i := range []watched{
		k.informer(v1alpha1.ClusterDrainRules, decoding[v1alpha1.ClusterDrainRule](k.log), handler(k.to.clusterRuleChanged)),
		k.informer(v1alpha1.DrainRules, decoding[v1alpha1.DrainRule](k.log), handler(k.to.ruleChanged)),
		k.informer(v1alpha1.NodeMaintenances, decoding[v1alpha1.NodeMaintenance](k.log), handler(k.to.maintenanceChanged)),
	} {
		registration, err := i.informer.AddEventHandler(i.handler)
		if err != nil { // only of an informer that has ended
			k.log.Error("maintenances cannot be watched", "error", err)
			return
		}
		synced = append(synced, registration.HasSynced)
		wg.Go(func() { i.informer.RunWithContext(ctx) })
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		k.synced.Store(true)
		k.log.Info("maintenances are watched")
		k.to.nowKnown()
	}
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
		case err != nil:
			k.failed(err)
			wait = kindsRetry
			if apierrors.IsForbidden(err) { // there may be none, and who may not know is not kept from everything else
				k.answered()
				wait = k.again
			}
		case served:
			k.served.Store(true)
			k.asked.Store(true)
			k.to.nowKnown() // that there is something to be known
			return true
		default:
			k.answered()
			if !told {
				k.log.Info("the API server does not serve the kinds of maintenances, which are optional; looking for them again",
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

// answered notes that the API server has said what it serves.
func (k *kinds) answered() {
	if k.asked.CompareAndSwap(false, true) {
		k.to.nowKnown()
	}
}

// look asks the API server whether it serves all kinds. Some of them are none: who decides without the rules that are about
// to be there decides wrong.
func (k *kinds) look(ctx context.Context) (served bool, err error) {
	path := "/apis/" + v1alpha1.GroupVersion().String()
	data, err := k.api.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	var list metav1.APIResourceList
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return false, fmt.Errorf("what the API server serves of %s: %w", v1alpha1.GroupVersion(), err)
	}
	for _, name := range []string{v1alpha1.NodeMaintenances, v1alpha1.DrainRules, v1alpha1.ClusterDrainRules} {
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
			return false, nil
		}
	}
	return true, nil
}

// informer is that of one resource, whose objects decode reads.
func (k *kinds) informer(resource string, decode cache.TransformFunc, h cache.ResourceEventHandler) watched {
	i := dynamicinformer.NewFilteredDynamicInformer(k.client, v1alpha1.GroupVersion().WithResource(resource),
		metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	err := errors.Join(i.SetTransform(decode), i.SetWatchErrorHandlerWithContext(k.last.noting(k.watchFailed)))
	if err != nil { // only of an informer that runs already
		k.log.Error("maintenances cannot be watched well", "resource", resource, "error", err)
	}
	return watched{i, h}
}

// watchFailed is called whenever a watch breaks. Kinds that were taken out of the API server are looked for by the informers.
func (k *kinds) watchFailed(ctx context.Context, _ *cache.Reflector, err error) {
	switch {
	case ctx.Err() != nil:
	case apierrors.IsNotFound(err):
		k.gone.Do(func() {
			k.log.Warn("the API server serves the kinds of maintenances no more; what is known of them stays until it does", "error", err)
		})
	default:
		k.failed(fmt.Errorf("watch: %w", err))
	}
}

// ready says what keeps the kinds from being known; nil when nothing does, or the API server does not serve them.
func (k *kinds) ready() error {
	switch {
	case !k.asked.Load():
		return errors.New("watcher: it is not known yet whether there are maintenances")
	case k.synced.Load() || !k.served.Load():
		return nil
	}
	if err := k.last.failure(); err != nil {
		return fmt.Errorf("watcher: maintenances and drain rules are not known yet: %w", err)
	}
	return errors.New("watcher: maintenances and drain rules are not known yet")
}

// decoding reads objects as those of Go. One that cannot be read stays as it is, which is none of the kind for whoever
// handles it; an error would end the whole list.
func decoding[T any](log *slog.Logger) cache.TransformFunc {
	return func(object any) (any, error) {
		raw, is := object.(*unstructured.Unstructured)
		if !is {
			return object, nil // it was read before
		}
		raw.SetManagedFields(nil)
		unstructured.RemoveNestedField(raw.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
		read := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, read); err != nil {
			log.Error("an object cannot be read and is left out", "kind", raw.GetKind(), "namespace", raw.GetNamespace(),
				"name", raw.GetName(), "error", err)
			return raw, nil
		}
		return read, nil
	}
}

// ruleFact is a rule of a namespace as scopes have it.
func ruleFact(r *v1alpha1.DrainRule) schemas.DrainRuleFact {
	return schemas.DrainRuleFact{
		Namespace: r.Namespace, Name: r.Name, Spec: v1alpha1.ClusterDrainRuleSpec{DrainRuleSpec: r.Spec},
	}
}

// clusterRuleFact is a rule of the cluster as scopes have it.
func clusterRuleFact(r *v1alpha1.ClusterDrainRule) schemas.DrainRuleFact {
	return schemas.DrainRuleFact{Name: r.Name, Spec: r.Spec}
}
