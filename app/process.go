package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/api"
	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/dispatch"
	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/trace"
	"github.com/rehome-dev/rehome/watcher"
)

// Roles are what a process does.
type Roles struct {
	Watcher, Actuator, Maintenance bool
	Functions                      []functions.Function
	Dispatcher                     bool // functions that the policy sends elsewhere are asked there
	// Embedded: the bus is in the process when no URL is given, and the process sets up the bus.
	Embedded bool
}

// kinds are those of the cluster that the roles need to know.
func (r Roles) kinds() []cluster.Kind {
	var kinds []cluster.Kind
	if r.Watcher {
		kinds = append(kinds, watcher.Kinds()...)
	}
	if r.Actuator {
		kinds = slices.Concat(kinds, cluster.WorkloadKinds(), cluster.PlacementKinds())
	}
	if r.Maintenance {
		kinds = append(kinds, maintenance.Kinds()...)
	}
	return kinds
}

// name is as whom a process with these roles takes part on the bus.
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
	case r.Dispatcher:
		return bus.RoleDispatcher
	}
	return bus.RoleFunctions
}

// process is one rehome process: the roles and what they share.
type process struct {
	settings settings.Settings
	roles    Roles
	log      *slog.Logger
	policy   policy.Policy    // the first one; it is reloaded when its file changes
	content  settings.Content // of its file
	declared *enlisting
	client   kubernetes.Interface
	bus      *bus.Bus
	spans    *trace.Exporter      // nil: nobody asked for them
	cluster  *cluster.Cache       // what the roles know of the cluster; nil: no role needs to
	watcher  *watcher.Watcher     // nil: another process has it
	actuator *actuator.Actuator   // nil: another process has it
	dispatch *dispatch.Dispatcher // nil: another process has it
	// maintenance is nil if another process has it.
	maintenance *maintenance.Controller
	hosted      *hosted // what functions are hosted here; nil: none
	metrics     *prometheus.Registry
	checks      []serving.Check
	leases      map[string]*lease // by name
	identity    string            // of this process, in all of them
}

// Run runs the roles until ctx ends or one of them fails. It has read and checked everything that a person can
// get wrong before it begins.
func Run(ctx context.Context, s settings.Settings, r Roles) error {
	limitHeap()
	p := &process{settings: s, roles: r, log: s.Logger(os.Stderr), metrics: serving.NewMetrics()}
	klog.SetSlogLogger(p.log.With("component", "client-go"))
	if err := p.prepare(); err != nil {
		return err
	}
	p.declared = newEnlisting(p.policy, p.setUpFor, p.log)
	web, err := serving.NewServer(s, s.HTTPAddress, p.client, p.metrics, p.log)
	if err != nil {
		return err
	}
	requests, err := p.listenForRequests()
	if err != nil {
		return err
	}
	defer requests.Close()
	if p.spans, err = trace.New(settings.Version, p.log); err != nil {
		return usage.Wrap(err)
	}
	defer p.spans.Close()
	stop, err := p.openBus()
	if err != nil {
		return err
	}
	defer stop()
	listener, err := web.Listen()
	if err != nil {
		return err
	}
	g := newGroup(ctx)
	work, err := p.start()
	if err != nil {
		return err
	}
	web.Checks = p.checks
	g.run(func(ctx context.Context) error { return web.Serve(ctx, listener) })
	if requests != nil {
		requests.Handler = api.New(p.client, p.bus, p.settings.Source("http"), p.log)
		g.run(requests.Serve)
	}
	g.run(func(ctx context.Context) error { return p.follow(ctx, g, work) })
	if p.cluster != nil && p.roles.Embedded {
		g.run(p.returnMemory)
	}
	return g.wait()
}

// follow begins the work, in g, once the bus is set up, and says when all that was on the bus was lost.
func (p *process) follow(ctx context.Context, g *group, work []task) error {
	began := false
	return p.bus.FollowStreams(ctx, p.setUp(), func() {
		if began {
			p.renewed()
			return
		}
		began = true
		for _, w := range work {
			g.run(w)
		}
	})
}

// prepare reads the policy and finds the cluster, for the roles that need them.
func (p *process) prepare() error {
	if err := p.settings.Check(); err != nil {
		return err
	}
	needsCluster := p.roles.kinds() != nil
	if !needsCluster && !p.roles.Dispatcher {
		return nil
	}
	var err error
	if p.policy, p.content, err = settings.ReadPolicy(p.settings.Policy); err != nil {
		return err
	}
	if !needsCluster { // who only asks functions needs no cluster
		return nil
	}
	p.client, err = settings.NewClient(p.settings)
	return err
}

// listenForRequests takes the address for requests, if the process has a watcher and there is one. nil: not.
func (p *process) listenForRequests() (*serving.RequestServer, error) {
	if !p.roles.Watcher {
		return nil, nil
	}
	return serving.ListenForRequests(p.settings, p.log)
}

