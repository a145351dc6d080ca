package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/actuator/workload"
)

// newActuator makes the actuator. What it looks at is kept up to date always, led or not; it leads once that is complete.
func (p *process) newActuator() (always, lead task) {
	var a *actuator.Actuator
	view := workload.New(p.client, func(c workload.Change) { a.Changed(c) })
	config := actuator.Config{
		Client: p.client, Kinds: p.kinds, Maintenances: p.bus.Maintenances(), Bus: p.adapter(), Ledger: p.bus.Ledger(), View: view,
		Policy: p.policy,
		Source: p.settings.source("actuator"), DryRun: p.settings.DryRun, Parallel: p.settings.Parallel, Log: p.log,
		Metrics: p.metrics,
		Self: corev1.ObjectReference{
			APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: p.settings.leaseNamespace(), Name: actuatorLease,
		},
	}
	if p.watcher != nil {
		config.Room = p.watcher
	}
	a = actuator.New(config)
	p.actuator = a
	p.checks = append(p.checks, func(context.Context) error { return errors.Join(view.Ready(), a.Ready()) })
	return view.Run, func(ctx context.Context) error {
		if !arrives(ctx, view.Synced()) {
			return nil
		}
		return a.Lead(ctx)
	}
}

// arrives waits until done is closed, and says whether it was before ctx ended.
func arrives(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
