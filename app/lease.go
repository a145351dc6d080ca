package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
)

// lease makes a role active in one process at a time, with the leader election of client-go.
type lease struct {
	client    kubernetes.Interface
	namespace string
	name      string
	identity  string
	// duration is how long standbys wait for a silent leader. A leader gives up after two thirds of it.
	duration time.Duration
	log      *slog.Logger

	mu      sync.Mutex
	renewed time.Time     // the start of this process's last renewal, by the monotonic clock; zero if another process may hold it
	failed  time.Time     // since when the API server does not answer, or zero
	taken   chan struct{} // gets an item when another process may hold it
}

func newLease(s settings.Settings, client kubernetes.Interface, name, identity string, log *slog.Logger) *lease {
	return &lease{
		client: client, namespace: s.LeaseNamespace, name: s.LeaseName(name), identity: identity, duration: s.LeaseDuration, log: log,
	}
}

// newIdentity returns the identity of this process in leases: its namespace, the host name for users, and a random
// part, because a restarted process is another leader.
func newIdentity(namespace string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return path.Join(namespace, host+"_"+rand.Text())
}

// otherNamespace reports whether the process that holds the lease runs in another namespace, so that it belongs to
// another installation of the same name.
func (l *lease) otherNamespace(holder string) bool {
	return holder != "" && path.Dir(holder) != path.Dir(l.identity)
}

func (l *lease) refusal(holder string) error {
	return fmt.Errorf("lease %s/%s is held by %s: another installation of this name already runs in this cluster; stop it, use "+
		"--dry-run, or set REHOME_INSTALLATION to run a second one with limits of its own", l.namespace, l.name, holder)
}

// errLeaseLost is the cancellation cause of a leader's context when another process holds the lease, or may hold it.
// The leader then abandons everything. Any other cause is an orderly end: the lease is released after the leader has
// returned.
var errLeaseLost = fmt.Errorf("the lease was lost, and %w", actuator.ErrNotLeading)

// renewDeadline returns how long a leader continues after its last renewal.
func (l *lease) renewDeadline() time.Duration { return l.duration * 2 / 3 }

// retryPeriod returns how often the lease is renewed or requested. With jitter, a standby leads at most four seconds
// after the release.
func (l *lease) retryPeriod() time.Duration { return min(l.duration/7, 2*time.Second) }

// Valid reports whether this process held the lease less than the renew deadline ago, by the monotonic clock. Another
// process can hold it only after the longer lease duration. This check stops a process that was paused before it
// writes.
func (l *lease) Valid() bool { return l.left() > 0 }

// left returns how long the lease is still valid without a renewal.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed.IsZero() {
		return 0
	}
	return l.renewDeadline() - time.Since(l.renewed)
}

// hold runs lead whenever this process holds the lease, until ctx ends. It fails if a process in another namespace
// holds the lease, because the two do not share a bus, and each would count limits separately. The context of lead ends
// when ctx ends, with the same cause, or when the lease is lost, with the cause [errLeaseLost].
func (l *lease) hold(ctx context.Context, lead func(context.Context) error) error {
	for ctx.Err() == nil {
		if err := l.once(ctx, lead); err != nil && !errors.Is(err, errLeaseLost) {
			return err
		}
	}
	return nil
}

// ifFree runs lead while this process holds the lease. It fails when another process holds the lease, and also when the lease is
// lost before lead is done.
func (l *lease) ifFree(ctx context.Context, lead func(context.Context) error) error {
	holder, err := l.holder(ctx)
	if err != nil {
		return err
	}
	if l.otherNamespace(holder) {
		return l.refusal(holder)
	}
	if holder != "" {
		return fmt.Errorf("lease %s/%s is held by %s: another process moves pods in this cluster; stop it, or use --dry-run",
			l.namespace, l.name, holder)
	}
	// An abandoned lease is free only after its duration.
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	timeout := time.AfterFunc(2*l.duration, giveUp)
	defer timeout.Stop()
	led := false
	err = l.once(waiting, func(held context.Context) error {
		led = timeout.Stop()
		err := lead(held)
		if lost := context.Cause(held); errors.Is(lost, errLeaseLost) {
			if errors.Is(err, errLeaseLost) {
				lost = nil // it reports that itself
			}
			return fmt.Errorf("lease %s/%s: %w", l.namespace, l.name, errors.Join(lost, err))
		}
		return err
	})
	if err == nil && !led {
		err = fmt.Errorf("lease %s/%s was not free within %v: %w", l.namespace, l.name, 2*l.duration, context.Cause(waiting))
	}
	return err
}

