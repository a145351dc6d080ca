package app

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/dispatch"
	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/watcher"
	"github.com/rehome-dev/rehome/watcher/load"
)

// Roles are the roles of a process.
type Roles struct {
	Watcher, Actuator, Maintenance, API bool
	Functions                           []functions.Function
	Dispatcher                          bool // calls the external functions of the policy
	// Embedded starts a bus in the process unless a URL is set. The process sets up the bus in either case.
	Embedded bool
}

// kinds returns the kinds that the roles need.
func (r Roles) kinds() []cluster.Kind {
	var kinds []cluster.Kind
	if r.Watcher {
		kinds = append(kinds, watcher.Kinds()...)
	}
	if r.Actuator {
		kinds = append(kinds, actuator.Kinds()...)
	}
	if r.Maintenance {
		kinds = append(kinds, maintenance.Kinds()...)
	}
	if r.API {
		kinds = append(kinds, api.Kinds()...)
	}
	return kinds
}

// name returns the role name for the connection to the bus.
func (r Roles) name() bus.Role {
	switch {
	case r.Watcher && r.Actuator:
		return bus.RoleAll
	case r.Watcher:
		return bus.RoleWatcher
	case r.Actuator:
		return bus.RoleActuator
	case r.Maintenance:
		return bus.RoleMaintenance
	case r.API:
		return bus.RoleAPI
	case r.Dispatcher:
		return bus.RoleDispatcher
	}
	return bus.RoleFunctions
}

// start creates the parts of the process. Each adds its tasks, its readiness check, and its function for policy
// changes.
func (p *process) start() error {
	for _, part := range []struct {
		enabled bool
		start   func() error
	}{
		{p.client != nil, p.startAPIServerCheck},
		{len(p.roles.Functions) > 0, p.startFunctions},
		{p.roles.Dispatcher, p.startDispatcher},
		{p.roles.kinds() != nil, p.startCluster},
		{p.roles.Watcher, p.startWatcher},
		{p.roles.Actuator, p.startActuator},
		{p.roles.Maintenance, p.startMaintenance},
		{p.roles.API, p.startAPI},
	} {
		if part.enabled {
			if err := part.start(); err != nil {
				return err
			}
		}
	}
	if p.roles.Embedded && p.cluster != nil {
		p.tasks = append(p.tasks, p.returnMemory)
	}
	if len(p.leaders) > 0 || p.roles.Dispatcher || p.roles.API {
		p.tasks = append(p.tasks, newReloader(p.settings.Policy, p.content, p.setPolicy, p.metrics, p.log).run)
	}
	p.tasks = append(p.tasks, p.lead()...)
	return nil
}

func (p *process) startAPIServerCheck() error {
	p.check(func(ctx context.Context) error { return settings.APIServerReady(ctx, p.client) })
	return nil
}

func (p *process) startFunctions() error {
	h := newHosted(p.bus, p.policy)
	p.onPolicy(h.setPolicy)
	p.tasks = append(p.tasks, functions.Host{
		Functions: p.roles.Functions, Bus: h, Source: p.settings.Source("functions"), Log: p.log, Metrics: p.metrics,
	}.Run)
	return nil
}

func (p *process) startDispatcher() error {
	d := dispatch.New(dispatch.Config{
		Bus: questions{p.bus}, Open: func(o policy.Outside) (dispatch.Asker, error) { return openAsker(p.bus, o) },
		Source: p.settings.Source("dispatcher"), Log: p.log, Metrics: p.metrics,
	})
	d.Set(p.policy.Outside)
	p.onPolicy(func(next policy.Policy) error { d.Set(next.Outside); return nil })
	p.tasks = append(p.tasks, d.Run)
	return nil
}

func (p *process) startCluster() (err error) {
	p.cluster, err = cluster.New(cluster.Config{Client: p.client, Kinds: p.roles.kinds(), Log: p.log})
	if err != nil {
		return err
	}
	p.check(func(context.Context) error { return p.cluster.Ready() })
	p.tasks = append(p.tasks, p.cluster.Run)
	return nil
}

