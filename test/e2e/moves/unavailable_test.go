package moves

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// TestUnavailableLimit drains a node of a workload whose replacements become ready only when the scene permits. According to the
// watch of its pods, the limit on unavailable pods is reached and never exceeded. According to the audit log, nothing is evicted
// while no replacement becomes ready.
func TestUnavailableLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		policy []string
		budget bool // a budget that allows 4 unavailable pods
		most   int
	}{
		{"a quarter of 10 pods, rounded down, is 2", nil, false, 2},
		{"1 if the policy says so", []string{"limits: {unavailable: 1}"}, false, 1},
		{"a budget takes the place of the rule", nil, true, 4},
	} {
		t.Run(c.name, parallel(func(t *testing.T) {
			s := scene.New(t, 2)
			gate := newReadinessGate(s)
			s.AddDeployment("api", 10, scene.PreferNode(s.Nodes[0]), func(p *corev1.PodTemplateSpec) {
				p.Annotations = map[string]string{cluster.HoldAnnotation: "until the scene lets it be ready"}
			})
			s.WaitPlaced("api", map[string]int{s.Nodes[0]: 10})
			if c.budget {
				s.AddUnavailableBudget("keep-api", "api", 4)
			}
			before := s.PodsOn(s.Nodes[0])
			s.StartRun(s.Policy(append(c.policy, scene.FastRate)...), filetest.ShortDir(t)).WaitLeads()
			history := s.WatchPods()

			gate.close()
			s.Taint(s.Nodes[0], "dedicated")
			s.CheckMoved(0, c.most)
			gate.open()
			s.WaitEmpty(s.Nodes[0])
			s.WaitReady("api")
			s.CheckEvictedOnce(before)
			if got, want := history.MostMissing(allTogether, 10), map[string]int{"all": c.most}; !maps.Equal(got, want) {
				t.Errorf("unavailable at the worst moment: %v, want %v", got, want)
			}
			spacedByReadiness(s, c.most)
		}))
	}
}

// spacedByReadiness checks in the audit log and the pod conditions that an eviction was called only when enough
// replacements of earlier ones were ready. Conditions have whole seconds, rounded down.
func spacedByReadiness(s *scene.Scene, most int) {
	s.T.Helper()
	var ready []time.Time
	for _, p := range s.PodsOf("api") {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				ready = append(ready, c.LastTransitionTime.Time)
			}
		}
	}
	slices.SortFunc(ready, time.Time.Compare)
	for i, e := range s.EvictionsWithCode(http.StatusCreated) {
		if i >= most && e.Time.Before(ready[i-most]) {
			s.T.Errorf("eviction %d at %v, before replacement %d was ready at %v", i+1, e.Time, i-most+1, ready[i-most])
		}
	}
}

// readinessGate makes the held pods of a scene ready one after another while it is open.
type readinessGate struct {
	s      *scene.Scene
	mu     sync.Mutex
	closed bool
}

// newReadinessGate lets pods with [cluster.HoldAnnotation] become ready as soon as they have a node, until the scene ends.
func newReadinessGate(s *scene.Scene) *readinessGate {
	g := &readinessGate{s: s}
	ctx, cancel := context.WithCancel(s.T.Context())
	var working sync.WaitGroup
	working.Go(func() {
		for ctx.Err() == nil {
			g.admitOne(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	s.T.Cleanup(func() {
		cancel()
		working.Wait()
	})
	return g
}

func (g *readinessGate) close() { g.set(true) }

func (g *readinessGate) open() { g.set(false) }

func (g *readinessGate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
}

// admitOne makes the first waiting pod ready, if there is one and the gate is open.
func (g *readinessGate) admitOne(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	pods := g.s.Client.CoreV1().Pods(g.s.Namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		if ctx.Err() == nil {
			g.s.T.Errorf("list the pods that wait: %v", err)
		}
		return
	}
	for _, p := range list.Items {
		if _, held := p.Annotations[cluster.HoldAnnotation]; !held || p.Spec.NodeName == "" || p.DeletionTimestamp != nil {
			continue
		}
		free := []byte(`{"metadata":{"annotations":{"` + cluster.HoldAnnotation + `":null}}}`)
		_, err := pods.Patch(ctx, p.Name, types.MergePatchType, free, metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			g.s.T.Errorf("free pod %s: %v", p.Name, err)
		}
		return
	}
}
