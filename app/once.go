package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/watcher"
)

// RunOnce checks everything that a user can get wrong, and then runs one round.
func RunOnce(ctx context.Context, s settings.Settings, output simulate.Output, notes io.Writer) error {
	o := once{settings: s, output: output, notes: notes}
	err := s.Check()
	if err != nil {
		return err
	}
	if o.policy, _, err = settings.ReadPolicy(s.Policy); err != nil {
		return err
	}
	if o.client, err = settings.NewClient(s); err != nil {
		return err
	}
	o.policy = settings.WithoutOutside(o.policy, notes)
	log := s.Logger(notes)
	setClientLog(log)
	if s.DryRun {
		return o.round(ctx)
	}
	l := newLease(s, o.client, settings.ActuatorLease, newIdentity(s.OwnNamespace()), log)
	o.leaseValid = l.Valid
	if o.guarded, err = settings.NewClient(s, actuator.Guard(l.Valid)); err != nil {
		return err
	}
	return l.ifFree(ctx, o.round)
}

type once struct {
	settings settings.Settings
	policy   policy.Policy
	client   kubernetes.Interface
	output   simulate.Output
	notes    io.Writer
	// leaseValid and guarded, the client that writes only while it returns true, are nil in a dry run.
	leaseValid func() bool
	guarded    kubernetes.Interface
}

type batches struct {
	*actuator.Batches
	close func()
}

// fillWithin is how long a round, which holds the lease, waits for its caches. Without a right to list they never fill.
const fillWithin = 2 * time.Minute

// batches starts to follow the cluster and returns when its caches are filled, or fails after the limit.
func (o once) batches(ctx context.Context, limit time.Duration) (batches, error) {
	log := slog.New(slog.NewTextHandler(o.notes, &slog.HandlerOptions{Level: slog.LevelWarn})) // the verdicts are the output
	view, err := cluster.New(cluster.Config{Client: o.client, Kinds: actuator.Kinds(), Log: log})
	if err != nil {
		return batches{}, err
	}
	a := actuator.New(actuator.Config{
		Client: cmp.Or(o.guarded, o.client), Events: o.client, LeaseValid: o.leaseValid, View: view.Workloads(), Facts: view,
		Capacity: view, Policy: o.policy, Source: o.settings.Source("once"), DryRun: o.settings.DryRun, Parallel: o.settings.Parallel,
		Log: log,
	})
	view.Workloads().OnChange(a.Changed)
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- view.Run(following) }()
	filling, giveUp := context.WithTimeout(ctx, limit)
	defer giveUp()
	if !view.WaitForSync(filling) {
		err := ctx.Err()
		if err == nil {
			err = fmt.Errorf("gave up after %v: %w", limit, cmp.Or(view.Ready(), filling.Err()))
		}
		stop()
		return batches{}, errors.Join(err, <-done)
	}
	b := a.Batches()
	return batches{b, func() {
		b.Close()
		stop()
		if err := <-done; err != nil {
			fmt.Fprintln(o.notes, "rehome:", err)
		}
	}}, nil
}

func (o once) round(ctx context.Context) error {
	round, objects, err := ReadRound(ctx, o.client, o.policy)
	if err != nil {
		return err
	}
	batches, err := o.batches(ctx, fillWithin)
	if err != nil {
		return err
	}
	defer batches.close()
	failed := 0
	round.Carry = func(ctx context.Context, intents []actuator.Intent) ([]schemas.Verdict, error) {
		verdicts, err := batches.Handle(ctx, intents)
		if ctx.Err() == nil {
			err = nil // each verdict has its own, and is counted below
		}
		return verdicts, err
	}
	err = simulate.Run(ctx, round, objects, func(verdicts []schemas.Verdict) error {
		for _, v := range verdicts {
			if isFailure(v) {
				failed++
			}
		}
		return o.output.Verdicts(verdicts)
	})
	err = errors.Join(err, o.output.End())
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("ended before everything was decided: %w", context.Cause(ctx))
	case err != nil:
		return err
	case failed == 1:
		return errors.New("1 pod could not be evicted")
	case failed > 1:
		return fmt.Errorf("%d pods could not be evicted", failed)
	}
	return nil
}

// isFailure reports whether a round with this verdict fails. An expired intent is a failure, because no other round follows.
func isFailure(v schemas.Verdict) bool {
	return v.Outcome == schemas.Failed || v.Outcome == schemas.Expired ||
		v.Reason == schemas.ReasonAPIUnavailable || v.Reason == schemas.ReasonInternalError
}

// ReadRound reads the input of a round in a cluster: its objects, and the load of nodes and pods.
func ReadRound(ctx context.Context, client kubernetes.Interface, p policy.Policy) (simulate.Config, []metav1.Object, error) {
	objects, err := settings.ReadCluster(ctx, client)
	if err != nil {
		return simulate.Config{}, nil, err
	}
	c := simulate.Config{Policy: p, Functions: functions.All(), Now: time.Now}
	c.MinorVersion, _ = cluster.ReadMinorVersion(ctx, client) // 0 after an error, which means the one of the kubelets
	c.Loads.Nodes, c.Loads.Pods, err = watcher.Measure(ctx, client, p)
	return c, objects, err
}
