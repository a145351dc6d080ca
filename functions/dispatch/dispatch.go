// Package dispatch asks functions outside of this process: it takes the scopes of their strategies from the bus, sends them,
// checks each answer against its scope, and stores it. An [Asker] carries the requests.
//
//	Set ──▶ Run ──▶ follow ──▶ strategy.run ──▶ handle ──▶ breaker.enter ──▶ Ask ──▶ breaker.leave ──▶ check ──▶ Bus.Answer
//
//	dispatch.go  Dispatcher: one strategy for each function in the policy
//	strategy.go  strategy.handle: one scope
//	breaker.go   the circuit breaker of one function
//	answer.go    check: is this an answer to the scope
//
// # What becomes of a scope
//
//	the function                        the scope
//	answers with intents                is done when the answer is stored; the answer to a stale scope is dropped
//	answers with nothing                is done: no pod should move, which withdraws the answer before
//	answers with invalid data           goes to the dead letters
//	refuses it for good                 goes to the dead letters
//	asks for a later request            is sent again, some times, and goes to the dead letters after the last
//	is away, or refuses the dispatcher  is sent again; after three of these in a row all scopes wait
//
// # A function that is away
//
// After three failed requests in a row the circuit breaker opens, and no further scope is taken: scopes stay in the stream,
// where a newer one of the same key replaces an older one. The scopes in hand, at most as many as are sent at once, take turns
// as probes, after a second at first and after up to a minute later. The first answer closes the breaker. None of this counts
// as a try of a scope.
//
// # What an answer may say
//
// A function names pods of its scope that are not protected, each once, on the node where the scope has them, with a reason
// each. It names the strategy, the profile, the kind, the key, and the event of the scope. The dispatcher sets everything else.
//
// # Concurrency
//
// A slow function does not delay the others. Scopes of one key are sent one after the other.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Asker sends scopes to one function. Its methods may be called from many goroutines.
type Asker interface {
	// Ask returns the event that the function answered with, if any. It has a timeout of its own. Its errors are those of package
	// delivery, or of ctx when that was cancelled.
	Ask(ctx context.Context, scope schemas.Event) (reply schemas.Event, has bool, err error)
	// Close is called after the last Ask.
	Close()
}

// Bus is the part of the bus that a dispatcher needs.
type Bus interface {
	// Work calls handle with the scopes of one strategy until ctx ends, so many at once. When handle fails, the scope is
	// delivered again later, or goes to the dead letters if the error wraps [schemas.ErrInvalid].
	Work(ctx context.Context, strategy string, parallel int, handle func(context.Context, schemas.Event) error) error
	// Bury stores a copy of a scope among the dead letters, with an error. The scope itself still waits.
	Bury(ctx context.Context, scope schemas.Event, why error) error
	functions.Answerer
}

// Config is the configuration of a [Dispatcher].
type Config struct {
	Bus Bus
	// Open makes the asker of a function. It makes no request.
	Open func(policy.Outside) (Asker, error)
	// Source is the CloudEvents source of the answers; the strategy's name is added to it.
	Source string
	// Log may be nil: nothing is logged.
	Log *slog.Logger
	// Metrics may be nil: nothing is registered.
	Metrics prometheus.Registerer
}

// Dispatcher asks strategies outside of this process.
type Dispatcher struct {
	config  Config
	log     *slog.Logger
	metrics metrics

	mu      sync.Mutex
	wanted  []policy.Outside
	changed chan struct{} // closed when wanted has changed
}

// metrics are labelled with the strategy.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	open     *prometheus.GaugeVec
}

// New makes a dispatcher without strategies. It fails when the metrics cannot be registered.
func New(c Config) (*Dispatcher, error) {
	d := &Dispatcher{config: c, log: c.Log, changed: make(chan struct{}), metrics: metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_dispatcher_requests_total", Help: "Requests to strategies outside of the process by result.",
		}, []string{"strategy", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rehome_dispatcher_request_seconds", Help: "Time from a request to a strategy outside of the process to its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600},
		}, []string{"strategy"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rehome_dispatcher_open",
			Help: "1: the circuit breaker of the strategy is open, its function is away and its scopes wait. 0: it is closed.",
		}, []string{"strategy"}),
	}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if r := c.Metrics; r != nil {
		if err := errors.Join(r.Register(d.metrics.requests), r.Register(d.metrics.seconds), r.Register(d.metrics.open)); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return d, nil
}

// Set replaces the strategies. A request in flight is finished as it began. It may be called at any time, from any goroutine.
func (d *Dispatcher) Set(wanted []policy.Outside) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = wanted
	close(d.changed)
	d.changed = make(chan struct{})
}

// Run asks until ctx ends, and then finishes the requests in flight. It returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	running := make(map[string]job)
	for {
		d.mu.Lock()
		wanted, changed := d.wanted, d.changed
		d.mu.Unlock()
		d.follow(ctx, &wg, running, wanted)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// job is a running strategy.
type job struct {
	address address
	stop    context.CancelFunc
}

// address is where and how a function is asked. A function whose address changes is a new one.
type address struct {
	url, subject string
	timeout      time.Duration
	parallel     int
}

func addressOf(o policy.Outside) address { return address{o.URL, o.Subject, o.Timeout, o.Parallel} }

// String is the subject or URL of the function.
func (a address) String() string {
	if a.subject != "" {
		return a.subject
	}
	return a.url
}

// follow starts the wanted strategies and stops all others.
func (d *Dispatcher) follow(ctx context.Context, wg *sync.WaitGroup, running map[string]job, wanted []policy.Outside) {
	named := make(map[string]policy.Outside, len(wanted))
	for _, o := range wanted {
		named[o.Strategy.Name] = o
	}
	for name, j := range running {
		if o, ok := named[name]; !ok || addressOf(o) != j.address {
			j.stop()
			delete(running, name)
			d.metrics.open.DeleteLabelValues(name)
			d.log.Info("a function is asked no more", "strategy", name, "where", j.address.String())
		}
	}
	for name, o := range named {
		if _, ok := running[name]; ok {
			continue
		}
		asker, err := d.config.Open(o)
		if err != nil {
			d.log.Error("a function cannot be asked", "strategy", name, "error", err)
			continue
		}
		inner, stop := context.WithCancel(ctx)
		running[name] = job{address: addressOf(o), stop: stop}
		d.log.Info("a function is asked", "strategy", name, "where", addressOf(o).String())
		s := d.newStrategy(o, asker)
		wg.Go(func() {
			defer stop()
			s.run(inner)
		})
	}
}
