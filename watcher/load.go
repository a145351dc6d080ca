package watcher

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/load"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// newSampler returns a sampler of the load that a policy needs. It continues with the values of the previous sampler.
func (w *Watcher) newSampler(p *scope.CompiledPolicy) *load.Sampler {
	c := load.Config{
		Sources: map[policy.Load]load.Source{}, Now: w.now, Log: w.log,
		NeedsPods: func(from policy.Load) bool {
			s := w.session.Load()
			return s != nil && (s.policy != p || s.needsPods(from)) // the session of another policy is about to end
		},
		Sampled: func(from policy.Load) {
			if s := w.session.Load(); s != nil {
				s.sampled(from)
			}
		},
	}
	if before := w.active.Load(); before != nil {
		c.Before = before.sampler
	}
	for _, from := range p.Loads() {
		source, err := w.source(from, p.Metrics)
		if err != nil {
			w.log.Error("cannot measure load", "source", from.Source, "query", from.Query, "error", err)
		} else if source != nil {
			c.Sources[from] = plausible{source, w.cluster}
		}
	}
	return load.New(c)
}

// plausible is a source without absurd samples. Smoothed, an absurd sample could become plausible.
type plausible struct {
	load.Source
	cluster *cluster.Cache
}

// Nodes implements [load.Source].
func (p plausible) Nodes(ctx context.Context) (map[string]load.Sample, error) {
	samples, err := p.Source.Nodes(ctx)
	maps.DeleteFunc(samples, func(name string, s load.Sample) bool {
		n := p.cluster.Node(name)
		return n != nil && scope.Absurd(s.Used, n.Status)
	})
	return samples, err
}

// loadSource returns a source of load, or nil if there is none.
func (w *Watcher) loadSource(from policy.Load, metrics policy.Metrics) (load.Source, error) {
	client, server := w.config.Client, metrics.Prometheus()
	switch {
	case from.Source == policy.LoadKubernetes:
		return load.Kubernetes{Client: client.Discovery().RESTClient(), Now: w.now}, nil
	case from.Source == policy.LoadPrometheus && server != nil:
		return load.NewPrometheus(server.URL, from.Query, load.TokenFor(client, *server), w.now, w.log)
	}
	return nil, nil
}

// Measure reads the loads that the strategies of a policy need, once and without smoothing. It omits unknown and
// expired values.
func Measure(ctx context.Context, client kubernetes.Interface, p policy.Policy) (
	nodes map[string]corev1.ResourceList, pods map[types.NamespacedName]corev1.ResourceList, err error,
) {
	compiled, err := scope.Compile(p)
	if err != nil {
		return nil, nil, err
	}
	w := newWatcher(Config{Client: client})
	nodes, pods = map[string]corev1.ResourceList{}, map[types.NamespacedName]corev1.ResourceList{}
	for _, from := range compiled.Loads() {
		source, err := w.source(from, compiled.Metrics)
		if err == nil && source != nil {
			err = measure(ctx, source, w.now(), nodes, pods)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("load by %s: %w", from.Source, err)
		}
	}
	return nodes, pods, nil
}

// measure adds the load from one source.
func measure(
	ctx context.Context, source load.Source, now time.Time, nodes map[string]corev1.ResourceList,
	pods map[types.NamespacedName]corev1.ResourceList,
) error {
	defer source.Close()
	samples, err := source.Nodes(ctx)
	if err != nil {
		return err
	}
	for name, sample := range samples {
		if sample.Good.After(now) {
			if nodes[name] == nil {
				nodes[name] = corev1.ResourceList{}
			}
			maps.Copy(nodes[name], sample.Used)
		}
	}
	used, err := source.Pods(ctx)
	maps.Copy(pods, used)
	return err
}

// thresholds tracks the nodes that were over-used at the last sample.
type thresholds struct {
	mu    sync.Mutex
	over  map[*scope.Strategy]overused
	loads map[policy.Load]map[string]percentages // by the node
}

// overused are the nodes that should lose pods according to one strategy.
type overused struct {
	nodes []string  // sorted
	since time.Time // the time of the last evaluation that they caused
}

// percentages is a load by resource.
type percentages = map[corev1.ResourceName]int64

// needsPods reports whether a strategy needs the load of pods, because some node should lose pods.
func (s *session) needsPods(from policy.Load) bool {
	return slices.ContainsFunc(s.policy.Strategies, func(st *scope.Strategy) bool {
		return st.Measured() && st.Gauged.Load() == from && len(st.Gauged.Sources(s.scopes.NodeUsage(st))) > 0
	})
}

// sampled handles a new sample. It publishes a delta and enqueues the strategy for each node that became over-used, or
// no longer is. It enqueues the strategy again now and then while a node stays over-used, because the load of its pods
// may have been unknown, or their moves blocked.
func (s *session) sampled(from policy.Load) {
	s.thresholds.mu.Lock()
	defer s.thresholds.mu.Unlock()
	now, loads := s.w.now(), map[string]percentages{}
	transitions := map[string]scope.GroupKeys{} // by the node
	for _, st := range s.policy.Strategies {
		if !st.Measured() || st.Gauged.Load() != from {
			continue
		}
		nodes := s.scopes.NodeUsage(st)
		for _, n := range nodes {
			loads[n.Name] = percentagesOf(n)
		}
		changed, lasting := s.thresholds.update(st, slices.Sorted(slices.Values(st.Gauged.Sources(nodes))), now)
		for _, name := range changed {
			if transitions[name] == nil {
				transitions[name] = scope.GroupKeys{}
			}
			transitions[name][st] = []string{scope.Cluster}
		}
		if lasting {
			s.enqueue(st, trigger{at: now, cause: schemas.Cause{Kind: schemas.CauseDue, Time: now.UTC()}}, scope.Cluster)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(transitions)) {
		if node := s.w.cluster.Node(name); node != nil {
			d := schemas.Delta{
				Kind: schemas.NodeLoad, Object: nodeRef(node),
				Before: loadState(s.thresholds.loads[from][name]), After: loadState(loads[name]),
			}
			s.Observe([]schemas.Delta{d}, transitions[name], d.Object)
		}
	}
	s.thresholds.loads[from] = loads
}

// update records the nodes that are over-used now. changed are the nodes whose state has changed. lasting reports that
// nodes have been over-used for the load cooldown without an evaluation.
func (t *thresholds) update(st *scope.Strategy, over []string, now time.Time) (changed []string, lasting bool) {
	before := t.over[st]
	changed = sets.New(over...).SymmetricDifference(sets.New(before.nodes...)).UnsortedList()
	since := before.since
	if len(changed) > 0 {
		since = now
	}
	if lasting = len(over) > 0 && now.Sub(since) >= scope.LoadCooldown; lasting {
		since = now
	}
	t.over[st] = overused{over, since}
	return changed, lasting
}

// percentagesOf returns the measured load of a node.
func percentagesOf(n schemas.NodeUsage) percentages {
	p := percentages{}
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, schemas.LoadMetric} {
		used, measured := n.Used[name]
		capacity := n.Capacity[name]
		if all := capacity.AsApproximateFloat64(); measured && all > 0 {
			p[name] = int64(math.Round(100 * used.AsApproximateFloat64() / all))
		}
	}
	return p
}

// loadState returns a load as node state, or nil if it is unknown.
func loadState(p percentages) *schemas.State {
	if len(p) == 0 {
		return nil
	}
	return &schemas.State{Load: p}
}
