// Package app composes a process from the roles: it reads the settings, connects to the bus and the cluster, elects
// leaders, and serves HTTP. No other package composes roles.
//
//	Run ─▶ prepare     process.go   settings, policy, client
//	    ─▶ openBus     process.go   the server in the process, and the connection
//	    ─▶ start       roles.go     one constructor for each role
//	    ─▶ follow      process.go   begins the tasks when the streams exist
//
//	RunOnce            once.go        one round without a bus
//	questions          dispatcher.go  the bus as the dispatcher sees it
//	hosted             hosted.go      the bus as the functions see it
//	reloader           reload.go      reads the policy file again
//	lease, lock        lease.go       leader election
//	proofread          proofread.go   dead letters of invalid events in the history
//	metrics.go, heap.go, apiclock.go
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/trace"
)

type process struct {
	settings settings.Settings
	roles    Roles
	log      *slog.Logger
	metrics  *prometheus.Registry
	policy   policy.Policy                 // at the start
	inForce  atomic.Pointer[policy.Policy] // now
	content  settings.Content              // of the policy file at the start
	client   kubernetes.Interface
	server   *embed.Server // nil if the bus is external
	bus      *bus.Bus
	operator *serving.Server // the loopback address of the API
	network  *serving.Server // the network address of the API
	spans    *trace.Exporter // nil if not enabled
	cluster  *cluster.Cache  // nil if no role needs it
	resync   func()          // of the watcher; nil if it runs in another process

	tasks         []task
	leaders       []leader
	checks        []serving.Check
	warnings      []serving.Check
	policySetters []func(policy.Policy) error

	unidentified atomic.Pointer[error] // why the cluster is not identified yet; nil if it is, or this process has no access to it

	leases   map[string]*lease // by name
	identity string            // of this process in all leases
}

type task func(context.Context) error

func (p *process) check(c serving.Check) { p.checks = append(p.checks, c) }

func (p *process) onPolicy(set func(policy.Policy) error) {
	p.policySetters = append(p.policySetters, set)
}

// setPolicy sets another policy in all roles, or in none: only the first role may reject it, see startWatcher.
func (p *process) setPolicy(next policy.Policy) error {
	for _, set := range p.policySetters {
		if err := set(next); err != nil {
			return err
		}
	}
	return nil
}

// Run runs the roles until ctx ends or one of them fails. It checks all settings before it begins.
func Run(ctx context.Context, s settings.Settings, r Roles) error {
	setGCPercent()
	r.Maintenance = r.Maintenance && (s.Maintenance || !r.Watcher)
	p := &process{settings: s, roles: r, log: s.Logger(os.Stderr), metrics: serving.NewMetrics()}
	setClientLog(p.log)
	if err := p.prepare(); err != nil {
		return err
	}
	p.inForce.Store(&p.policy)
	p.onPolicy(func(next policy.Policy) error { p.inForce.Store(&next); return nil })
	web, status, err := serving.ListenForStatus(s, p.client, p.metrics, p.log)
	if err != nil {
		return err
	}
	defer web.Close()
	if err := p.listenForAPI(); err != nil {
		return err
	}
	defer p.operator.Close()
	defer p.network.Close()
	if p.spans, err = trace.New(settings.Version, p.log); err != nil {
		return err
	}
	defer p.spans.Close()
	stop, err := p.openBus()
	if err != nil {
		return err
	}
	defer stop()
	if err := p.start(); err != nil {
		return err
	}
	status.Checks, status.Alive = p.checks, p.alive
	status.Warnings = slices.Concat(p.warnings, status.Warnings, []serving.Check{p.operator.Warning, p.network.Warning})
	p.metrics.MustRegister(newReadiness(status.Ready))
	if web.Listener != nil {
		p.log.Info("serving", "metrics", web.URL("/metrics"))
	}
	for _, a := range []*serving.Server{p.operator, p.network} {
		if a.Listener != nil {
			p.log.Info("serving the API", "address", a.URL("/"), "token", a == p.network)
		}
	}
	return together(ctx, web.Serve, p.operator.Serve, p.network.Serve, p.follow)
}