// openBus connects to the bus, which is started first if it is in the process. stop closes both.
func (p *process) openBus() (stop func(), err error) {
	options, err := settings.BusOptions(p.settings, string(p.roles.name()))
	if err != nil {
		return nil, err
	}
	options.Log = p.log
	stopServer := func() {}
	if p.settings.NATSURL == "" {
		if !p.roles.Embedded {
			return nil, usage.Errorf("one role alone needs an external bus: set REHOME_NATS_URL or use `rehome run`")
		}
		server, err := settings.StartServer(p.settings)
		if err != nil {
			return nil, err
		}
		stopServer = server.Stop
		options.Server, options.Socket = server, ""
	}
	if anonymous(p.settings) {
		p.log.Warn("this process uses the NATS servers without a key: any program that reaches them can have pods evicted; "+
			"rehome setup --auth writes keys", "url", bus.Redacted(p.settings.NATSURL))
	}
	if p.bus, err = bus.Connect(options); err != nil {
		stopServer()
		return nil, usage.Wrap(err)
	}
	p.checks = append(p.checks, func(context.Context) error { return p.bus.Ready() })
	p.tellOfBus()
	return func() {
		p.bus.Close()
		stopServer()
	}, nil
}

// anonymous reports whether NATS servers elsewhere are used without anything that tells this process from another program.
func anonymous(s settings.Settings) bool {
	return s.NATSURL != "" && s.NATSNKey == "" && s.NATSCreds == "" && !strings.Contains(s.NATSURL, "@")
}

// setUp returns what makes the streams. nil: this process is not the one that does, and waits for them.
func (p *process) setUp() func(context.Context) error {
	if !p.roles.Embedded {
		return nil
	}
	return func(ctx context.Context) error { return p.setUpFor(ctx, *p.declared.policy.Load()) }
}

// setUpFor makes the streams, and the consumers of the strategies of this binary and of a policy.
func (p *process) setUpFor(ctx context.Context, of policy.Policy) error {
	return p.bus.Setup(ctx, settings.SetupOf(p.settings, of))
}

// renewed is called when everything that was on the bus was lost: what was wanted before is found out anew.
func (p *process) renewed() {
	p.log.Warn("the bus has lost everything that was on it and is empty now")
	if p.watcher != nil {
		p.watcher.Resync()
	}
}

// start makes the roles and returns what they do.
func (p *process) start() (work []task, err error) {
	if p.client != nil {
		p.checks = append(p.checks, func(ctx context.Context) error { return settings.ApiServerReady(ctx, p.client) })
	}
	if len(p.roles.Functions) > 0 {
		p.hosted = newHosted(p.adapter(), p.policy)
		work = append(work, functions.Host{
			Functions: p.roles.Functions, Bus: p.hosted, Source: p.settings.Source("functions"), Log: p.log,
			Metrics: p.metrics,
		}.Run)
	}
	if p.roles.Dispatcher {
		if p.dispatch, err = p.newDispatcher(); err != nil {
			return nil, err
		}
		work = append(work, p.dispatch.Run)
	}
	var leading []leader
	if kinds := p.roles.kinds(); kinds != nil {
		if p.cluster, err = cluster.New(cluster.Config{Client: p.client, Kinds: kinds, Log: p.log}); err != nil {
			return nil, err
		}
		work = append(work, p.cluster.Run)
		p.checks = append(p.checks, func(context.Context) error { return p.cluster.Ready() })
	}
	if p.roles.Watcher {
		w, err := p.newWatcher()
		if err != nil {
			return nil, err
		}
		work = append(work, w.Run)
		leading = append(leading, leader{settings.WatcherLease, func(ctx context.Context) error {
			return together(ctx, []task{w.Lead, p.proofread})
		}})
	}
	if p.roles.Actuator {
		leading = append(leading, leader{settings.ActuatorLease, p.newActuator()})
	}
	if p.roles.Maintenance {
		m, err := p.newMaintenance()
		if err != nil {
			return nil, err
		}
		work = append(work, m.Run)
		leading = append(leading, leader{settings.MaintenanceLease, m.Lead})
	}
	if len(leading) > 0 || p.roles.Dispatcher {
		work = append(work, p.newReloader().run)
	}
	if p.roles.Embedded {
		work = append(work, p.declared.run)
	}
	p.metrics.MustRegister(newReadiness(p.checks))
	return append(work, p.lead(leading)...), nil
}

func (p *process) newReloader() *reloader {
	return &reloader{
		file: p.settings.Policy, current: p.content, apply: p.setPolicy, reloads: newReloads(p.metrics), log: p.log,
	}
}

// setPolicy puts another policy in force in all roles of the process, or in none.
func (p *process) setPolicy(next policy.Policy) error {
	if p.watcher != nil {
		if err := p.watcher.SetPolicy(next); err != nil {
			return err
		}
	}
	if p.actuator != nil {
		p.actuator.SetPolicy(next)
	}
	if p.maintenance != nil {
		p.maintenance.SetPolicy(next)
	}
	if p.hosted != nil {
		p.hosted.set(next)
	}
	if p.dispatch != nil {
		p.dispatch.Set(next.Outside)
	}
	p.declared.replace(next)
	return nil
}

