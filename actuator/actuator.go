// Package actuator turns intents into verdicts. It is the only part of Rehome that evicts pods and restarts
// Deployments. It is a controller keyed by pod UID:
//
//	Accept (session.go) ──▶ queue ──▶ dispatch ──▶ Reconcile (reconciler.go) with the rules of admission.go
//	  ──▶ execute, check (execution.go) ──▶ judge (gates.go) ──▶ move.Method.Start ──▶ save (execution.go), then the eviction call
//	  ──▶ finish (reconciler.go) ──▶ conclude (report.go)
//
//	Changed ──▶ learn (replacement.go) ──▶ queue ──▶ trackAll (reconciler.go) ──▶ track (steps.go) ──▶ Step
//	  ──▶ settle (replacement.go) ──▶ publishEnd (report.go)
//
//	session.go     the leader session: its state, its goroutines, and its outages
//	entries.go     the intents without a verdict, by pod and by message; a newer message withdraws the others
//	admission.go   the rules that reject, defer, or park an intent; package limit counts for them
//	reconciler.go  the queue, ordered by PriorityOf, and its loops
//	execution.go   the pod, the methods of package move in their order, and the verdict
//	gates.go       the checks of an intents message, and of the pod
//	moves.go       the moves in flight, and settled ones that still count
//	steps.go       takes the steps of a move, or cancels it
//	replacement.go finds the replacement of a moved pod, and ends the move when it is ready, when there is none to wait for,
//	               or ten minutes after the pod left
//	ledger.go      the records that outlive the process, and the view of them for users
//	recovery.go    begins a leader session with the ledger
//	report.go      verdicts, log lines, and metrics
//	events.go      Kubernetes Events
//	batches.go     moves pods for rehome once, without a bus
//
// Every accepted intent ends in one verdict; a move gets a second one, [schemas.Settled]. An intent is parked for at
// most a minute. Without a View, and in a dry run, a move is complete when it is accepted.
//
// # Recovery
//
// A new leader reads the ledger and then the table of intents messages; it replays no stream. A move in the ledger
// without a verdict gets the lost verdict if its pod is gone or terminating, or if its method has more steps. Otherwise
// the actuator waits 15 seconds, because the API server may still evict the pod, and then tries the intent again. The
// event ID of a verdict consists of the intent ID and the outcome, so storing a verdict twice stores one event.
// Unreadable records are set aside and reported in the log, in a metric, and in [Actuator.Ready].
//
// # Outages
//
// While the API server is unavailable, intents wait, can expire, and can be withdrawn; one intent at a time probes the
// server. While a write to the bus fails (a verdict, a change of the ledger, or the removal of an intents message), the
// actuator completes the executions in progress, and then executes one intent at a time, as a probe.
package actuator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/move/background"
	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/actuator/move/evictionrequest"
	"github.com/rehome-dev/rehome/actuator/move/restart"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Bus is the part of the bus that the actuator uses.
type Bus interface {
	// FollowIntents calls handle for every intents message in the table and then for each new one, in order. It may
	// deliver a message twice. It returns when ctx ends. If the error of handle wraps [schemas.ErrInvalid], the event
	// goes to the dead letters.
	FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error
	// DropIntents removes an intents message from the table. It returns nil if the message was replaced or is gone.
	DropIntents(ctx context.Context, message schemas.Event) error
	// Publish returns when e is stored.
	Publish(ctx context.Context, e schemas.Event) (sequence uint64, err error)
}

// DefaultParallel is the default number of intents that are executed in parallel. Somewhat more than half of them are
// inside the API server at a time. A value of 48 did not always reach 90 percent of the throughput of 32 parallel bare
// calls.
const DefaultParallel = 64

// Kinds returns the kinds that the cache for an [Actuator] must hold.
func Kinds() []cluster.Kind {
	return append(slices.Concat(cluster.WorkloadKinds(), cluster.PlacementKinds()), cluster.PriorityClasses)
}