// holder returns the process that renewed the lease in time, or "".
func (l *lease) holder(ctx context.Context) (string, error) {
	found, err := l.client.CoordinationV1().Leases(l.namespace).Get(ctx, l.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("lease %s/%s: %w", l.namespace, l.name, err)
	}
	return settings.CurrentHolder(found.Spec), nil
}

// once waits for the lease and leads until it is lost or ctx ends.
func (l *lease) once(ctx context.Context, lead func(context.Context) error) error {
	// The election outlives ctx, so that the lease is released only after lead has returned. klog would repeat its
	// messages at every try.
	electing, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.New(nil)))
	held, over := make(chan struct{}), make(chan struct{})
	lock := &lock{lease: l, refused: make(chan error, 1), Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: l.namespace, Name: l.name},
		Client:     l.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity},
	}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: l.duration, RenewDeadline: l.renewDeadline(), RetryPeriod: l.retryPeriod(),
		ReleaseOnCancel: true, Name: l.name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(held) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		stop()
		return fmt.Errorf("lease %s/%s: %w", l.namespace, l.name, err)
	}
	go func() {
		defer close(over)
		elector.Run(electing)
	}()
	defer func() {
		lock.done.Store(true)
		stop()
		<-over
	}()
	select {
	case <-ctx.Done():
	case err := <-lock.refused:
		return err
	case <-over: // won and lost at once
	case <-held:
		return l.term(ctx, func(ctx context.Context) error {
			if lock.replaced.Load() {
				select {
				case <-ctx.Done():
				case <-time.After(2 * l.retryPeriod()): // by then the other leader has tried to renew the lease, and has ended
				}
			}
			return lead(ctx)
		})
	}
	return nil
}

// term runs lead until ctx ends or the lease is no longer valid. The elector reports a lost lease only after it has
// tried to release it, which takes long while the API server does not answer.
func (l *lease) term(ctx context.Context, lead func(context.Context) error) error {
	leading, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var guard sync.WaitGroup
	defer guard.Wait()
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	taken := make(chan struct{}, 1)
	l.mu.Lock()
	l.taken = taken
	l.mu.Unlock()
	guard.Go(func() {
		for left := l.left(); left > 0; left = l.left() {
			select {
			case <-leading.Done():
				return
			case <-taken:
			case <-time.After(left):
			}
		}
		l.log.Warn("lease lost", "lease", l.name)
		end(errLeaseLost)
	})
	l.log.Info("lease held", "lease", l.name)
	err := lead(leading)
	if err == nil && !errors.Is(context.Cause(leading), errLeaseLost) {
		l.log.Info("lease given up", "lease", l.name)
	}
	return err
}

// lock is the lease as the elector reads and writes it. It records when this process renewed the lease and when another
// one holds it, and logs an outage of the API server and its end once.
type lock struct {
	resourcelock.Interface
	lease    *lease
	done     atomic.Bool // the leader has returned: the lease may be released
	replaced atomic.Bool // the lease was deleted, and its holder may lead until it tries to renew it

	seen    resourcelock.LeaderElectionRecord // at the last read
	refused chan error
}

// errNotReleased means that a lease was not released, because another process holds it or the leader has not returned
// yet.
var errNotReleased = errors.New("the lease is not released")

// Get implements [resourcelock.Interface].
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.lease.answered(err, l.Describe())
	if err == nil && record.HolderIdentity != l.Identity() {
		l.lease.renewedAt(time.Time{})
		// An abandoned lease is not renewed.
		renewed := record.HolderIdentity == l.seen.HolderIdentity && !record.RenewTime.Equal(&l.seen.RenewTime)
		if l.seen = *record; renewed && l.lease.otherNamespace(record.HolderIdentity) {
			select {
			case l.refused <- l.lease.refusal(record.HolderIdentity):
			default:
			}
		}
	}
	return record, raw, err
}

// Create implements [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.write(record, func() error { return l.Interface.Create(ctx, record) })
	if err == nil && l.seen.HolderIdentity != "" {
		l.replaced.Store(true)
	}
	return err
}

// Update implements [resourcelock.Interface]. The elector would release the lease of another holder, and would also
// release it while a leader that could not renew it is still returning.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && (!l.done.Load() || !l.lease.mine()) {
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
	if l.renewed = at; at.IsZero() {
		select {
		case l.taken <- struct{}{}:
		default:
		}
	}
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
		l.log.Warn("cannot access the lease; retrying", "lease", name, "error", err)
	}
}
