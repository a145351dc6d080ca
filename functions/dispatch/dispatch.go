package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Asker asks one function. Its methods may be called from many goroutines.
type Asker interface {
	// Ask returns the event that the function answered with, and whether there was one. It bounds how long that takes. Its
	// errors are those of package delivery; when ctx was cancelled, that of ctx.
	Ask(ctx context.Context, scope schemas.Event) (reply schemas.Event, has bool, err error)
	// Close is called when nothing will be asked any more.
	Close()
}

// Bus is what asking needs of the bus.
type Bus interface {
	// Work hands over the scopes of one strategy until ctx ends, so many at once. A scope is handed over again, later, when
	// handle fails; one that can never be handled, by [schemas.ErrInvalid], goes to the dead letters.
	Work(ctx context.Context, strategy string, parallel int, handle func(context.Context, schemas.Event) error) error
	// Current says whether the scope still waits for its answer.
	Current(ctx context.Context, scope schemas.Event) (bool, error)
	// Bury stores a copy of a scope among the dead letters, with an error. The scope itself goes on waiting.
	Bury(ctx context.Context, scope schemas.Event, why error) error
	// Answer stores the answer to a scope, unless a newer one is there.
	Answer(ctx context.Context, e schemas.Event, answer schemas.Intents) error
}

// Config is what a [Dispatcher] is made of.
type Config struct {
	Bus Bus
	// Open makes what asks a function. It does not look whether the function is there.
	Open func(policy.Outside) (Asker, error)
	// Source is the CloudEvents source of the answers; the strategy's name is added to it.
	Source string
	// Log may be nil: nothing is logged.
	Log *slog.Logger
	// Metrics may be nil: nothing is registered.
	Metrics prometheus.Registerer
}

// Dispatcher asks strategies outside of this process. [New] makes it.
type Dispatcher struct {
	config  Config
	log     *slog.Logger
	metrics *metrics

	mu      sync.Mutex
	wanted  []policy.Outside
	changed chan struct{} // closed when wanted has changed
}

// New makes a dispatcher that asks nobody yet. It fails when the metrics cannot be registered.
func New(c Config) (*Dispatcher, error) {
	d := &Dispatcher{config: c, log: c.Log, metrics: newMetrics(), changed: make(chan struct{})}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics != nil {
		if err := d.metrics.register(c.Metrics); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return d, nil
}

// Set says which strategies are to be asked, instead of those before. What has begun for one that is not among them, or that
// is to be asked elsewhere or otherwise, is finished as it was begun. It may be called at any time, from any goroutine.
func (d *Dispatcher) Set(wanted []policy.Outside) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = wanted
	close(d.changed)
	d.changed = make(chan struct{})
}

// Run asks until ctx ends, and then finishes what it has begun. It returns nil.
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

// job is a strategy that is being asked.
type job struct {
	way  way
	stop context.CancelFunc // ends it
}

// way is where and how a strategy is asked: what makes one entry of the policy another one.
type way struct {
	url, subject string
	timeout      time.Duration
	parallel     int
}

func wayOf(o policy.Outside) way { return way{o.URL, o.Subject, o.Timeout, o.Parallel} }

// where is what people know the function by.
func (w way) where() string {
	if w.subject != "" {
		return w.subject
	}
	return w.url
}

// follow begins what is wanted and does not run as it is wanted, and ends what runs and is not wanted.
func (d *Dispatcher) follow(ctx context.Context, wg *sync.WaitGroup, running map[string]job, wanted []policy.Outside) {
	named := make(map[string]policy.Outside, len(wanted))
	for _, o := range wanted {
		named[o.Strategy.Name] = o
	}
	for name, j := range running {
		if o, ok := named[name]; !ok || wayOf(o) != j.way {
			j.stop()
			delete(running, name)
			d.metrics.forget(name)
			d.log.Info("a function is asked no more", "strategy", name, "where", j.way.where())
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
		running[name] = job{way: wayOf(o), stop: stop}
		d.log.Info("a function is asked", "strategy", name, "where", wayOf(o).where())
		s := d.newStrategy(o, asker)
		wg.Go(func() {
			defer stop()
			s.run(inner)
		})
	}
}
