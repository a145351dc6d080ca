// Package load measures the usage of nodes and pods.
//
// A [Sampler] asks each [Source] every five seconds and keeps the newest figures: [Kubernetes], the metrics API, for the cpu and memory
// of nodes and pods, and [Prometheus], for one figure per node. It smooths the figures of nodes as kubernetes-sigs/descheduler does. A
// figure that is older than a minute is unknown.
package load

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
)

const (
	interval = 5 * time.Second
	timeout  = 10 * time.Second
	maxAge   = time.Minute
	// weight is the share of the figure before in a smoothed figure.
	weight = 0.9
)

// Source measures usage. A [Sampler] calls it from one goroutine at a time.
type Source interface {
	// Nodes are the newest samples of nodes by name, without the nodes whose usage is unknown.
	Nodes(ctx context.Context) (map[string]Sample, error)
	// Pods is what pods use now; nil if the source does not know it.
	Pods(ctx context.Context) (map[types.NamespacedName]corev1.ResourceList, error)
	// Smooth says whether samples of nodes are smoothed.
	Smooth() bool
	// Close closes connections.
	Close()
}

// Sample is what one node used.
type Sample struct {
	Used corev1.ResourceList
	// Good is when the sample is too old to count.
	Good time.Time
}

// Config configures a sampler. All but Before must be set.
type Config struct {
	Sources map[policy.Load]Source
	// NeedsPods says, after the nodes of a source are known, whether the usage of its pods is needed.
	NeedsPods func(policy.Load) bool
	// Sampled is called after each round of a source, also of a failed one, from its goroutine.
	Sampled func(policy.Load)
	// Before is the sampler that this one replaces. Its figures are smoothed on.
	Before *Sampler
	// Now is the clock by which samples grow old.
	Now func() time.Time
	Log *slog.Logger
}

// Sampler knows the newest usage. Its methods may be called from many goroutines. Make one with [New].
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

// New makes a sampler.
func New(c Config) *Sampler {
	s := &Sampler{config: c, known: map[policy.Load]*known{}}
	for from, source := range c.Sources {
		s.known[from] = &known{source: source}
		if c.Before != nil {
			c.Before.read(from, func(k *known) { s.known[from].nodes = k.nodes })
		}
	}
	s.config.Before = nil
	return s
}

// read calls f with what a source said, if the sampler has the source.
func (s *Sampler) read(from policy.Load, f func(*known)) {
	if k := s.known[from]; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		f(k)
	}
}

// Run samples all sources every five seconds until ctx ends. It closes them.
func (s *Sampler) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for from, k := range s.known {
		wg.Go(func() {
			defer k.source.Close()
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
		})
	}
}

// round asks one source once, and logs when it begins to fail and when it answers again.
func (s *Sampler) round(ctx context.Context, from policy.Load, k *known) {
	err := s.sampleNodes(ctx, k)
	if err == nil {
		err = s.samplePods(ctx, from, k)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !k.failed:
		s.config.Log.Warn("load is not measured; nodes whose load is not known neither lose nor take pods because of it",
			"source", from.Source, "query", from.Query, "error", err)
	case err == nil && k.failed:
		s.config.Log.Info("load is measured again", "source", from.Source, "query", from.Query)
	}
	k.failed = err != nil
	s.config.Sampled(from)
}

func (s *Sampler) sampleNodes(ctx context.Context, k *known) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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

// samplePods forgets the pods if their usage is not needed.
func (s *Sampler) samplePods(ctx context.Context, from policy.Load, k *known) (err error) {
	var pods map[types.NamespacedName]corev1.ResourceList
	if s.config.NeedsPods(from) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if pods, err = k.source.Pods(ctx); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pods, k.good = pods, s.config.Now().Add(maxAge)
	return nil
}

// history is what is known of nodes, by name: all samples up to now as one. It is never changed.
type history map[string]Sample

// next is the history after another round. It forgets the nodes without a sample.
func (h history) next(samples map[string]Sample, smooth bool) history {
	all := make(history, len(samples))
	for name, sample := range samples {
		if before, known := h[name]; known && smooth {
			sample.Used = smoothed(before.Used, sample.Used)
		}
		all[name] = sample
	}
	return all
}

// at is what a node uses; nil if that is unknown at the time now.
func (h history) at(name string, now time.Time) corev1.ResourceList {
	if sample, known := h[name]; known && now.Before(sample.Good) {
		return sample.Used.DeepCopy()
	}
	return nil
}

// smoothed is the usage after a new sample: of cpu in thousandths, of everything else in whole units.
func smoothed(before, sample corev1.ResourceList) corev1.ResourceList {
	mean := func(a, b int64) int64 { return int64(math.Round(weight*float64(a) + (1-weight)*float64(b))) }
	used := make(corev1.ResourceList, len(sample))
	for name, new := range sample {
		old, known := before[name]
		switch {
		case !known:
			used[name] = new
		case name == corev1.ResourceCPU:
			used[name] = *resource.NewMilliQuantity(mean(old.MilliValue(), new.MilliValue()), new.Format)
		default:
			used[name] = *resource.NewQuantity(mean(old.Value(), new.Value()), new.Format)
		}
	}
	return used
}

// Asked says whether a source was asked once: before that a load is not unknown, but not measured yet. It is true for a source that
// the sampler does not have.
func (s *Sampler) Asked(from policy.Load) bool {
	asked := true
	s.read(from, func(k *known) { asked = k.asked })
	return asked
}

// Node is the usage of a node; nil if it is unknown. The caller may change it.
func (s *Sampler) Node(from policy.Load, name string) (used corev1.ResourceList) {
	s.read(from, func(k *known) { used = k.nodes.at(name, s.config.Now()) })
	return used
}

// Pod is the usage of a pod; nil if it is unknown. The caller may change it.
func (s *Sampler) Pod(from policy.Load, namespace, name string) (used corev1.ResourceList) {
	s.read(from, func(k *known) {
		if s.config.Now().Before(k.good) {
			used = k.pods[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
		}
	})
	return used
}
