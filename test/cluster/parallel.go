package cluster

import (
	"context"
	"sync"
)

// parallel calls do with 0 to n-1, at most limit calls at the same time, and returns the first error. It starts no call after an
// error.
func parallel(ctx context.Context, n, limit int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var calls sync.WaitGroup
	next := make(chan int)
	for range min(n, limit) {
		calls.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	calls.Wait()
	return context.Cause(ctx)
}
