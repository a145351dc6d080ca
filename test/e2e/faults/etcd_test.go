package faults

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// slowRate is a rate of evictions at which pods remain on a node while etcd is copied.
const slowRate = 2

// TestEtcdRestored restores etcd to an older state during moves. Rehome's processes keep running, unlike the controllers, which an
// administrator restarts then. The resourceVersions that Rehome knows are from the future, and some evicted pods are back.
func TestEtcdRestored(t *testing.T) {
	r := newRun(t, slowRate)
	r.startCluster()
	t.Cleanup(r.watch())
	r.addWorkloads()
	r.startRehome("")
	lasting, undone, later := r.nodes[:2], r.nodes[2], r.nodes[3]

	for _, n := range lasting {
		r.setTaints(n, leave)
	}
	r.must(r.awaitEvicted(1, time.Time{}, lasting...))
	backup, copied := filepath.Join(t.TempDir(), "etcd"), time.Now()
	r.must(r.cluster.BackUpEtcd(backup))
	since := time.Now()
	r.setTaints(undone, leave)
	r.must(r.awaitEvicted(3, since, lasting...))
	r.must(r.awaitEvicted(1, since, undone))
	stopping := time.Now()
	r.must(r.cluster.StopComponents())
	stopped := time.Now()
	r.must(r.cluster.RestoreEtcd(t.Context(), backup))
	restored := time.Now()
	r.mu.Lock()
	r.restarts = append(r.restarts, stopping)
	r.rewound = append(r.rewound, interval{copied, stopped})
	r.faults = append(r.faults, fault{situation{family: ofAPIServer, name: "etcd restored to an older state"}, interval{stopping, restored}})
	r.mu.Unlock()

	r.must(r.await("all pods leave the nodes that are still tainted", quietLimit, func(ctx context.Context) error { return r.empty(ctx, lasting) }))
	t.Logf("the tainted nodes were empty %v after the restore", time.Since(restored).Round(time.Second))
	r.setTaints(later, leave)
	r.must(r.await("all pods leave another node", quietLimit, func(ctx context.Context) error { return r.empty(ctx, []string{later}) }))
	time.Sleep(time.Until(restored.Add(reconnectLimit + staleLimit)))
	r.waitReady()
	r.must(r.ready())
	r.judgeRestored(undone, stopped, restored)
}

// awaitEvicted waits until that many pods have been evicted from the nodes since a time.
func (r *run) awaitEvicted(n int, since time.Time, nodes ...string) error {
	return r.await(fmt.Sprintf("%d pods are evicted from %v", n, nodes), waitLimit, func(ctx context.Context) error {
		h, err := r.readHistory(ctx)
		if err != nil {
			return err
		}
		if got := len(h.evictedFrom(since, nodes...)); got < n {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// evictedFrom returns the evictions for the taints of nodes since a time.
func (h *history) evictedFrom(since time.Time, nodes ...string) (list []eviction) {
	wanted := map[types.UID]bool{}
	for _, i := range h.intents {
		if i.strategy == strategy && slices.Contains(nodes, i.Node) {
			wanted[i.Pod.UID] = true
		}
	}
	for _, e := range h.accepted {
		if wanted[e.uid] && e.received.After(since) {
			list = append(list, e)
		}
	}
	return list
}

// judgeRestored applies the rules to a run whose etcd was restored. The taint of the node undone was set after the copy.
func (r *run) judgeRestored(undone string, stopped, restored time.Time) {
	h, unfinished := r.completed()
	if h == nil {
		return
	}
	h.taints[undone] = append(h.taints[undone], taint{stopped, false})
	var groundless []string
	for _, e := range h.evictedFrom(restored.Add(reconnectLimit), undone) {
		groundless = append(groundless, fmt.Sprintf("pod %s at %v: %s", e.pod, e.received.Format(clock), h.about(e.uid)))
	}
	findings := append(r.findings(h, unfinished), finding{"evictions for a taint that the restore removed", groundless})
	later := *h
	later.accepted = slices.DeleteFunc(slices.Clone(h.accepted), func(e eviction) bool { return e.received.Before(stopped) })
	r.report(h, append(findings, finding{"limits exceeded", later.exceeded(r.pods.since(stopped))}))
}
