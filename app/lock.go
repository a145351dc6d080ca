package app

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is the lease as the elector reads and writes it. It notes when this process renewed the lease and when another one holds
// it, and logs once that the API server does not answer and once that it does again.
type lock struct {
	resourcelock.Interface
	lease *lease
	done  atomic.Bool // the leader has returned: the lease may be released
}

// errNotReleased says that a lease was not released, since another process holds it or the leader has not returned yet.
var errNotReleased = errors.New("the lease is not released")

// Get implements [resourcelock.Interface].
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.lease.answered(err, l.Describe())
	if err == nil && record.HolderIdentity != l.Identity() {
		l.lease.renewedAt(time.Time{})
	}
	return record, raw, err
}

// Create implements [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update implements [resourcelock.Interface]. The elector would release the lease of another holder, and also release it while
// the leader that could not renew it is still returning.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && !(l.done.Load() && l.lease.mine()) {
		return errNotReleased
	}
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *lock) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	began := time.Now() // the lease counts from a later moment
	err := write()
	l.lease.answered(err, l.Describe())
	switch {
	case err == nil && record.HolderIdentity == l.Identity():
		l.lease.renewedAt(began)
	case err == nil:
		l.lease.renewedAt(time.Time{})
	}
	return err
}

// renewedAt sets the time of the last renewal; zero means that another process may hold the lease.
func (l *lease) renewedAt(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = at
}

// mine reports whether this process held the lease last.
func (l *lease) mine() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero()
}

// answered logs when the API server stops answering and when it answers again.
func (l *lease) answered(err error, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch ok := err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err); {
	case errors.Is(err, context.Canceled): // by us
	case ok && !l.failed.IsZero():
		l.log.Info("the API server answers again", "lease", name, "after", time.Since(l.failed))
		l.failed = time.Time{}
	case !ok && l.failed.IsZero():
		l.failed = time.Now()
		l.log.Warn("the API server does not let the lease be asked for; trying again until it does", "lease", name, "error", err)
	}
}
