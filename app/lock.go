package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock is a lease that knows what the elector knows of it, and says so: that the elector was refused, or that it held
// the lease and another process has it now.
//
// It also says once when the lease cannot be read or written, and once when it can again. The elector asks for it every
// few seconds, leading or not, so this is how a process that has nothing to do hears of an outage.
type lock struct {
	resourcelock.Interface
	log     *slog.Logger
	refused chan struct{} // gets something when a try to become the holder has failed
	lost    chan struct{} // gets something when the lease was held and has another holder

	mu     sync.Mutex
	failed time.Time // since when it fails; zero: it does not
	holder string    // who held it when it was last read or written; empty: nobody
	held   bool      // this process has become the holder since begin, and no other was seen
}

// errOthersLease says that a lease of another process was not given up.
var errOthersLease = errors.New("the lease is held by another process")

func newLock(l resourcelock.Interface, log *slog.Logger) *lock {
	return &lock{Interface: l, log: log, refused: make(chan struct{}, 1), lost: make(chan struct{}, 1)}
}

// begin forgets what was known of the lease before another try.
func (l *lock) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	select {
	case <-l.refused:
	default:
	}
}

// unlessHeld calls f if this process has not become the holder, and keeps it from becoming that meanwhile.
func (l *lock) unlessHeld(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		f()
	}
}

// Get implements [resourcelock.Interface].
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.answered(err)
	switch {
	case err == nil:
		l.read(record.HolderIdentity)
	case apierrors.IsNotFound(err):
		l.read("")
	default:
		note(l.refused)
	}
	return record, raw, err
}

// Create implements [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.answered(err)
	l.wrote(record.HolderIdentity, err)
	return err
}

// Update implements [resourcelock.Interface]. The elector gives up the lease by what it remembers: it would take it
// from a holder that it has not heard of yet.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && l.others() {
		return errOthersLease
	}
	err := l.Interface.Update(ctx, record)
	l.answered(err)
	l.wrote(record.HolderIdentity, err)
	return err
}

// others says whether another process held the lease when it was last looked at.
func (l *lock) others() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder != "" && l.holder != l.Identity()
}

// read takes note of who holds the lease.
func (l *lock) read(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder = holder
	if holder == "" || holder == l.Identity() {
		return
	}
	if l.held {
		note(l.lost)
	}
	l.held = false
	note(l.refused)
}

// wrote takes note of how the lease was written.
func (l *lock) wrote(holder string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		note(l.refused)
		return
	}
	l.holder, l.held = holder, holder == l.Identity()
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