func (p *process) startWatcher() error {
	w, err := watcher.New(watcher.Config{
		Client: p.client, Cluster: p.cluster, Bus: p.bus, Requests: p.bus, Policy: p.policy,
		Source: p.settings.Source("watcher"), Resync: p.settings.Resync, Debounce: p.settings.Settle, Log: p.log, Metrics: p.metrics,
		LeaseValid: p.leaseValid(settings.WatcherLease), Now: p.bus.Now,
	})
	if err != nil {
		return err
	}
	p.resync = w.Resync
	p.policySetters = slices.Insert(p.policySetters, 0, w.SetPolicy) // first, because only it may refuse a policy
	p.tasks = append(p.tasks, w.Run)
	p.leaders = append(p.leaders, leader{settings.WatcherLease, func(ctx context.Context) error {
		return together(ctx, w.Lead, p.proofread)
	}})
	return nil
}

func (p *process) startActuator() error {
	valid := p.leaseValid(settings.ActuatorLease)
	client, err := settings.NewClient(p.settings, actuator.Guard(valid))
	if err != nil {
		return err
	}
	a := actuator.New(actuator.Config{
		Client: client, Events: p.client, Bus: p.bus, Ledger: p.bus.Ledger(), View: p.cluster.Workloads(), Policy: p.policy,
		Facts: p.cluster, Capacity: p.cluster, Source: p.settings.Source("actuator"), DryRun: p.settings.DryRun,
		Parallel: p.settings.Parallel, Log: p.log, Metrics: p.metrics, LeaseValid: valid, Now: p.bus.Now,
		Self: corev1.ObjectReference{
			APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: p.settings.LeaseNamespace,
			Name: p.settings.LeaseName(settings.ActuatorLease),
		},
	})
	p.cluster.Workloads().OnChange(a.Changed)
	p.onPolicy(func(next policy.Policy) error { a.SetPolicy(next); return nil })
	p.check(func(context.Context) error { return a.Ready() })
	p.warnings = append(p.warnings, func(context.Context) error { return a.Warning() })
	p.leaders = append(p.leaders, leader{settings.ActuatorLease, a.Lead})
	return nil
}

func (p *process) startMaintenance() error {
	dynamic, err := settings.NewDynamicClient(p.settings)
	if err != nil {
		return err
	}
	kinds, err := settings.NewKindsClient(p.settings)
	if err != nil {
		return err
	}
	m := maintenance.New(maintenance.Config{
		Client: p.client, Dynamic: dynamic, Kinds: kinds, View: p.cluster, Bus: p.bus, Table: p.bus.Maintenances(),
		Policy: p.policy, Prometheus: p.prometheus, Source: p.settings.Source("maintenance"), DryRun: p.settings.DryRun,
		Log: p.log, Metrics: p.metrics, LeaseValid: p.leaseValid(settings.MaintenanceLease), Now: p.bus.Now,
	})
	p.onPolicy(func(next policy.Policy) error { m.SetPolicy(next); return nil })
	p.check(func(context.Context) error { return m.Ready() })
	p.tasks = append(p.tasks, m.Run)
	p.leaders = append(p.leaders, leader{settings.MaintenanceLease, m.Lead})
	return nil
}

func (p *process) startAPI() error {
	a, err := api.New(api.Config{
		Client: p.client, Cluster: p.cluster, Bus: p.bus, Policy: func() policy.Policy { return *p.inForce.Load() },
		Settings: p.settings, Log: p.log,
	})
	if err != nil {
		return err
	}
	p.operator.Handler, p.network.Handler = a.Operator(), a.Network()
	p.tasks = append(p.tasks, a.Run)
	return nil
}

// prometheus returns a client for the queries of gates, or nil if the policy names no server.
func (p *process) prometheus(metrics policy.Metrics) (maintenance.Prometheus, error) {
	server := metrics.Prometheus()
	if server == nil {
		return nil, nil
	}
	return load.NewPrometheus(server.URL, "", load.TokenFor(p.client, *server), time.Now, p.log)
}
