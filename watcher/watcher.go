package watcher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/load"
	"github.com/rehome-dev/rehome/watcher/requests"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// Bus carries deltas, scopes, and verdicts.
type Bus interface {
	// PublishAll returns when all events are stored, or reports which are not. It sends none after ctx has ended.
	// [delivery.Refused] reads from the error which events the bus will never store.
	PublishAll(ctx context.Context, events []schemas.Event) error
	// Verdicts calls handle for every verdict since a time, in order, and returns.
	Verdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error
	// FollowVerdicts calls handle for every verdict since a time and for each new one, in order, until ctx ends.
	FollowVerdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error
	// AnsweredScopes returns the scopes that have a current or pending answer. Only Kind, Key, Profile, and Strategy of each
	// head are set.
	AnsweredScopes(ctx context.Context) ([]schemas.ScopeHead, error)
}

// Config configures a [Watcher]. Client, Cluster, Bus, Policy and Source are required.
type Config struct {
	// Client measures loads.
	Client kubernetes.Interface
	// Cluster holds [Kinds]. The caller runs it.
	Cluster *cluster.Cache
	Bus     Bus
	Policy  policy.Policy
	// LeaseValid reports whether this process still holds its lease, by its own clock. It is called right before each
	// publication of scopes and receipts. nil means always.
	LeaseValid func() bool
	// Source is the CloudEvents source of all events of the watcher.
	Source string
	// Requests delivers manual requests. nil disables requests.
	Requests requests.Bus
	// Resync is the interval of full evaluations. Zero means 30 minutes.
	Resync time.Duration
	// Debounce is the delay of a key after its first cause. Zero means 10 milliseconds, which joins the two updates of
	// a cordon and is a tenth of the time of an eviction in the API server.
	Debounce time.Duration
	// Now is the clock of decisions. nil: [time.Now].
	Now func() time.Time
	// Log may be nil for no logs.
	Log *slog.Logger
	// Metrics may be nil for no metrics.
	Metrics prometheus.Registerer
}

// Watcher watches one cluster. Use [New] to make one.
type Watcher struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	cluster *cluster.Cache
	now     func() time.Time
	// source returns a source of load, or nil if there is none.
	source  func(policy.Load, policy.Metrics) (load.Source, error)
	active  atomic.Pointer[activePolicy]
	session atomic.Pointer[session] // nil while another process leads
	leading atomic.Bool
}

// activePolicy is the newest policy, with the sampler of the load that it needs.
type activePolicy struct {
	*scope.CompiledPolicy
	sampler  *load.Sampler
	replaced chan struct{} // closed when a newer policy is set
}

// Kinds returns the kinds that the watcher watches.
func Kinds() []cluster.Kind {
	return append(cluster.PlacementKinds(), cluster.PodDisruptionBudgets, cluster.PriorityClasses)
}

// New returns a watcher and adds its handlers to the cache.
func New(c Config) (*Watcher, error) {
	w := newWatcher(c)
	w.addHandlers()
	return w, w.SetPolicy(c.Policy)
}

// newWatcher returns a watcher without a policy and without handlers.
func newWatcher(c Config) *Watcher {
	if c.Resync == 0 {
		c.Resync = 30 * time.Minute
	}
	if c.Debounce == 0 {
		c.Debounce = 10 * time.Millisecond
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{config: c, log: c.Log, now: c.Now, cluster: c.Cluster}
	w.source = w.loadSource
	w.metrics = newMetrics(c.Metrics, func() float64 {
		if s := w.session.Load(); s != nil {
			return float64(s.queue.len())
		}
		return 0
	})
	return w
}

// SetPolicy replaces the policy and returns at once. A leader evaluates everything under the new policy, which also
// withdraws answers that only the old policy gave. The actuator rejects the intents of a removed strategy. SetPolicy
// returns an error and keeps the old policy if the arguments of a strategy are invalid. Only one goroutine at a time
// may call it.
func (w *Watcher) SetPolicy(p policy.Policy) error {
	compiled, err := scope.Compile(p)
	if err != nil {
		return err
	}
	w.metrics.expect(compiled)
	old := w.active.Load()
	w.active.Store(&activePolicy{compiled, w.newSampler(compiled), make(chan struct{})})
	if old != nil {
		close(old.replaced)
	}
	return nil
}

// forEachPolicy runs f under the current policy and again under each new one, until ctx ends.
func (w *Watcher) forEachPolicy(ctx context.Context, f func(context.Context, *activePolicy)) {
	for ctx.Err() == nil {
		p := w.active.Load()
		current, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { f(current, p) })
		select {
		case <-ctx.Done():
		case <-p.replaced:
		}
		end()
		wg.Wait()
	}
}

// Run measures load until ctx ends and returns nil. It runs on every replica, so that the next leader has the smoothed
// values.
func (w *Watcher) Run(ctx context.Context) error {
	w.forEachPolicy(ctx, func(ctx context.Context, p *activePolicy) { p.sampler.Run(ctx) })
	return nil
}

// Lead publishes deltas and scopes until ctx ends, starting with the scopes of everything. [Watcher.Run] must be
// running. It returns nil, or an error if it is leading already.
func (w *Watcher) Lead(ctx context.Context) error {
	if !w.cluster.WaitForSync(ctx) {
		return nil
	}
	if !w.leading.CompareAndSwap(false, true) {
		return errors.New("the watcher is leading already")
	}
	defer w.leading.Store(false)
	defer w.session.Store(nil)
	w.lead(ctx)
	return nil
}

// lead runs a session under each policy. The sessions share one outbox, so that no delta is lost between them.
func (w *Watcher) lead(ctx context.Context) {
	o := newOutbox(w.config.Bus, w.log, w.metrics)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { o.run(ctx) })
	var previous *session
	w.forEachPolicy(ctx, func(ctx context.Context, p *activePolicy) {
		s := newSession(ctx, w, p, o)
		if previous != nil {
			s.previous, s.answered, s.moving = previous.policy, previous.answered, previous.moving
		}
		previous = s
		w.session.Store(s)
		s.run(ctx)
	})
}

// Resync evaluates everything if the watcher leads, and returns at once.
func (w *Watcher) Resync() {
	if s := w.session.Load(); s != nil {
		w.log.Info("evaluating everything")
		signal(s.resyncs)
	}
}