// Config configures an [Actuator].
type Config struct {
	// Client calls the API server. Besides the rights of Client in [restart.Config] and [evictionrequest.Config], it needs
	// these: get pods, create pods/eviction, list poddisruptionbudgets, create and patch events of events.k8s.io. Disable
	// its own rate limit: Policy.Rate limits evictions. Its transport needs [Guard], unless one process alone uses the
	// cluster.
	Client kubernetes.Interface
	// Events writes the Kubernetes Events, also while the lease is not valid. nil means Client.
	Events kubernetes.Interface
	Bus    Bus
	// Ledger outlives the process. nil disables it, and so does a dry run.
	Ledger Ledger
	// View is a cached view of the cluster. Call [Actuator.Changed] for its changes. nil disables everything that
	// depends on it: the limits per workload, and following a move after its acceptance.
	View View
	// Policy is the initial policy, see [Actuator.SetPolicy]. A zero rate means [policy.DefaultRate].
	Policy policy.Policy
	// Source is the CloudEvents source of verdicts, such as /clusters/default/actuator.
	Source string
	// Facts are the other objects that the protections of the policy read. nil disables the second check of these
	// protections, and the check that there is capacity for a replacement that is made first.
	Facts Facts
	// Capacity reserves capacity for replacements. nil disables reservations and the second check of nodeFit.
	Capacity Capacity
	// LeaseValid reports whether this process still holds its lease, by its own clock. It is called before the first call of
	// a move and before each step; [Guard] calls it right before each write. nil means always.
	LeaseValid func() bool
	// Self is the object of Kubernetes Events about the actuator itself. There are none if it has no name.
	Self corev1.ObjectReference
	// DryRun sends each call with dryRun=All, so nothing is changed, and records no Kubernetes Events.
	DryRun bool
	// Parallel is the number of intents that are executed in parallel. 0 means [DefaultParallel].
	Parallel int
	// Log gets one line for each verdict. nil means slog.Default().
	Log *slog.Logger
	// Metrics is the registry of the metrics. nil disables them. Each call of [New] registers them once.
	Metrics prometheus.Registerer
	// Now is the clock. nil means time.Now.
	Now func() time.Time
}

// Actuator turns intents into verdicts. Use [New] to make one. It is safe for concurrent use, but only one Lead may run
// at a time in the whole cluster.
type Actuator struct {
	cfg    Config
	policy atomic.Pointer[policy.Policy] // the newest
	// scheduler is the scheduler profile that the policy names.
	scheduler atomic.Pointer[score.Profile]
	session   atomic.Pointer[session] // nil if not leading
	metrics   metrics
	health    apiHealth
	invalid   atomic.Pointer[[]error] // ledger records that were set aside
	rights    sync.Map                // by method, the error that names a missing right
	ledger    Ledger                  // nil without a ledger
	follows   bool                    // if false, a move is complete when it is accepted: there is no view, or nothing was moved
	batched   bool                    // the intents come from [Batches]

	restarts         *restart.Method
	evictionRequests *evictionrequest.Method
	evictions        *eviction.Method
	background       move.Method
}

// New returns an actuator that does nothing until [Actuator.Lead] is called.
func New(cfg Config) *Actuator {
	if cfg.Parallel <= 0 {
		cfg.Parallel = DefaultParallel
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &Actuator{cfg: cfg, ledger: cfg.Ledger, follows: cfg.View != nil && !cfg.DryRun}
	if cfg.View == nil {
		a.cfg.View = new(cluster.Workloads)
	}
	a.metrics = newMetrics(cfg.Metrics, &a.session)
	if cfg.DryRun {
		a.ledger = nil
	}
	a.SetPolicy(cfg.Policy)
	restarts := restart.Config{Client: cfg.Client, DryRun: cfg.DryRun}
	if cfg.Facts != nil {
		restarts.Elsewhere = a.takesSecond
	}
	a.restarts = restart.New(restarts)
	a.evictionRequests = evictionrequest.New(evictionrequest.Config{
		Client: cfg.Client, Wait: func() time.Duration { return a.policy.Load().EvictionRequests.Wait }, DryRun: cfg.DryRun,
	})
	a.background = background.New(cfg.Client)
	a.evictions = eviction.New(eviction.Config{
		Client: cfg.Client, GracePeriodSeconds: func() *int64 { return a.policy.Load().GracePeriodSeconds },
		Background: a.background, DryRun: cfg.DryRun,
		Observe: func(d time.Duration) { a.metrics.call.Observe(d.Seconds()) }, Looked: a.looked,
	})
	return a
}

// takesSecond reports whether another node has room for a second pod like this one, and if not, why. The scheduler decides
// about a pod that cannot be judged.
func (a *Actuator) takesSecond(pod *corev1.Pod) (fits bool, why string) {
	fits, judged, why := a.cfg.Facts.Elsewhere(pod, policy.Targets{Signals: a.policy.Load().Signals})
	return fits || !judged, why
}

// SetPolicy replaces the policy at once. It rejects waiting intents whose profile or strategy is not in the new policy.
// A new rate starts with a full bucket. Moves that count against old limits count against new limits, too. A missing right
// of a method that the new policy does not enable is no fault anymore.
func (a *Actuator) SetPolicy(p policy.Policy) {
	if p.Rate == (policy.Rate{}) {
		p.Rate = policy.DefaultRate()
	}
	scheduler, err := p.Scheduler.Load()
	if err != nil {
		a.cfg.Log.Error("cannot read the profile of the scheduler; using the default profile", "error", err)
		scheduler = score.Default()
	}
	a.scheduler.Store(scheduler)
	a.policy.Store(&p)
	a.rights.Range(func(key, _ any) bool {
		if method := key.(schemas.Method); !enablesMethod(&p, method) {
			a.forgetRight(method)
		}
		return true
	})
	if s := a.session.Load(); s != nil {
		s.policyReplaced()
	}
}

// ErrNotLeading is the cancellation cause of the context of [Actuator.Lead] if another process may lead now. [Guard]
// refuses writes with it.
var ErrNotLeading = move.ErrNotLeading

// Guard returns a wrapper for the transport of [Config].Client. It sends a write only while valid, the LeaseValid of the
// Config, returns true. client-go asks it again for each retry of a call. A nil valid means always.
func Guard(valid func() bool) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		if valid == nil {
			return next
		}
		return guard{next, valid}
	}
}

