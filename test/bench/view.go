package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/rehome-dev/rehome/test/cluster"
)

const (
	// taintPrefix begins the keys of all taints and labels that are set here.
	taintPrefix = "bench.rehome.dev/"
	// taintKey is the taint that no pod tolerates.
	taintKey = taintPrefix + "leave"
)

// view is the cluster as the benchmark itself sees it: through informers, like any bare client.
type view struct {
	mu      sync.Mutex
	changed chan struct{}                   // closed and replaced whenever something changed
	byNode  map[string]map[types.UID]string // namespace and name of each pod
	ready   int
	present int
	tainted map[string]time.Time // when the taint of a node was last seen to appear
}

// newView returns when it has seen everything. It watches until ctx ends.
func newView(ctx context.Context, client kubernetes.Interface) (*view, error) {
	v := &view{
		changed: make(chan struct{}), byNode: map[string]map[types.UID]string{},
		tainted: map[string]time.Time{},
	}
	f := informers.NewSharedInformerFactory(client, 0)
	nodes, err := f.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(a, b any) { v.nodeChanged(a.(*corev1.Node), b.(*corev1.Node)) },
	})
	if err != nil {
		return nil, err
	}
	pods, err := f.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { v.podChanged(nil, o.(*corev1.Pod)) },
		UpdateFunc: func(a, b any) { v.podChanged(a.(*corev1.Pod), b.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			v.podChanged(o.(*corev1.Pod), nil)
		},
	})
	if err != nil {
		return nil, err
	}
	f.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
		return nil, ctx.Err()
	}
	return v, nil
}

func (v *view) nodeChanged(old, new *corev1.Node) {
	now := time.Now()
	has := func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintKey })
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if has(new) && !has(old) {
		v.tainted[new.Name] = now
	}
}

func (v *view) podChanged(old, new *corev1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if old != nil && measured(old) {
		v.count(old, -1)
		delete(v.byNode[old.Spec.NodeName], old.UID)
	}
	if new != nil && measured(new) {
		v.count(new, 1)
		if v.byNode[new.Spec.NodeName] == nil {
			v.byNode[new.Spec.NodeName] = map[types.UID]string{}
		}
		v.byNode[new.Spec.NodeName][new.UID] = new.Namespace + "/" + new.Name
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

func measured(p *corev1.Pod) bool { return p.Namespace == namespace || p.Namespace == followNamespace }

func (v *view) count(p *corev1.Pod, by int) {
	v.present += by
	if cluster.IsReady(p) {
		v.ready += by
	}
}

// on returns the pods on a node.
func (v *view) on(node string) map[types.UID]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.byNode[node])
}

// of returns the pods of a class on a node.
func (v *view) of(c class, node string) map[types.UID]string {
	pods := v.on(node)
	maps.DeleteFunc(pods, func(_ types.UID, name string) bool { return !c.has(name) })
	return pods
}

// some is n pods of a class on as many nodes as possible: one of each node in turn.
func (v *view) some(c class, n int) ([]pod, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var turns [][]pod // the first pods of all nodes, the second ones, and so on
	for _, node := range slices.Sorted(maps.Keys(v.byNode)) {
		turn := 0
		for uid, name := range v.byNode[node] {
			if !c.has(name) {
				continue
			}
			if turn == len(turns) {
				turns = append(turns, nil)
			}
			turns[turn] = append(turns[turn], pod{uid, name})
			turn++
		}
	}
	found := slices.Concat(turns...)
	if len(found) < n {
		return nil, fmt.Errorf("want %d pods of class %s, there are %d", n, c.name, len(found))
	}
	return found[:n], nil
}

// seen returns when a node's taint was last seen to appear.
func (v *view) seen(node string) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.tainted[node]
}

// gone waits until none of the pods is there anymore.
func (v *view) gone(ctx context.Context, node string, pods map[types.UID]string) error {
	return v.until(ctx, fmt.Sprintf("%d pods have left %s", len(pods), node), func() bool {
		for uid := range v.byNode[node] {
			if _, waiting := pods[uid]; waiting {
				return false
			}
		}
		return true
	})
}

// until waits until so, which may look at v, is true.
func (v *view) until(ctx context.Context, what string, so func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		v.mu.Lock()
		done, changed := so(), v.changed
		ready, present := v.ready, v.present
		v.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waited too long until %s; %d pods, %d of them ready: %w", what, present, ready, ctx.Err())
		}
	}
}
