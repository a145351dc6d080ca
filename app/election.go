package app

import (
	"context"
	"errors"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// election is one competition for a lease, and the term that follows when it is won.
type election struct {
	leases
	name    string
	lock    *lock
	elector *leaderelection.LeaderElector
	seen    sightings
	won     chan context.Context // gets a context that ends when the lease cannot be renewed
}

func (l leases) election(name string, seen sightings) (*election, error) {
	e := &election{leases: l, name: name, seen: seen, won: make(chan context.Context, 1)}
	e.lock = newLock(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: l.namespace, Name: name},
		Client:     l.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity},
	}, l.log)
	var err error
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, LeaseDuration: l.duration, RenewDeadline: l.duration * 2 / 3, RetryPeriod: l.duration / 7,
		ReleaseOnCancel: true, Name: name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				if held.Err() == nil { // else it is given up already
					e.won <- held
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	return e, err
}

// run competes until ctx ends or the lease was won and lost again. It gives up a lease that it holds in the end.
func (e *election) run(ctx context.Context) {
	for e.try(ctx) {
	}
}

// try competes for the lease, and says whether to do so anew at once. The elector can only be woken by ending it. That
// is done when somebody was seen to give up the lease after the elector was refused, which makes it wait.
func (e *election) try(ctx context.Context) (again bool) {
	trying, stop := context.WithCancel(ctx)
	e.lock.begin()
	var waker sync.WaitGroup
	waker.Go(func() {
		select {
		case <-e.lock.refused:
		case <-trying.Done():
			return
		}
		select {
		case <-e.seen.free:
			e.lock.unlessHeld(stop)
		case <-trying.Done():
		}
	})
	e.elector.Run(trying)
	again = trying.Err() != nil && ctx.Err() == nil
	stop()
	waker.Wait()
	return again
}

// term runs lead until held ends, ctx ends, or another process has taken the lease.
func (e *election) term(ctx, held context.Context, lead func(context.Context) error) error {
	leading, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var guard sync.WaitGroup
	defer guard.Wait()
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	lose := sync.OnceFunc(func() {
		if leading.Err() == nil {
			e.log.Warn("lease lost", "lease", e.name)
		}
		end(errLeaseLost)
	})
	e.log.Info("lease held", "lease", e.name)
	guard.Go(func() { e.guard(leading, held, lose) })
	if err := lead(leading); err != nil {
		return err
	}
	if !errors.Is(context.Cause(leading), errLeaseLost) {
		e.log.Info("lease given up", "lease", e.name)
	}
	return nil
}

// guard calls lose when the lease cannot be renewed or has another holder, as soon as that is known. The elector by
// itself would go on trying to renew the lease of another holder until its deadline. What is watched may be of a time
// before the term, so the lease itself is looked at.
func (e *election) guard(leading, held context.Context, lose func()) {
	for {
		select {
		case <-leading.Done():
			return
		case <-held.Done():
			lose()
		case <-e.lock.lost:
			lose()
		case <-e.seen.taken:
			if e.taken(leading) {
				lose()
			}
		}
	}
}

// taken says whether somebody else holds the lease now, in time or not. It does not when the API server cannot be
// asked: the elector will find out.
func (e *election) taken(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, klog.New(nil)), e.duration/7) // an end on the way is no error
	defer cancel()
	lease, err := e.client.CoordinationV1().Leases(e.namespace).Get(ctx, e.name, metav1.GetOptions{})
	return err == nil && !e.mayTake(lease)
}
