package load

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
)

const (
	// interval is how often each source is asked, as in the peer.
	interval = 5 * time.Second
	// patience is how long one request may take.
	patience = 10 * time.Second
)

// Source measures usage. A [Sampler] calls it from one goroutine at a time.
type Source interface {
	// Nodes are the newest samples of nodes by their names. A node of which nothing sensible is known is not among them.
	Nodes(ctx context.Context) (map[string]Sample, error)
	// Pods is what pods use now. A source that does not know it returns nil.
	Pods(ctx context.Context) (map[types.NamespacedName]corev1.ResourceList, error)
	// Smooth says whether samples of nodes are smoothed.
	Smooth() bool
	// Close ends what the source keeps open.
	Close()
}

// Sample is what one node used.
type Sample struct {
	Used corev1.ResourceList
	// Good is when the sample is too old to count.
	Good time.Time
}

// Config is what a sampler is made of. All but Sources may be left zero.
type Config struct {
	Sources map[policy.Load]Source
	// NeedsPods is asked in each round, when the nodes of a source are known, whether somebody needs its pods. nil: nobody.
	NeedsPods func(policy.Load) bool
	// Sampled is called after each round of a source, whether or not it answered, from its goroutine. nil: nobody listens.
	Sampled func(policy.Load)
	// Before is the sampler that this one replaces. What it smoothed is smoothed on. nil: none.
	Before *Sampler
	// Now is the clock by which samples grow old. nil: [time.Now].
	Now func() time.Time
	// Log may be nil: nothing is logged.
	Log *slog.Logger
}

// Sampler knows the newest usage. Its methods may be called from many goroutines. [New] makes one.
type Sampler struct {
	config Config
	known  map[policy.Load]*known // never changed
}

// known is what one source said.
type known struct {
	source Source
	mu     sync.Mutex
	asked  bool
	nodes  history
	pods   map[types.NamespacedName]corev1.ResourceList
	good   time.Time // until when pods count
	failed bool
}

// New makes a sampler that knows nothing yet.
func New(c Config) *Sampler {
	if c.NeedsPods == nil {
		c.NeedsPods = func(policy.Load) bool { return false }
	}
	if c.Sampled == nil {
		c.Sampled = func(policy.Load) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sampler{config: c, known: map[policy.Load]*known{}}
	for from, source := range c.Sources {
		s.known[from] = &known{source: source}
		if c.Before != nil {
			s.known[from].nodes = c.Before.history(from)
		}
	}
	s.config.Before = nil
	return s
}

// Run samples all sources, each at once and then every five seconds, until ctx ends. It closes them.
func (s *Sampler) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for from, k := range s.known {
		wg.Go(func() {
			defer k.source.Close()
			s.follow(ctx, from, k)
		})
	}
}

func (s *Sampler) follow(ctx context.Context, from policy.Load, k *known) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		s.round(ctx, from, k)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// round asks one source once.
func (s *Sampler) round(ctx context.Context, from policy.Load, k *known) {
	err := s.nodes(ctx, k)
	if err == nil {
		err = s.pods(ctx, from, k)
	}
	if ctx.Err() != nil {
		return
	}
	s.report(from, k, err)
	s.config.Sampled(from)
}

func (s *Sampler) nodes(ctx context.Context, k *known) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	samples, err := k.source.Nodes(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = true
	if err != nil {
		return err
	}
	k.nodes = k.nodes.next(samples, k.source.Smooth())
	return nil
}

// pods asks for the pods if they are needed. Otherwise they are forgotten.
func (s *Sampler) pods(ctx context.Context, from policy.Load, k *known) error {
	var pods map[types.NamespacedName]corev1.ResourceList
	var err error
	if s.config.NeedsPods(from) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		pods, err = k.source.Pods(ctx)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods, k.good = pods, s.config.Now().Add(maxAge)
	return nil
}

// report logs when a source begins to fail, and when it answers again.
func (s *Sampler) report(from policy.Load, k *known, err error) {
	switch {
	case err != nil && !k.failed:
		s.config.Log.Warn("load is not measured; nodes whose load is not known neither lose nor take pods because of it",
			"source", from.Source, "query", from.Query, "error", err)
	case err == nil && k.failed:
		s.config.Log.Info("load is measured again", "source", from.Source, "query", from.Query)
	}
	k.failed = err != nil
}

// Asked says whether a source has answered once, or failed to: before that nobody can say that a load is not known. It is
// true for a source that the sampler does not have.
func (s *Sampler) Asked(from policy.Load) bool {
	k := s.known[from]
	if k == nil {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

// history is what is known of the nodes of a source.
func (s *Sampler) history(from policy.Load) history {
	k := s.known[from]
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes
}

// Node is the usage of a node; nil if it is not known. The caller may change it.
func (s *Sampler) Node(from policy.Load, name string) corev1.ResourceList {
	k := s.known[from]
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodes.at(name, s.config.Now())
}

// Pod is the usage of a pod; nil if it is not known. The caller may change it.
func (s *Sampler) Pod(from policy.Load, namespace, name string) corev1.ResourceList {
	k := s.known[from]
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !s.config.Now().Before(k.good) {
		return nil
	}
	return k.pods[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}