// alive returns an error if only a restart of this process can help.
func (p *process) alive() error {
	if p.server != nil {
		if err := p.server.Alive(time.Now()); err != nil {
			return err
		}
	}
	return p.bus.Alive()
}

// listenForAPI takes the addresses of the API, or none in a process without that role.
func (p *process) listenForAPI() (err error) {
	p.operator, p.network = &serving.Server{}, &serving.Server{}
	if !p.roles.API {
		return nil
	}
	if p.operator, err = serving.ListenForOperator(p.settings, p.log); err != nil {
		return err
	}
	if p.network, err = serving.ListenForAPI(p.settings, p.log); err != nil {
		p.operator.Close()
		return err
	}
	return errors.Join(p.operator.Register(p.metrics, "api-local"), p.network.Register(p.metrics, "api"))
}

// prepare reads the policy and creates the clients of the cluster for the roles that need them.
func (p *process) prepare() error {
	if err := p.settings.Check(); err != nil {
		return err
	}
	needsCluster := p.roles.kinds() != nil
	if !needsCluster && !p.roles.Dispatcher {
		return nil
	}
	var err error
	if p.policy, p.content, err = settings.ReadPolicy(p.settings.Policy); err != nil || !needsCluster {
		return err
	}
	p.client, err = settings.NewClient(p.settings, p.watchAPIClock())
	return err
}

// openBus connects to the bus, after starting it if it is embedded. stop closes both.
func (p *process) openBus() (stop func(), err error) {
	options, err := settings.BusOptions(p.settings, string(p.roles.name()))
	if err != nil {
		return nil, err
	}
	options.Log = p.log
	if p.spans != nil {
		options.Stored = func(events ...schemas.Event) {
			if events[0].Type != schemas.RequestType { // a request over HTTP is the user's
				p.spans.Emitted(events...)
			}
		}
	}
	stopServer := func() {}
	if p.settings.NATSURL == "" {
		if !p.roles.Embedded {
			return nil, fmt.Errorf("one role alone needs an external bus: set REHOME_NATS_URL or use `rehome run`")
		}
		if p.server, err = settings.StartServer(p.settings, p.log); err != nil {
			return nil, err
		}
		stopServer = p.server.Stop
		options.Server, options.Socket = p.server, ""
		p.check(func(context.Context) error { return p.server.Ready() })
	}
	if s := p.settings; s.NATSURL != "" && s.NATSNKey == "" && s.NATSCreds == "" && !strings.Contains(s.NATSURL, "@") {
		p.log.Warn("this process uses the NATS servers without a key: any program that reaches them can have pods evicted; "+
			"rehome auth init writes keys", "url", bus.Redacted(s.NATSURL))
	}
	if p.bus, err = bus.Connect(options); err != nil {
		stopServer()
		return nil, err
	}
	p.check(p.identified)
	p.check(func(context.Context) error { return p.bus.Ready() })
	p.warnings = append(p.warnings, func(context.Context) error { return p.bus.ClockWarning() })
	p.registerBusMetrics()
	return func() {
		p.bus.Close()
		stopServer()
	}, nil
}

// identifyEvery is the interval of attempts to identify the cluster.
const identifyEvery = 2 * time.Second

// identify tags the bus with the identity of this installation. It waits for the API server, because the bus may belong
// to another cluster.
func (p *process) identify(ctx context.Context) {
	installation := bus.Installation{Name: p.settings.Installation}
	if p.client != nil {
		_ = wait.PollUntilContextCancel(ctx, identifyEvery, true, func(ctx context.Context) (known bool, _ error) {
			i, err := settings.ReadInstallation(ctx, p.settings, p.client)
			if err != nil && p.unidentified.Swap(&err) == nil {
				p.log.Warn("waiting for the identity of the cluster", "error", err)
			}
			installation = i
			return err == nil, nil
		}) // returns the error of ctx
		p.unidentified.Store(nil)
	}
	p.bus.Identify(installation)
}

