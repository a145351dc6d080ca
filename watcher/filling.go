package watcher

import (
	"context"
	"sync"

	"k8s.io/client-go/tools/cache"
)

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