type guard struct {
	next  http.RoundTripper
	valid func() bool
}

// RoundTrip implements [http.RoundTripper].
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || g.valid() {
		return g.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // as every RoundTripper must
	}
	return nil, ErrNotLeading
}

func lostLease(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrNotLeading) }

// detached returns a context that outlives ctx, unless another process may lead.
func detached(ctx context.Context) (out context.Context, cancel func()) {
	out, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if lostLease(ctx) {
			end()
		}
	})
	return out, func() {
		stop()
		end()
	}
}

// Lead executes the intents in the table until ctx ends. It then starts no new calls, waits for at most about
// [DrainTimeout] until the calls in flight have returned and their verdicts are stored, and returns nil. Intents
// without a verdict stay in the table for the next leader. If ctx ends with the cause [ErrNotLeading], Lead returns at
// once and stores nothing more. Eviction calls in flight go on for [eviction.Timeout] at most, other calls are canceled;
// the next leader determines their results.
//
// It returns earlier, with an error, only if the bus ends the stream of intents messages.
func (a *Actuator) Lead(ctx context.Context) error { return a.lead(ctx, a.execute) }

// DrainTimeout limits how long Lead stores verdicts after its context has ended. It is longer than an eviction call may
// take, and both together fit into the default 30-second grace period of a pod.
const DrainTimeout = eviction.Timeout + 5*time.Second

func (a *Actuator) lead(ctx context.Context, execute executeFunc) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	saving, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer context.AfterFunc(ctx, func() {
		if lostLease(ctx) {
			abandon()
			return
		}
		select {
		case <-time.After(DrainTimeout):
			abandon()
		case <-saving.Done():
		}
	})()

	events, closeEvents := a.startEvents()
	defer closeEvents()
	s := newSession(saving, func() bool { return lostLease(ctx) }, a, execute, events)
	a.session.Store(s)
	defer a.session.Store(nil)
	s.policyReplaced() // it may have been replaced before the session was stored
	defer func() {
		a.invalid.Store(nil)
		a.rights.Clear()
		a.health.succeed(a.cfg.Now()) // nothing probes the API server anymore
		a.metrics.endSession()
	}()
	return s.run(ctx, stop)
}

// Ready returns the current faults: the API server did not answer and intents wait for it; the bus stores no verdicts
// or ledger records; ledger records were set aside; or a right is missing.
func (a *Actuator) Ready() error {
	err := a.health.ready()
	if s := a.session.Load(); s != nil {
		err = errors.Join(err, s.unwritten())
	}
	if invalid := a.invalid.Load(); invalid != nil {
		err = errors.Join(append([]error{err}, *invalid...)...)
	}
	a.rights.Range(func(_, missing any) bool {
		err = errors.Join(err, missing.(error))
		return true
	})
	return err
}
