package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// leases makes one role active in one process at a time.
type leases struct {
	client    kubernetes.Interface
	namespace string
	identity  string
	// duration is how long the others wait for a leader that is silent. A leader gives up after two thirds of it and
	// tries every seventh, which leaves several tries.
	duration time.Duration
	log      *slog.Logger
}

// newIdentity names this process in a lease: the host's name for people, and a random part, since a restarted process
// is another leader.
func newIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + rand.Text()
}

// hold runs lead whenever this process holds the lease of that name, until ctx ends. lead's context ends when the lease
// is lost or ctx ends. The lease is given up only after lead has returned, so that what lead finishes is finished under
// the lease.
func (l leases) hold(ctx context.Context, name string, lead func(context.Context) error) error {
	for ctx.Err() == nil {
		if err := l.once(ctx, name, lead); err != nil {
			return err
		}
	}
	return nil
}

// ifFree runs lead while this process holds the lease of that name. It fails, without waiting, when another process holds
// the lease, and also when the lease is lost before lead is done.
func (l leases) ifFree(ctx context.Context, name string, lead func(context.Context) error) error {
	holder, err := l.holder(ctx, name)
	if err != nil {
		return err
	}
	if holder != "" {
		return fmt.Errorf("lease %s/%s is held by %s: another process moves pods in this cluster; stop it, or use --dry-run",
			l.namespace, name, holder)
	}
	// An abandoned lease is only known to be one after its time.
	waiting, giveUp := context.WithCancel(ctx)
	defer giveUp()
	patience := time.AfterFunc(2*l.duration, giveUp)
	defer patience.Stop()
	led := false
	err = l.once(waiting, name, func(held context.Context) error {
		led = patience.Stop()
		err := lead(held)
		if held.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("lease %s/%s was lost: %w", l.namespace, name, errors.Join(held.Err(), err))
		}
		return err
	})
	if err == nil && !led {
		err = fmt.Errorf("lease %s/%s was not free within %v: %w", l.namespace, name, 2*l.duration, context.Cause(waiting))
	}
	return err
}

// holder is who holds the lease of that name and has renewed it in time; empty: nobody.
func (l leases) holder(ctx context.Context, name string) (string, error) {
	lease, err := l.client.CoordinationV1().Leases(l.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("lease %s/%s: %w", l.namespace, name, err)
	}
	s := lease.Spec
	if s.HolderIdentity == nil || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return "", nil
	}
	if time.Since(s.RenewTime.Time) > time.Duration(*s.LeaseDurationSeconds)*time.Second {
		return "", nil
	}
	return *s.HolderIdentity, nil
}

// once waits for the lease and leads until it is lost or ctx ends.
func (l leases) once(ctx context.Context, name string, lead func(context.Context) error) error {
	won := make(chan context.Context, 1)
	elector, err := l.elector(name, won)
	if err != nil {
		return fmt.Errorf("lease %s/%s: %w", l.namespace, name, err)
	}
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	electing = klog.NewContext(electing, klog.New(nil)) // it repeats itself at every try; the lock says what matters
	var elected sync.WaitGroup
	elected.Go(func() { elector.Run(electing) })
	defer elected.Wait()
	defer stop()
	select {
	case <-ctx.Done():
	case held := <-won:
		leading, cancel := context.WithCancel(held)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		l.log.Info("lease held", "lease", name)
		if err := lead(leading); err != nil {
			return err
		}
		l.log.Info("lease given up", "lease", name)
	}
	return nil
}

// elector competes for the lease, and sends a context to won when it has it, which ends when the lease is lost.
func (l leases) elector(name string, won chan<- context.Context) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &lock{log: l.log, Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.namespace, Name: name},
			Client:     l.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity},
		}},
		LeaseDuration: l.duration, RenewDeadline: l.duration * 2 / 3, RetryPeriod: l.duration / 7,
		ReleaseOnCancel: true, Name: name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) { won <- held },
			OnStoppedLeading: func() {},
		},
	})
}
