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

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/move/background"
	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/actuator/move/evictionrequest"
	"github.com/rehome-dev/rehome/actuator/move/restart"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Bus is what the actuator needs of the bus.
type Bus interface {
	// FollowIntents hands over every answer in the table and then each new one, in order. It may hand over the same one
	// again. It returns when ctx ends. An error of handle that wraps [schemas.ErrInvalid] sends the event to the dead
	// letters.
	FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error
	// DropIntents removes a settled answer from the table. nil, too, when it was replaced or is gone.
	DropIntents(ctx context.Context, answer schemas.Event) error
	// Publish returns when e is stored.
	Publish(ctx context.Context, e schemas.Event) (sequence uint64, err error)
}

// DefaultParallel is how many intents are worked on at once when [Config] does not say. Each of them is looked at, claimed in
// the ledger and evicted in turn, so that somewhat more than half of them are inside the API server at a time. Where that
// has no more processors than Rehome, 48 did not always reach nine tenths of what 32 bare calls at once reach.
const DefaultParallel = 64

// Config is what an [Actuator] is made of.
type Config struct {
	// Client asks the API server. It needs: get pods, create pods/eviction, list poddisruptionbudgets, create and patch
	// events of events.k8s.io. Its own rate limit should be off: Policy.Rate limits evictions.
	Client kubernetes.Interface
	Bus    Bus
	// Ledger remembers what has to outlive the process. nil: nothing does. A dry run uses none.
	Ledger Ledger
	// View is what is known of the cluster; it is asked from when Lead begins. nil: nothing is known, so that no workload is
	// spared and no move is followed beyond its acceptance. [Actuator.Changed] is to be told of its changes.
	View View
	// Policy says what is enabled, what is protected, the grace period and the rate. A zero rate is
	// [policy.DefaultRate]. [Actuator.SetPolicy] replaces it.
	Policy policy.Policy
	// Source is the source of the events of verdicts, such as /clusters/default/actuator.
	Source string
	// Room is asked before a workload makes a replacement first, which needs room for two. nil: the scheduler will say, and
	// what finds no node is taken back.
	Room restart.Room
	// Facts are what the protections of the policy ask about other objects than the pod. nil: such protections are not checked
	// again right before a move.
	Facts policy.Facts
	// LeaseValid says whether this process still holds its lease, by its own clock. It is asked right before each write to the
	// cluster. nil: always.
	LeaseValid func() bool
	// Self is the object that Kubernetes Events about the actuator as a whole are on. Without a name there are none.
	Self corev1.ObjectReference
	// DryRun asks the API server with dryRun=All: everything is verdictOn, nothing is changed, and no Kubernetes Event is
	// recorded.
	DryRun bool
	// Parallel is how many intents are worked on at once. 0: [DefaultParallel].
	Parallel int
	// Log gets one line for each verdict. nil: slog.Default().
	Log *slog.Logger
	// Metrics is where the actuator's metrics are registered, once for each call of [New]. nil: nowhere.
	Metrics prometheus.Registerer
	// Now is the clock. nil: time.Now.
	Now func() time.Time
}

// Actuator turns intents into verdicts. [New] makes one. Its methods may be called from several goroutines at once,
// but only one Lead may run at a time, in the whole cluster.
type Actuator struct {
	cfg     Config
	policy  atomic.Pointer[policy.Policy] // the newest; Config.Policy is the first
	session atomic.Pointer[session]       // nil: not leading
	metrics metrics
	health  apiHealth
	bad     atomic.Pointer[[]error] // what of the ledger could not be read
	rights  sync.Map                // by method, the error that names a missing right
	windows *limit.Windows          // used by the session alone, and outlives it
	ledger  Ledger

	restarts   *restart.Method
	requests   *evictionrequest.Method
	evictions  *eviction.Method
	background move.Method
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
	if cfg.View == nil {
		cfg.View = blank{}
	}
	a := &Actuator{
		cfg: cfg, metrics: newMetrics(cfg.Metrics), windows: limit.NewWindows(cfg.Policy.Limits), ledger: cfg.Ledger,
	}
	if cfg.Ledger == nil || cfg.DryRun {
		a.ledger = newShortLedger()
	}
	a.SetPolicy(cfg.Policy)
	if cfg.Client != nil {
		grace := func() *int64 { return a.policy.Load().GracePeriodSeconds }
		a.restarts = restart.New(restart.Config{
			Client: cfg.Client, Policy: func() policy.Restart { return a.policy.Load().Restart },
			GracePeriodSeconds: grace, DryRun: cfg.DryRun, Room: cfg.Room,
		})
		a.requests = evictionrequest.New(evictionrequest.Config{
			Client: cfg.Client, Wait: func() time.Duration { return a.policy.Load().EvictionRequests.Wait }, DryRun: cfg.DryRun,
			Now: cfg.Now,
		})
		a.background = background.New(background.Config{Client: cfg.Client})
		a.evictions = eviction.New(eviction.Config{
			Client: cfg.Client, GracePeriodSeconds: grace, Background: a.background, DryRun: cfg.DryRun, Now: cfg.Now,
			Observe: func(d time.Duration) { a.metrics.call.Observe(d.Seconds()) },
		})
	}
	return a
}

// ErrNotLeading is the cause with which the context of [Actuator.Lead] ends when this process may not lead any more:
// somebody else may be leading by now.
var ErrNotLeading = errors.New("another process may lead")

// lostLead says whether ctx ended because of [ErrNotLeading].
func lostLead(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrNotLeading) }

// detached is a context that the end of ctx does not end, unless this process may not lead any more. cancel frees what it
// takes.
func detached(ctx context.Context) (out context.Context, cancel func()) {
	out, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if lostLead(ctx) {
			end()
		}
	})
	return out, func() {
		stop()
		end()
	}
}

// Lead works on the table of answers until ctx ends. It then starts nothing new, waits for the calls in flight and the
// storing of their verdicts, at most about [DrainTimeout], and returns nil. What has no verdict by then stays in the
// table for the next leader. If it ends with the cause [ErrNotLeading], calls in flight are given up at once and nothing
// is stored any more; the next leader finds out what became of them.
//
// It returns earlier, with an error, only when the bus ends the stream of answers.
func (a *Actuator) Lead(ctx context.Context) error {
	return a.lead(ctx, a.executeOpen)
}

// DrainTimeout is how long Lead goes on storing verdicts after its context ended. It is longer than one eviction call
// may take, and with it fits into the 30 seconds that Kubernetes gives a process to end.
const DrainTimeout = eviction.Timeout + 5*time.Second

func (a *Actuator) lead(ctx context.Context, execute executeFunc) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	saving, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer context.AfterFunc(ctx, func() {
		if lostLead(ctx) {
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
	s := newSession(saving, func() bool { return lostLead(ctx) }, a, execute, events)
	a.session.Store(s)
	defer a.session.Store(nil)
	s.policyReplaced() // perhaps, before the session could be told
	defer a.metrics.open.Set(0)

	return s.run(ctx, stop)
}

// Ready says whether the API server answered the last time it was asked, and which ledger records were set aside. nil: all
// is well, or nothing was asked or read yet.
func (a *Actuator) Ready() error {
	err := a.health.ready()
	if bad := a.bad.Load(); bad != nil {
		err = errors.Join(append([]error{err}, *bad...)...)
	}
	a.rights.Range(func(_, missing any) bool {
		err = errors.Join(err, missing.(error))
		return true
	})
	return err
}