func (p *process) newWatcher() (*watcher.Watcher, error) {
	w, err := watcher.New(watcher.Config{
		Client: p.client, Cluster: p.cluster, Bus: p.adapter(), Requests: p.adapter(),
		Policy: p.policy,
		Source: p.settings.Source("watcher"),
		Resync: p.settings.Resync, Settle: p.settings.Settle, Log: p.log, Metrics: p.metrics,
	})
	if err != nil {
		return nil, err
	}
	p.watcher = w
	return w, nil
}

// task runs until its context ends.
type task func(context.Context) error

// leader is a role of which only one may be active.
type leader struct {
	lease string
	run   task
}

// lead returns tasks that make each role active while this process holds its lease. Roles that share the bus in this
// process are active together or not at all: one lease is asked for only while the one before is held.
func (p *process) lead(roles []leader) []task {
	var tasks []task
	leading := newLeading()
	if len(roles) > 0 {
		p.metrics.MustRegister(leading)
	}
	for _, r := range slices.Backward(roles) {
		if p.settings.NATSURL == "" && len(tasks) > 0 {
			inner := tasks
			own := r.run
			r.run = func(ctx context.Context) error { return together(ctx, append(inner, own)) }
			tasks = nil
		}
		r.run = counted(leading.WithLabelValues(r.lease), r.run)
		tasks = append(tasks, p.leased(r))
	}
	return tasks
}

// together runs tasks until ctx ends or one fails.
func together(ctx context.Context, tasks []task) error {
	g := newGroup(ctx)
	for _, t := range tasks {
		g.run(t)
	}
	return g.wait()
}

// leased makes a role active only while this process holds its lease. A dry run changes nothing in the cluster, not
// even a lease, and needs none.
func (p *process) leased(r leader) task {
	if p.settings.DryRun {
		return r.run
	}
	l := p.lease(r.lease)
	return func(ctx context.Context) error { return l.hold(ctx, r.run) }
}

// lease is the lease of that name, of which the process has one.
func (p *process) lease(name string) *lease {
	if p.leases[name] == nil {
		if p.leases == nil {
			p.leases, p.identity = make(map[string]*lease), newIdentity()
		}
		p.leases[name] = &lease{
			client: p.client, namespace: p.settings.LeaseNamespace(), name: name, identity: p.identity,
			duration: p.settings.LeaseDuration, log: p.log,
		}
	}
	return p.leases[name]
}

// group runs functions until one fails or its context ends, and waits for all of them.
type group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
}

func newGroup(ctx context.Context) *group {
	g := &group{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

func (g *group) run(f task) {
	g.wg.Go(func() {
		if err := f(g.ctx); err != nil {
			g.cancel(err)
		}
	})
}

// wait returns the first error, or nil when the context ended from outside. That a lease was lost comes from outside.
func (g *group) wait() error {
	g.wg.Wait()
	err := context.Cause(g.ctx)
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, errLeaseLost) {
		return nil
	}
	return err
}

const (
	// gcPercent is how much the heap may grow between two collections, in percent. Most of the heap is caches that stay, so Go's
	// default of 100 would leave as much again empty. See docs/decisions/0014-memory-of-one-process.md.
	gcPercent = 50
	// memoryCheck is the time between two checks whether a step of the start is over.
	memoryCheck = 2 * time.Second
	// calmChecks is how many checks in a row find no open scope when the first full evaluation is over.
	calmChecks = 3
)

// limitHeap makes garbage collections more frequent, unless GOGC is set.
func limitHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// returnMemory gives unused memory back to the system twice: when the caches are filled, and after the first full evaluation. Go
// itself would keep it for minutes.
func (p *process) returnMemory(ctx context.Context) error {
	if !holds(ctx, func() bool { return p.cluster.Ready() == nil }, 1) {
		return nil
	}
	debug.FreeOSMemory()
	if holds(ctx, func() bool { return p.openScopes(ctx) == 0 }, calmChecks) {
		debug.FreeOSMemory()
	}
	return nil
}

// openScopes returns how many scopes wait for an answer, and 1 while the bus does not answer.
func (p *process) openScopes(ctx context.Context) uint64 {
	streams, err := p.bus.Status(ctx)
	for _, s := range streams {
		if err == nil && s.Name == bus.StreamScopes {
			return s.Messages
		}
	}
	return 1
}

// holds waits until a condition was true in n checks in a row, and returns false if ctx ends before.
func holds(ctx context.Context, condition func() bool, n int) bool {
	for found := 0; found < n; {
		select {
		case <-time.After(memoryCheck):
		case <-ctx.Done():
			return false
		}
		if condition() {
			found++
		} else {
			found = 0
		}
	}
	return true
}
