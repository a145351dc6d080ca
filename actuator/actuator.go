package actuator

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

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

// DefaultParallel is how many intents are worked on at once when [Config] does not say. An eviction takes about 100 ms
// inside the API server, so 32 at once reach some 300 a second.
const DefaultParallel = 32

// Config is what an [Actuator] is made of.
type Config struct {
	// Client asks the API server. It needs: get pods, create pods/eviction, list poddisruptionbudgets, create and patch
	// events of events.k8s.io. Its own rate limit should be off: Policy.Rate limits evictions.
	Client kubernetes.Interface
	Bus    Bus
	// Policy says what is enabled, what is protected, the grace period and the rate. A zero rate is
	// [policy.DefaultRate]. [Actuator.SetPolicy] replaces it.
	Policy policy.Policy
	// Source is the source of the verdicts' events, such as /clusters/default/actuator.
	Source string
	// DryRun asks the API server with dryRun=All: everything is decided, nothing is changed, and no Kubernetes Event is
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
	term    atomic.Pointer[term]          // nil: not leading
	metrics metrics
	line    line
	limits  *limits // used by the term alone, and outlives it
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
	a := &Actuator{cfg: cfg, metrics: newMetrics(cfg.Metrics), limits: newLimits(cfg.Policy.Limits)}
	a.SetPolicy(cfg.Policy)
	return a
}

// Lead works on the table of answers until ctx ends. It then starts nothing new, waits for the calls in flight and the
// storing of their verdicts, at most about [DrainTimeout], and returns nil. What has no verdict by then stays in the
// table for the next leader.
//
// It returns earlier, with an error, only when the bus ends the stream of answers.
func (a *Actuator) Lead(ctx context.Context) error {
	return a.lead(ctx, a.Handle)
}

// DrainTimeout is how long Lead goes on storing verdicts after its context ended. It is longer than one eviction call
// may take, and with it fits into the 30 seconds that Kubernetes gives a process to end.
const DrainTimeout = callTimeout + 5*time.Second

func (a *Actuator) lead(ctx context.Context, handle handleFunc) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	saving, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-time.After(DrainTimeout):
			abandon()
		case <-saving.Done():
		}
	})()

	events, closeEvents := a.startEvents()
	defer closeEvents()
	t := newTerm(saving, a, handle, events)
	a.term.Store(t)
	defer a.term.Store(nil)
	t.policyReplaced() // perhaps, before the term could be told
	defer a.metrics.open.Set(0)

	var dispatcher, reporter sync.WaitGroup
	dispatcher.Go(func() { t.dispatch(ctx) })
	reporter.Go(t.reportQueue)
	err := a.cfg.Bus.FollowIntents(ctx, t.accept)
	stopped := ctx.Err() != nil
	stop()
	dispatcher.Wait()
	t.closeQueue()
	reporter.Wait()
	if stopped {
		return nil
	}
	return err
}

// Ready says whether the API server answered the last time it was asked. nil: yes, or it was never asked.
func (a *Actuator) Ready() error { return a.line.ready() }
