// Package load measures the usage of nodes and pods.
//
// A [Sampler] reads each [Source] every five seconds and keeps the newest values: [Kubernetes], the metrics API, for the cpu and
// memory of nodes and pods, and [Prometheus], for one value per node. It smooths the values of nodes as
// kubernetes-sigs/descheduler does. Values older than a minute are unknown.
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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rehome-dev/rehome/policy"
)

const (
	interval = 5 * time.Second
	timeout  = 10 * time.Second
	maxAge   = time.Minute
	// weight is the share of the previous value in a smoothed value.
	weight = 0.9
)

// Source measures usage. A [Sampler] calls it from one goroutine at a time.
type Source interface {
	// Nodes returns the newest samples by node name. Nodes with unknown usage are missing.
	Nodes(ctx context.Context) (map[string]Sample, error)
	// Pods returns the current usage of pods, or nil if the source does not measure it.
	Pods(ctx context.Context) (map[types.NamespacedName]corev1.ResourceList, error)
	// Smooth reports whether to smooth the samples of nodes.
	Smooth() bool
	Close()
}

// Sample is the usage of a node.
type Sample struct {
	Used corev1.ResourceList
	// Good is when the sample expires.
	Good time.Time
}

// Config configures a sampler. Only Before is optional.
type Config struct {
	Sources map[policy.Load]Source
	// NeedsPods reports whether the usage of pods is needed. It is called after the nodes of a source are updated.
	NeedsPods func(policy.Load) bool
	// Sampled is called after each round of a source, even a failed one, in the goroutine of the source.
	Sampled func(policy.Load)
	// Before is the sampler that this one replaces. Smoothing continues with its values.
	Before *Sampler
	// Now is the clock for the age of samples.
	Now func() time.Time
	Log *slog.Logger
}

// Sampler has the newest usage. It is safe for concurrent use. Use [New] to make one.
type Sampler struct {
	config Config
	known  map[policy.Load]*known // the map is never changed
}

// known is the state of a source.
type known struct {
	source         Source
	mu             sync.Mutex
	firstRoundDone bool
	nodes          history
	pods           map[types.NamespacedName]corev1.ResourceList
	good           time.Time // when pods expires
	failed         bool
}

// New returns a sampler of the sources of c.
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

// read calls f with the state of a source, if the sampler has that source.
func (s *Sampler) read(from policy.Load, f func(*known)) {
	if k := s.known[from]; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		f(k)
	}
}

// Run samples all sources every five seconds until ctx ends, and closes them.
func (s *Sampler) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for from, k := range s.known {
		wg.Go(func() {
			defer k.source.Close()
			wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) { s.round(ctx, from, k) }, interval)
		})
	}
}

// round reads a source once. It logs when the source begins to fail and when it answers again.
func (s *Sampler) round(ctx context.Context, from policy.Load, k *known) {
	err := s.sampleNodes(ctx, k)
	if err == nil {
		err = s.samplePods(ctx, from, k)
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !k.failed:
		s.config.Log.Warn("cannot measure load; strategies ignore nodes with unknown load",
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
	k.firstRoundDone = true
	if err != nil {
		return err
	}
	k.nodes = k.nodes.next(samples, k.source.Smooth())
	return nil
}

// samplePods deletes the usage of pods if it is not needed.
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

// history has the smoothed samples by node name. It is never changed.
type history map[string]Sample

// next returns the history after another round. Nodes without a sample are removed.
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

// at returns the usage of a node, or nil if it is unknown at the time now.
func (h history) at(name string, now time.Time) corev1.ResourceList {
	if sample, known := h[name]; known && now.Before(sample.Good) {
		return sample.Used.DeepCopy()
	}
	return nil
}

// smoothed returns the usage after a new sample: cpu in thousandths, everything else in whole units.
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

// FirstRoundDone reports whether the first round of a source is complete. Until then a load is not unknown, but not measured yet.
// It is true for a source that the sampler does not have.
func (s *Sampler) FirstRoundDone(from policy.Load) bool {
	done := true
	s.read(from, func(k *known) { done = k.firstRoundDone })
	return done
}

// Node returns the usage of a node, or nil if it is unknown. The caller may change the result.
func (s *Sampler) Node(from policy.Load, name string) (used corev1.ResourceList) {
	s.read(from, func(k *known) { used = k.nodes.at(name, s.config.Now()) })
	return used
}

// Pod returns the usage of a pod, or nil if it is unknown. The caller may change the result.
func (s *Sampler) Pod(from policy.Load, namespace, name string) (used corev1.ResourceList) {
	s.read(from, func(k *known) {
		if s.config.Now().Before(k.good) {
			used = k.pods[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
		}
	})
	return used
}
