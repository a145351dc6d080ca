package chart

import (
	"context"
	"time"
)

// wait lets some time pass between two questions.
func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}