// identified returns the reason why the cluster is not identified yet, or nil.
func (p *process) identified(context.Context) error {
	if err := p.unidentified.Load(); err != nil {
		return *err
	}
	return nil
}

// follow starts the tasks when the streams exist, and evaluates everything again after streams were lost and created
// again.
func (p *process) follow(ctx context.Context) error {
	var setUp func(context.Context) error // nil means another process sets up the bus
	if p.roles.Embedded {
		// It uses the context of the process: half a setup would leave streams without consumers, and streams that are there are
		// not set up again.
		setUp = func(context.Context) error { return p.bus.Setup(ctx, settings.SetupOf(p.settings, *p.inForce.Load())) }
	}
	// Without the API server, users can still read the bus.
	unknown, known := context.WithCancel(ctx)
	defer known()
	p.bus.Identify(bus.Installation{Name: p.settings.Installation})
	go func() {
		p.identify(ctx)
		known()
	}()
	if err := p.bus.FollowStreams(unknown, setUp, func([]string) {}); err != nil {
		return err
	}
	work, working := errgroup.WithContext(ctx)
	if p.server != nil && p.resync != nil {
		work.Go(func() error { return p.evaluateAgain(working) })
	}
	begun := false
	work.Go(func() error {
		return p.bus.FollowStreams(working, setUp, func(lost []string) {
			if begun {
				p.log.Warn("streams of the bus were created again, and their messages are lost", "streams", lost)
				if p.resync != nil {
					p.resync()
				}
				return
			}
			begun = true
			for _, t := range p.tasks {
				work.Go(func() error { return t(working) })
			}
		})
	})
	return work.Wait()
}

// evaluateAgain evaluates everything whenever the embedded server accepts events again, because answers to scopes were
// lost.
func (p *process) evaluateAgain(ctx context.Context) error {
	for {
		select {
		case <-p.server.Resumed():
			p.resync()
		case <-ctx.Done():
			return nil
		}
	}
}

// together runs tasks until ctx ends or one fails. A lost lease is not a failure.
func together(ctx context.Context, tasks ...task) error {
	work, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		work.Go(func() error { return t(ctx) })
	}
	if err := work.Wait(); !errors.Is(err, context.Canceled) && !errors.Is(err, errLeaseLost) {
		return err
	}
	return nil
}

type leader struct {
	lease string
	run   task
}

// lead returns tasks that make each role active while this process holds its lease. They first wait for the caches, so
// that a process whose caches never fill leaves the lease to a standby. With an embedded bus, all roles must be active
// in the same process, so each lease is requested only while the previous one is held.
func (p *process) lead() (tasks []task) {
	leading := newLeading()
	if len(p.leaders) > 0 {
		p.metrics.MustRegister(leading)
	}
	for _, l := range slices.Backward(p.leaders) {
		run := l.run
		if p.settings.NATSURL == "" && len(tasks) > 0 {
			inner := append(tasks, l.run)
			run = func(ctx context.Context) error { return together(ctx, inner...) }
			tasks = nil
		}
		run = counted(leading.WithLabelValues(l.lease), run)
		if !p.settings.DryRun { // a dry run changes nothing in the cluster, not even a lease
			lease, leading := p.lease(l.lease), run
			run = func(ctx context.Context) error { return lease.hold(ctx, leading) }
		}
		tasks = append(tasks, func(ctx context.Context) error {
			if !p.cluster.WaitForSync(ctx) {
				return nil
			}
			return run(ctx)
		})
	}
	return tasks
}

// leaseValid returns the lease check before writes; nil in a dry run, which needs no lease.
func (p *process) leaseValid(name string) func() bool {
	if p.settings.DryRun {
		return nil
	}
	return p.lease(name).Valid
}

// lease returns the lease of that name; the process has one of each.
func (p *process) lease(name string) *lease {
	if p.leases[name] == nil {
		if p.leases == nil {
			p.leases, p.identity = make(map[string]*lease), newIdentity(p.settings.OwnNamespace())
		}
		p.leases[name] = newLease(p.settings, p.client, name, p.identity, p.log)
	}
	return p.leases[name]
}
