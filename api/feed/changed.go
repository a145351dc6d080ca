package feed

import (
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
)

// changed collects the keys of objects that changed.
type changed struct {
	active atomic.Bool   // false means that nothing is collected
	wake   chan struct{} // has an entry when there are keys

	mu   sync.Mutex
	keys keys
}

// keys are the keys of changed objects.
type keys struct {
	pods      map[types.UID]bool
	workloads map[types.UID]bool // any of their pods may have changed
	nodes     map[string]bool
}

func newKeys() keys { return keys{map[types.UID]bool{}, map[types.UID]bool{}, map[string]bool{}} }

// watch adds handlers to a cache that does not run yet.
func (c *changed) watch(view *cluster.Cache) {
	cluster.AddHandler(view, func(old, new *corev1.Pod, _ bool) {
		c.add(func(k keys) {
			for _, p := range []*corev1.Pod{old, new} {
				if p != nil {
					k.pods[p.UID] = true
				}
			}
		})
	})
	cluster.AddHandler(view, func(old, new *corev1.Node, _ bool) {
		c.add(func(k keys) {
			for _, n := range []*corev1.Node{old, new} {
				if n != nil {
					k.nodes[n.Name] = true
				}
			}
		})
	})
	view.Workloads().OnChange(func(of cluster.Change) {
		if of.Workload != "" && of.Pod == "" {
			c.add(func(k keys) { k.workloads[of.Workload] = true })
		}
	})
}

func (c *changed) add(to func(keys)) {
	if !c.active.Load() {
		return
	}
	c.mu.Lock()
	to(c.keys)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns the keys since the last call.
func (c *changed) take() keys {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.keys
	c.keys = newKeys()
	return all
}
