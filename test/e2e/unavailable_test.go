package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
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
		t.Run(c.name, beside(func(t *testing.T) {
			s := newScene(t, 2)
			hatch := s.hatch()
			s.deployment("api", 10, preferring(s.nodes[0]), func(p *corev1.PodTemplateSpec) {
				p.Annotations = map[string]string{cluster.HoldAnnotation: "until the scene lets it be ready"}
			})
			s.placed("api", map[string]int{s.nodes[0]: 10})
			if c.budget {
				s.allow("keep-api", "api", 4)
			}
			before := s.pods(s.nodes[0])
			s.rehome(s.policy(append(c.policy, fast)...), filetest.ShortDir(t)).leads()
			lives := s.watchPods()

			hatch.close()
			s.taint(s.nodes[0], "dedicated")
			s.moved(0, c.most)
			hatch.open()
			s.emptied(s.nodes[0])
			s.ready("api")
			s.evictedOnce(before)
			if got, want := lives.missing(altogether, 10), map[string]int{"all": c.most}; !maps.Equal(got, want) {
				t.Errorf("unavailable at the worst moment: %v, want %v", got, want)
			}
			s.spacedByReadiness(c.most)
		}))
	}
}

// spacedByReadiness checks in the audit log and the pod conditions that an eviction was called only when enough
// replacements of earlier ones were ready. Conditions have whole seconds, rounded down.
func (s *scene) spacedByReadiness(most int) {
	s.t.Helper()
	var ready []time.Time
	for _, p := range s.podsOf("api") {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				ready = append(ready, c.LastTransitionTime.Time)
			}
		}
	}
	slices.SortFunc(ready, time.Time.Compare)
	for i, e := range s.audited(http.StatusCreated) {
		if i >= most && e.time.Before(ready[i-most]) {
			s.t.Errorf("eviction %d at %v, before replacement %d was ready at %v", i+1, e.time, i-most+1, ready[i-most])
		}
	}
}

// allow creates a PodDisruptionBudget that allows that many unavailable pods of a Deployment, and waits until it counts them.
func (s *scene) allow(name, deployment string, unavailable int32) {
	s.t.Helper()
	spec := policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(unavailable))}
	_, err := s.cluster.AddBudget(s.t.Context(), s.namespace, name, deployment, spec)
	s.t.Must(err)
	expect.EventuallyWithState(s.t, "the budget counts its pods", func() (bool, string) {
		b, err := s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
		s.t.Must(err)
		return b.Status.DisruptionsAllowed == unavailable, fmt.Sprint(b.Status)
	})
}

// hatch makes the held pods of a scene ready one after another while it is open.
type hatch struct {
	s    *scene
	mu   sync.Mutex
	shut bool
}

// hatch lets pods with [cluster.HoldAnnotation] become ready as soon as they have a node, until the scene ends.
func (s *scene) hatch() *hatch {
	h := &hatch{s: s}
	ctx, cancel := context.WithCancel(s.t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		for ctx.Err() == nil {
			h.letOne(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	s.t.Cleanup(func() {
		cancel()
		working.Wait()
	})
	return h
}

func (h *hatch) close() { h.set(true) }
func (h *hatch) open()  { h.set(false) }

func (h *hatch) set(shut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = shut
}

// letOne makes the first waiting pod ready, if there is one and the hatch is open.
func (h *hatch) letOne(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shut {
		return
	}
	pods := h.s.client.CoreV1().Pods(h.s.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		if ctx.Err() == nil {
			h.s.t.Errorf("list the pods that wait: %v", err)
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
			h.s.t.Errorf("free pod %s: %v", p.Name, err)
		}
		return
	}
}
