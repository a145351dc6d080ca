package cluster

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// waitTimeout limits every wait, so a test without a deadline also ends.
	waitTimeout = 5 * time.Minute
	// retryInterval is the delay before a failed list or watch is retried, for example while the API server restarts.
	retryInterval = 100 * time.Millisecond
	// troubleTimeout limits the search for the reason of a failed wait.
	troubleTimeout = 5 * time.Second
)

// object is a pointer to a Kubernetes object.
type object interface {
	runtime.Object
	metav1.Object
}

// query selects objects of one resource. Empty fields select all.
type query struct {
	client    rest.Interface
	resource  string
	namespace string
	labels    string
	name      string
}

func (q query) listWatch() *cache.ListWatch {
	return cache.NewFilteredListWatchFromClient(q.client, q.resource, q.namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = q.labels
		if q.name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, q.name).String()
		}
	})
}

// objects are the results of a query, by UID.
type objects[T object] map[types.UID]T

// condition returns why the objects do not meet the condition, or "" if they do.
type condition[T object] func(objects[T]) (missing string)

// until waits until the objects of a query meet a condition. It checks immediately, and then after each change. It survives
// restarts of the API server. The error contains the last reason.
func until[T object](ctx context.Context, c *Cluster, q query, met condition[T]) error {
	ctx, cancel := c.bound(ctx, waitTimeout)
	defer cancel()
	missing, trouble := "everything", ""
	for {
		done, err := follow(ctx, q.listWatch(), met, &missing)
		if done {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			trouble = fmt.Sprintf(" (the last look failed: %v)", err)
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return fmt.Errorf("%w; still missing: %s%s", context.Cause(ctx), missing, trouble)
		}
	}
}

// follow lists once and watches from there until the condition is met, which returns true, or until the watch ends.
func follow[T object](ctx context.Context, source *cache.ListWatch, met condition[T], missing *string) (bool, error) {
	found, version, err := list[T](ctx, source)
	if err != nil {
		return false, err
	}
	changes, err := source.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return false, err
	}
	defer changes.Stop()
	for {
		if *missing = met(found); *missing == "" {
			return true, nil
		}
		select {
		case event, open := <-changes.ResultChan():
			if !open || !found.apply(event) {
				return false, nil
			}
			if !found.applyPending(changes.ResultChan()) {
				return false, nil
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// list returns the objects that exist, and the version to watch from.
func list[T object](ctx context.Context, source *cache.ListWatch) (objects[T], string, error) {
	answer, err := source.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	header, err := meta.ListAccessor(answer)
	if err != nil {
		return nil, "", err
	}
	found := objects[T]{}
	err = meta.EachListItem(answer, func(item runtime.Object) error {
		typed, ok := item.(T)
		if !ok {
			return fmt.Errorf("listed a %T", item)
		}
		found[typed.GetUID()] = typed
		return nil
	})
	return found, header.GetResourceVersion(), err
}

// apply updates the objects with one event. It returns false if the event ends the watch.
func (o objects[T]) apply(event watch.Event) bool {
	changed, ok := event.Object.(T)
	switch {
	case !ok:
		return false // An error, such as an expired version.
	case event.Type == watch.Deleted:
		delete(o, changed.GetUID())
	default:
		o[changed.GetUID()] = changed
	}
	return true
}

// applyPending applies all received events, so a condition about many objects is not evaluated for each event.
func (o objects[T]) applyPending(events <-chan watch.Event) bool {
	for {
		select {
		case event, open := <-events:
			if !open || !o.apply(event) {
				return false
			}
		default:
			return true
		}
	}
}

// waitDefaultAccount waits until pods can be created in a namespace.
func (c *Cluster) waitDefaultAccount(ctx context.Context, namespace string) error {
	q := query{client: c.client.CoreV1().RESTClient(), resource: "serviceaccounts", namespace: namespace, name: "default"}
	return until(ctx, c, q, func(found objects[*corev1.ServiceAccount]) string {
		if len(found) == 0 {
			return "the default service account of namespace " + namespace
		}
		return ""
	})
}

// WaitForRight waits until the API server grants a right: it applies changed roles and bindings a moment after it stores
// them.
func (c *Cluster) WaitForRight(ctx context.Context, right authorizationv1.SubjectAccessReviewSpec) error {
	ctx, cancel := c.bound(ctx, waitTimeout)
	defer cancel()
	for {
		review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
			&authorizationv1.SubjectAccessReview{Spec: right}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			return nil
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			//nolint:errorlint // err can be nil
			return fmt.Errorf("the right of %s: %w (the last answer: %v)", right.User, context.Cause(ctx), err)
		}
	}
}
