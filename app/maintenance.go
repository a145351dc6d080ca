package app

import (
	"context"
	"time"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/watcher/load"
)

// newMaintenance makes the maintenance role.
func (p *process) newMaintenance() (*maintenance.Controller, error) {
	dynamic, err := settings.NewDynamicClient(p.settings)
	if err != nil {
		return nil, err
	}
	kinds, err := settings.NewKindsClient(p.settings)
	if err != nil {
		return nil, err
	}
	config := maintenance.Config{
		Client: p.client, Dynamic: dynamic, Kinds: kinds, View: p.cluster, Bus: p.adapter(), Table: p.bus.Maintenances(),
		Policy: p.policy, Prometheus: p.prometheus, Source: p.settings.Source("maintenance"), DryRun: p.settings.DryRun,
		Log: p.log, Metrics: p.metrics,
	}
	if !p.settings.DryRun { // which needs no lease
		config.LeaseValid = p.lease(settings.MaintenanceLease).Valid
	}
	m := maintenance.New(config)
	m.Watch(p.cluster)
	p.maintenance = m
	p.checks = append(p.checks, func(context.Context) error { return m.Ready() })
	return m, nil
}

// prometheus makes a client for the queries of gates. nil: the policy names no server.
func (p *process) prometheus(metrics policy.Metrics) (maintenance.Prometheus, error) {
	server := metrics.Prometheus
	if server == nil {
		return nil, nil
	}
	token := load.Token(load.AccountToken)
	if server.TokenSecret != nil {
		token = load.SecretToken(p.client, *server.TokenSecret)
	}
	return load.NewPrometheus(server.URL, "", token, time.Now, p.log)
}
