package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// sightings are what was seen of a lease since somebody last looked. They can be late, and of a time that is over.
type sightings struct {
	free  chan struct{} // nobody held it, or it was deleted
	taken chan struct{} // another process held it
}

// watched runs f while the lease of that name is watched. A lease that cannot be watched is not seen, which is logged
// once. The watch goes on after ctx has ended, until f returns.
func (l leases) watched(ctx context.Context, name string, f func(sightings) error) error {
	seen := sightings{free: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
	informer := informers.NewSharedInformerFactoryWithOptions(l.client, 0, informers.WithNamespace(l.namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		})).Coordination().V1().Leases().Informer()
	err := informer.SetWatchErrorHandlerWithContext(l.unwatched(name))
	if err == nil {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(lease any) { l.saw(seen, lease) },
			UpdateFunc: func(_, lease any) { l.saw(seen, lease) },
			DeleteFunc: func(any) { note(seen.free) },
		})
	}
	if err != nil {
		return fmt.Errorf("watch lease %s/%s: %w", l.namespace, name, err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	watching.Go(func() { informer.RunWithContext(klog.NewContext(ctx, klog.New(nil))) }) // unwatched says what matters
	watching.Go(func() { absent(ctx, informer, seen) })
	defer watching.Wait()
	defer stop()
	return f(seen)
}

// absent notes that there was no lease when the watch began: it may have been deleted just before.
func absent(ctx context.Context, informer cache.SharedIndexInformer, seen sightings) {
	select {
	case <-informer.HasSyncedChecker().Done():
		if len(informer.GetStore().ListKeys()) == 0 {
			note(seen.free)
		}
	case <-ctx.Done():
	}
}

// saw notes how a lease was seen.
func (l leases) saw(seen sightings, object any) {
	switch lease, ok := object.(*coordinationv1.Lease); {
	case !ok:
	case holderOf(lease) == "":
		note(seen.free)
	case !l.mayTake(lease):
		note(seen.taken)
	}
}

// mayTake says whether nobody else holds the lease, in time or not.
func (l leases) mayTake(lease *coordinationv1.Lease) bool {
	holder := holderOf(lease)
	return holder == "" || holder == l.identity
}

// holderOf is who holds the lease. Empty: nobody.
func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// unwatched returns what is told of each failure of the watch. That one ends after its time is in order.
func (l leases) unwatched(name string) cache.WatchErrorHandlerWithContext {
	var once sync.Once
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() != nil || errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return
		}
		once.Do(func() {
			l.log.Info("the lease cannot be watched; a hand-over may take longer, until it can be",
				"lease", name, "looking every", l.duration/7, "error", err)
		})
	}
}

// note notes something that is noted already if nobody has looked since.
func note(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
