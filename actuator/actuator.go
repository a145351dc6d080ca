// Package actuator turns intents into verdicts. It is the only part of Rehome that evicts pods and restarts Deployments. It is a
// controller keyed by pod UID:
//
//	Accept (accept.go) ──▶ queue ──▶ dispatch ──▶ Reconcile (reconcile.go) with the rules of admit.go ──▶ execute (execute.go)
//	  ──▶ judge (gates.go) ──▶ move.Method.Start ──▶ save (ledger.go), then the eviction call
//	  ──▶ finish (reconcile.go) ──▶ conclude (report.go)
//
//	Changed ──▶ learn (track.go) ──▶ queue ──▶ trackAll (reconcile.go) ──▶ track (track.go) ──▶ Step, arrive
//	  ──▶ publishEnd (report.go)
//
//	accept.go     checks an intents message
//	entries.go    the intents without a verdict, by pod and by message; a newer message withdraws the others
//	admit.go      the rules that reject, defer, or park an intent; package limit counts for them
//	reconcile.go  the queue by priority, then low pod priority first, then the lower quality of service; its loops
//	execute.go    the live pod, the methods of package move in their order, and the verdict
//	gates.go      the checks of the live pod
//	moves.go      the moves in flight, and settled ones that still count
//	track.go      follows a move until its replacement is ready, until there is none to wait for, or for ten minutes
//	ledger.go     the records that outlive the process, and the view of them for people
//	recover.go    begins a leader session with the ledger
//	session.go    the leader session: its state, its goroutines, and its outages
//	report.go     verdicts, log lines, and metrics
//	events.go     Kubernetes Events
//	inprocess.go  moves pods for rehome once, without a bus
//
// Every intent that was accepted ends in one verdict; a move gets a second one, [schemas.Settled]. An intent is parked for at most a
// minute. Without a View, and in a dry run, moves are over when they are accepted.
//
// # Recovery
//
// A new leader reads the ledger, and then the table of intents messages; it replays no stream. A move that was begun and has no
// verdict in the ledger gets the verdict that may be lost if its pod is gone or terminating, or if its method has more steps to
// take. Otherwise it was never made, and the intent is tried again. The event of a verdict has the ID of the intent with the
// outcome, so a verdict that is stored twice is one event. A record that cannot be read is set aside, and named in the log, in a
// metric and in [Actuator.Ready].
//
// # Outages
//
// While the API server cannot be asked, intents wait and can still expire or be withdrawn; one at a time tries whether it is
// back. While the bus takes no verdicts or the ledger takes no records, nothing is moved but the pods that are being executed.
package actuator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

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
	// FollowIntents hands over every intents message in the table and then each new one, in order. It may hand over the same one
	// again. It returns when ctx ends. An error of handle that wraps [schemas.ErrInvalid] sends the event to the dead letters.
	FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error
	// DropIntents removes an intents message from the table. nil, too, when it was replaced or is gone.
	DropIntents(ctx context.Context, message schemas.Event) error
	// Publish returns when e is stored.
	Publish(ctx context.Context, e schemas.Event) (sequence uint64, err error)
}

// DefaultParallel is how many intents are executed at once by default. Somewhat more than half of them are inside the API server
// at a time; 48 did not always reach nine tenths of the throughput of 32 bare calls at once.
const DefaultParallel = 64

// Config configures an [Actuator].
type Config struct {
	// Client asks the API server. It needs: get pods, create pods/eviction, list poddisruptionbudgets, create and patch
	// events of events.k8s.io. Its own rate limit should be off: Policy.Rate limits evictions.
	Client kubernetes.Interface
	Bus    Bus
	// Ledger outlives the process. nil, and in a dry run: nothing is remembered.
	Ledger Ledger
	// View is the cluster without asking the API server. Call [Actuator.Changed] for its changes. nil: nothing is known, so no
	// workload is spared and no move is followed beyond its acceptance.
	View View
	// Policy is the first policy, see [Actuator.SetPolicy]. A zero rate is [policy.DefaultRate].
	Policy policy.Policy
	// Source is the source of the events of verdicts, such as /clusters/default/actuator.
	Source string
	// Room says whether there is capacity for a replacement that is made first. nil: the scheduler decides.
	Room restart.Room
	// Facts are other objects that the protections of the policy ask about. nil: such protections are not checked again.
	Facts policy.Facts
	// Capacity reserves capacity for replacements. nil: none is reserved, and the nodeFit of the policy is not checked again.
	Capacity Capacity
	// LeaseValid says whether this process still holds its lease, by its own clock. It is asked right before each eviction call
	// and each step of a move. nil: always.
	LeaseValid func() bool
	// Self is the object of Kubernetes Events about the actuator as a whole. Without a name there are none.
	Self corev1.ObjectReference
	// DryRun sends each call with dryRun=All: nothing is changed, and no Kubernetes Event is recorded.
	DryRun bool
	// Parallel is how many intents are executed at once. 0: [DefaultParallel].
	Parallel int
	// Log gets one line for each verdict. nil: slog.Default().
	Log *slog.Logger
	// Metrics is where the metrics are registered, once for each call of [New]. nil: nowhere.
	Metrics prometheus.Registerer
	// Now is the clock. nil: time.Now.
	Now func() time.Time
}

