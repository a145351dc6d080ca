// Package dispatch runs strategies whose functions are outside of this process. It takes their scopes from the bus, sends them to
// the function, checks the answer against the scope, and stores it. An [Asker] is the transport.
//
//	Set ──▶ Run ──▶ follow ──▶ strategy.run ──▶ handle ──▶ breaker.enter ──▶ Ask ──▶ breaker.leave ──▶ check ──▶ Bus.Answer
//
//	dispatch.go  Dispatcher: one strategy for each function in the policy
//	strategy.go  strategy.handle: one scope
//	breaker.go   the circuit breaker of one function
//	answer.go    check: whether an answer matches its scope
//
// # Results
//
//	the function                                 the scope
//	answers with intents                         is done when the answer is stored; the answer to a stale scope is dropped
//	answers with nothing                         is done: no pod should move, and the previous answer is withdrawn
//	answers with invalid data                    becomes a dead letter
//	rejects it permanently                       becomes a dead letter
//	asks for a later request                     is sent again, and becomes a dead letter after the last attempt
//	is unavailable, or rejects the dispatcher    is sent again; after three of these in a row all scopes wait
//
// # Circuit breaker
//
// After three failures in a row the circuit breaker opens, and the dispatcher takes no more scopes from the stream, where a newer
// scope replaces an older one with the same key. The scopes already taken, at most as many as are sent in parallel, take turns as
// probes: after 1 s at first, and after up to 1 min later. The first answer closes the breaker. None of this counts as an
// attempt.
//
// # Answers
//
// An answer names the strategy, profile, kind, key, and event of the scope. It lists unprotected pods of the scope, each at most
// once, on their node, with a reason. The dispatcher sets everything else.
//
// # Concurrency
//
// A slow function does not delay others. The bus hands out one scope of a key at a time, so a dispatcher does not send two of
// them at once. Two dispatchers can, and so can one that the policy has just given another address for the function.
package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Asker sends scopes to one function. It is safe for concurrent use.
type Asker interface {
	// Ask sends a scope and returns the event in the answer, if any. It has its own timeout. Its errors come from
	// package delivery, or from ctx if that was canceled.
	Ask(ctx context.Context, scope schemas.Event) (reply schemas.Event, has bool, err error)
	// Close releases resources. It is called after the last Ask.
	Close()
}

// Bus is the part of the bus that a dispatcher needs.
type Bus interface {
	// Work calls handle with the scopes of a strategy until ctx ends, several in parallel. If handle fails, the scope is
	// delivered again later, or becomes a dead letter if the error wraps [schemas.ErrInvalid].
	Work(ctx context.Context, strategy string, parallel int, handle func(context.Context, schemas.Event) error) error
	// Bury stores a copy of a scope as a dead letter with an error. The scope itself keeps waiting.
	Bury(ctx context.Context, scope schemas.Event, why error) error
	functions.Answerer
}

// Config is the configuration of a [Dispatcher].
type Config struct {
	Bus Bus
	// Open returns the asker of a function. It sends nothing.
	Open func(policy.Outside) (Asker, error)
	// Source is the CloudEvents source of answers, without the name of the strategy.
	Source string
	// Log may be nil, which logs nothing.
	Log *slog.Logger
	// Metrics may be nil, which registers nothing.
	Metrics prometheus.Registerer
}

// Dispatcher runs strategies outside of this process.
type Dispatcher struct {
	config  Config
	log     *slog.Logger
	metrics metrics

	mu      sync.Mutex
	wanted  []policy.Outside
	changed chan struct{} // closed when wanted changes
}

// metrics have the strategy as a label.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	open     *prometheus.GaugeVec
}

// New returns a dispatcher without strategies.
func New(c Config) *Dispatcher {
	auto := promauto.With(c.Metrics)
	d := &Dispatcher{config: c, log: c.Log, changed: make(chan struct{}), metrics: metrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_dispatcher_requests_total",
			Help: "Requests to external functions by result: " +
				"answered, empty, wrong, refused, later, unauthorized, unreachable, or broken.",
		}, []string{"strategy", "result"}),
		seconds: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rehome_dispatcher_request_seconds", Help: "Time from a request to an external function to its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600},
		}, []string{"strategy"}),
		open: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rehome_dispatcher_open",
			Help: "1: the function is unavailable, its circuit breaker is open, and its scopes wait. 0: the dispatcher sends requests.",
		}, []string{"strategy"}),
	}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d
}

// Set replaces the strategies. A request in flight keeps its configuration. It is safe for concurrent use.
func (d *Dispatcher) Set(wanted []policy.Outside) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = wanted
	close(d.changed)
	d.changed = make(chan struct{})
}

// Run dispatches until ctx ends, and then waits for the requests in flight. It returns nil.
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

// address identifies a function. A function whose address changes is a new one.
type address struct {
	url, subject string
	timeout      time.Duration
	parallel     int
}

func addressOf(o policy.Outside) address { return address{o.URL, o.Subject, o.Timeout, o.Parallel} }

// String returns the subject or URL of the function.
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
			d.log.Info("stopped sending scopes to a function", "strategy", name, "address", j.address.String())
		}
	}
	for name, o := range named {
		if _, ok := running[name]; ok {
			continue
		}
		asker, err := d.config.Open(o)
		if err != nil {
			d.log.Error("cannot create the client of a function", "strategy", name, "error", err)
			continue
		}
		inner, stop := context.WithCancel(ctx)
		running[name] = job{address: addressOf(o), stop: stop}
		d.log.Info("sending scopes to a function", "strategy", name, "address", addressOf(o).String())
		s := d.newStrategy(o, asker)
		wg.Go(func() {
			defer stop()
			s.run(inner)
		})
	}
}
