package clustertest

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// PodChange is a pod after a change.
type PodChange struct {
	*corev1.Pod
	At   time.Time // when the test saw it
	Gone bool      // deleted
}

// Ready reports whether the pod was Ready and not terminating.
func (c PodChange) Ready() bool { return !c.Gone && cluster.IsReady(c.Pod) }

// Going reports whether the pod was terminating or gone.
func (c PodChange) Going() bool { return c.Gone || c.DeletionTimestamp != nil }

// Pods is the history of the pods of a namespace. It is safe for concurrent use. Use [WatchPods] to make one.
type Pods struct {
	t         testing.TB
	client    kubernetes.Interface
	namespace string
	first     int // how many pods existed at the beginning

	mu      sync.Mutex
	changes []PodChange
}

// WatchPods follows the pods of a namespace until the test ends. The history is exact, because the API server reports every change
// in order. The test fails if the API server ends the watch.
func WatchPods(t testing.TB, client kubernetes.Interface, namespace string) *Pods {
	t.Helper()
	p := &Pods{t: t, client: client, namespace: namespace}
	list := p.list()
	for i := range list.Items {
		p.changes = append(p.changes, PodChange{Pod: &list.Items[i], At: time.Now()})
	}
	p.first = len(list.Items)
	ctx := t.Context()
	w, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	expect.Must(t, err)
	var watching sync.WaitGroup
	watching.Go(func() {
		var last watch.Event
		for last = range w.ResultChan() {
			pod, ok := last.Object.(*corev1.Pod)
			if !ok {
				break
			}
			p.mu.Lock()
			p.changes = append(p.changes, PodChange{Pod: pod, At: time.Now(), Gone: last.Type == watch.Deleted})
			p.mu.Unlock()
		}
		if ctx.Err() == nil { // otherwise the test has ended
			t.Errorf("the watch of the pods of %s ended too early, after %s %v", namespace, last.Type, last.Object)
		}
	})
	t.Cleanup(func() {
		w.Stop()
		watching.Wait()
	})
	return p
}

func (p *Pods) list() *corev1.PodList {
	p.t.Helper()
	list, err := p.client.CoreV1().Pods(p.namespace).List(p.t.Context(), metav1.ListOptions{})
	expect.Must(p.t, err)
	return list
}

// Changes returns the pods at the beginning, and all changes until now, in order.
func (p *Pods) Changes() (changes []PodChange) {
	p.t.Helper()
	expect.Eventually(p.t, "the watch has reported the pods that exist", func() bool {
		want, got := map[types.UID]string{}, map[types.UID]string{} // resource versions
		for _, pod := range p.list().Items {
			want[pod.UID] = pod.ResourceVersion
		}
		p.mu.Lock()
		changes = slices.Clone(p.changes)
		p.mu.Unlock()
		for _, c := range changes {
			if got[c.UID] = c.ResourceVersion; c.Gone {
				delete(got, c.UID)
			}
		}
		return maps.Equal(got, want)
	})
	return changes
}

// Least returns the smallest number of pods of each group that were Ready at the same time.
func (p *Pods) Least(group func(*corev1.Pod) string) map[string]int {
	p.t.Helper()
	ready, now, least := map[types.UID]bool{}, map[string]int{}, map[string]int{}
	for i, c := range p.Changes() {
		name := group(c.Pod)
		switch is := c.Ready(); {
		case is && !ready[c.UID]:
			ready[c.UID] = true
			now[name]++
		case !is && ready[c.UID]:
			delete(ready, c.UID)
			now[name]--
		}
		if i >= p.first {
			least[name] = min(least[name], now[name])
		} else {
			least[name] = now[name]
		}
	}
	return least
}
