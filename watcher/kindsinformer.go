package watcher

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// watched is one kind of object that is watched.
type watched struct {
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandler
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

// filling is how far a cache is, or caches together: then without synced. It may be used from several goroutines.
type filling struct {
	synced cache.InformerSynced

	mu   sync.Mutex
	last error
}

// noting notes each failure before it is handled.
func (f *filling) noting(handle cache.WatchErrorHandlerWithContext) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, r *cache.Reflector, err error) {
		f.mu.Lock()
		f.last = err
		f.mu.Unlock()
		handle(ctx, r, err)
	}
}

// failure is the last one; nil: there was none. It may be over: that the cache is filled says so.
func (f *filling) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// outageInterval is how often a lasting outage is logged: the informers try again every few seconds, each.
const outageInterval = 30 * time.Second

// outage logs that the API server cannot be watched, without repeating itself. Each right that is missing is logged for itself:
// they all have to be given.
type outage struct {
	log  *slog.Logger
	mu   sync.Mutex
	last map[string]time.Time // by what is forbidden; empty: anything else
}

// failed notes one failed watch. A watch that ended in the ordinary way, or whose place in history is gone so that it
// has to list anew, is no outage.
func (o *outage) failed(err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	what := ""
	if apierrors.IsForbidden(err) {
		what = err.Error()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if last, logged := o.last[what]; logged && time.Since(last) < outageInterval {
		return
	}
	if o.last == nil {
		o.last = map[string]time.Time{}
	}
	o.last[what] = time.Now()
	o.log.Warn("the API server cannot be watched; trying again until it can", "error", err)
}
