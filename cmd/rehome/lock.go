package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is a lease that says once when it cannot be read or written, and once when it can again. The elector asks for it
// every few seconds, leading or not, so this is also how a process that has nothing to do hears of an outage.
type lock struct {
	resourcelock.Interface
	log *slog.Logger

	mu     sync.Mutex
	failed time.Time // since when it fails; zero: it does not
}

// Get implements [resourcelock.Interface].
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.answered(err)
	return record, raw, err
}

// Create implements [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.answered(err)
	return err
}

// Update implements [resourcelock.Interface].
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	l.answered(err)
	return err
}

// answered takes note of how a call ended. That there is no lease yet, or that another process was faster, is in order.
func (l *lock) answered(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch ok := err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err); {
	case errors.Is(err, context.Canceled): // by us
	case ok && !l.failed.IsZero():
		l.log.Info("the API server answers again", "lease", l.Describe(), "after", time.Since(l.failed))
		l.failed = time.Time{}
	case !ok && l.failed.IsZero():
		l.failed = time.Now()
		l.log.Warn("the API server does not let the lease be asked for; trying again until it does",
			"lease", l.Describe(), "error", err)
	}
}
