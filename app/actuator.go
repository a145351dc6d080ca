package app

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
)

// newActuator makes the actuator, which leads once the cluster is known.
func (p *process) newActuator() (lead task) {
	config := actuator.Config{
		Client: p.client, Bus: p.adapter(), Ledger: p.bus.Ledger(),
		View:   p.cluster.Workloads(),
		Policy: p.policy, Room: p.cluster, Facts: p.cluster,
		Source: p.settings.Source("actuator"), DryRun: p.settings.DryRun, Parallel: p.settings.Parallel, Log: p.log,
		Metrics: p.metrics,
		Self: corev1.ObjectReference{
			APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: p.settings.LeaseNamespace(), Name: settings.ActuatorLease,
		},
	}
	if !p.settings.DryRun { // which needs no lease
		config.LeaseValid = p.lease(settings.ActuatorLease).Valid
	}
	a := actuator.New(config)
	p.cluster.Workloads().OnChange(a.Changed)
	p.actuator = a
	p.checks = append(p.checks, func(context.Context) error { return a.Ready() })
	return func(ctx context.Context) error {
		if !p.cluster.WaitForSync(ctx) {
			return nil
		}
		return a.Lead(ctx)
	}
}