// Actuator turns intents into verdicts. [New] makes one. It is safe for concurrent use, but only one Lead may run at a time, in
// the whole cluster.
type Actuator struct {
	cfg    Config
	policy atomic.Pointer[policy.Policy] // the newest
	// scheduler is the profile that the policy names.
	scheduler atomic.Pointer[score.Profile]
	session   atomic.Pointer[session] // nil: not leading
	metrics   metrics
	health    apiHealth
	invalid   atomic.Pointer[[]error] // ledger records that were set aside
	rights    sync.Map                // by method, the error that names a missing right
	ledger    Ledger                  // nil: nothing is remembered
	follows   bool                    // else a move is over when it is accepted: nothing more is known, or nothing was moved

	restarts         *restart.Method
	evictionRequests *evictionrequest.Method
	evictions        *eviction.Method
	background       move.Method
}

// New makes an actuator that does nothing until [Actuator.Lead] is called.
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
	if cfg.Client != nil {
		grace := func() *int64 { return a.policy.Load().GracePeriodSeconds }
		a.restarts = restart.New(restart.Config{
			Client: cfg.Client, Policy: func() policy.Restart { return a.policy.Load().Restart },
			DryRun: cfg.DryRun, Room: cfg.Room,
		})
		a.evictionRequests = evictionrequest.New(evictionrequest.Config{
			Client: cfg.Client, Wait: func() time.Duration { return a.policy.Load().EvictionRequests.Wait }, DryRun: cfg.DryRun,
		})
		a.background = background.New(cfg.Client)
		a.evictions = eviction.New(eviction.Config{
			Client: cfg.Client, GracePeriodSeconds: grace, Background: a.background, DryRun: cfg.DryRun,
			Observe: func(d time.Duration) { a.metrics.call.Observe(d.Seconds()) },
		})
	}
	return a
}

// SetPolicy replaces the policy at once. Waiting intents of a profile or a strategy that the new one does not have are rejected.
// A new rate begins with a full bucket. Moves that were counted count against new limits.
func (a *Actuator) SetPolicy(p policy.Policy) {
	if p.Rate == (policy.Rate{}) {
		p.Rate = policy.DefaultRate()
	}
	scheduler, err := p.Scheduler.Load()
	if err != nil {
		a.cfg.Log.Error("cannot read the profile of the scheduler; its default profile is assumed", "error", err)
		scheduler = score.Default()
	}
	a.scheduler.Store(scheduler)
	a.policy.Store(&p)
	if s := a.session.Load(); s != nil {
		s.policyReplaced()
	}
}

// ErrNotLeading is the cause with which the context of [Actuator.Lead] ends when another process may lead by now.
var ErrNotLeading = errors.New("another process may lead")

func lostLease(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrNotLeading) }

// detached returns a context that the end of ctx does not end, unless another process may lead.
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

// Lead works on the table of intents messages until ctx ends. It then starts nothing new, waits for the calls in flight and the
// storing of their verdicts, at most about [DrainTimeout], and returns nil. Intents without a verdict stay in the table for the
// next leader. If ctx ends with the cause [ErrNotLeading], calls in flight are given up at once and nothing is stored any more;
// the next leader finds out what became of them.
//
// It returns earlier, with an error, only when the bus ends the stream of intents messages.
func (a *Actuator) Lead(ctx context.Context) error { return a.lead(ctx, a.execute) }

// DrainTimeout is how long Lead goes on storing verdicts after its context ended. It is longer than one eviction call may take,
// and with it fits into the 30 seconds that Kubernetes gives a process to end.
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
		a.health.succeed(a.cfg.Now()) // nothing asks it any more
		a.metrics.endSession()
	}()
	return s.run(ctx, stop)
}

// Ready returns the faults: the API server did not answer the last time it was asked, and intents wait for it; the bus takes no
// verdicts, the ledger takes no records, ledger records were set aside, or a right is missing.
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
