package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
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

// errLeaseLost is the cause of the end of a leader's context when the lease is not, or may not be, its own any more.
// What another leader may do by now is then left undone, even what was begun. Every other cause is an orderly end,
// within which the lease is kept until the leader has returned.
var errLeaseLost = fmt.Errorf("the lease was lost, and %w", actuator.ErrNotLeading)

// hold runs lead whenever this process holds the lease of that name, until ctx ends. lead's context ends when ctx ends,
// with the same cause, or when the lease is lost, with the cause [errLeaseLost]. The lease is given up only after lead
// has returned, so that what lead finishes is finished under the lease.
//
// A lease that is given up is asked for at once, as long as it can be watched. Otherwise it is asked for every seventh
// of its duration, and so is one whose leader is silent.
func (l leases) hold(ctx context.Context, name string, lead func(context.Context) error) error {
	return l.watched(ctx, name, func(seen sightings) error {
		for ctx.Err() == nil {
			if err := l.once(ctx, name, seen, lead); err != nil && !errors.Is(err, errLeaseLost) {
				return err
			}
		}
		return nil
	})
}

// ifFree runs lead while this process holds the lease of that name. It fails, without waiting, when another process
// holds the lease, and also when the lease is lost before lead is done.
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
	err = l.watched(waiting, name, func(seen sightings) error {
		return l.once(waiting, name, seen, func(held context.Context) error {
			led = patience.Stop()
			err := lead(held)
			if lost := context.Cause(held); errors.Is(lost, errLeaseLost) {
				if errors.Is(err, errLeaseLost) {
					lost = nil // it says so itself
				}
				return fmt.Errorf("lease %s/%s: %w", l.namespace, name, errors.Join(lost, err))
			}
			return err
		})
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
	return settings.InTime(lease.Spec), nil
}

// once waits for the lease and leads until it is lost or ctx ends.
func (l leases) once(ctx context.Context, name string, seen sightings, lead func(context.Context) error) error {
	e, err := l.election(name, seen)
	if err != nil {
		return fmt.Errorf("lease %s/%s: %w", l.namespace, name, err)
	}
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	electing = klog.NewContext(electing, klog.New(nil)) // it repeats itself at every try; the lock says what matters
	over := make(chan struct{})
	go func() {
		defer close(over)
		e.run(electing)
	}()
	defer func() {
		stop()
		<-over
	}()
	select {
	case <-ctx.Done():
	case <-over: // won and lost before anybody looked
	case held := <-e.won:
		return e.term(ctx, held, lead)
	}
	return nil
}
