package app

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/rehome-dev/rehome/bus"
)

// See docs/decisions/0014-memory-of-one-process.md.
const (
	// gcPercent is the growth of the heap between two collections. Most of the heap is caches that stay, so Go's
	// default of 100 would leave the same amount empty.
	gcPercent = 75
	// memoryCheck is the time between two checks whether a start phase is over.
	memoryCheck = 2 * time.Second
	// calmChecks is the number of checks in a row without an open scope after which the first full evaluation counts as
	// complete.
	calmChecks = 3
)

// setGCPercent makes garbage collections more frequent, unless GOGC is set.
func setGCPercent() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// returnMemory returns unused memory to the system twice: when the caches are filled, and after the first full
// evaluation. Go itself would keep it for minutes.
func (p *process) returnMemory(ctx context.Context) error {
	if !holds(ctx, func() bool { return p.cluster.Ready() == nil }, 1) {
		return nil
	}
	debug.FreeOSMemory()
	if holds(ctx, func() bool { return p.openScopes(ctx) == 0 }, calmChecks) {
		debug.FreeOSMemory()
	}
	return nil
}

// openScopes returns the number of scopes that wait for an answer, or 1 while the bus does not answer.
func (p *process) openScopes(ctx context.Context) uint64 {
	streams, err := p.bus.Status(ctx)
	for _, s := range streams {
		if err == nil && s.Name == bus.StreamScopes {
			return s.Messages
		}
	}
	return 1
}

// holds waits until a condition was true in n checks in a row. It returns false if ctx ends first.
func holds(ctx context.Context, condition func() bool, n int) bool {
	for found := 0; found < n; {
		select {
		case <-time.After(memoryCheck):
		case <-ctx.Done():
			return false
		}
		if found++; !condition() {
			found = 0
		}
	}
	return true
}
