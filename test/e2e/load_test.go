package e2e

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// The smoothed load reflects the move only slowly. Meanwhile the old load must not move pods.
func TestOverusedByLoad(t *testing.T) {
	t.Parallel()
	s := newScene(t, 3)
	s.servesMetrics()
	busy, idle := s.nodes[0], s.nodes[1:]
	for _, n := range idle {
		s.changeNode(n, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	}
	s.deployment("api", 7)
	for _, n := range idle {
		s.changeNode(n, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	}
	s.measures("4") // 28 of the 32 cores of one node
	dir := filetest.ShortDir(t)
	s.rehome(s.byLoad(), dir)
	events := record(t, at(dir))
	verdicts := events.until("three pods are evicted", func(v []schemas.Verdict) bool { return len(v) >= 3 })
	s.ready("api")

	for _, v := range verdicts {
		if want := fmt.Sprintf("%s is over-used: cpu 87.5 %% of 55 %%", busy); v.Outcome != schemas.Evicted || v.Intent.Reason != want {
			t.Errorf("verdict %s: %s, want it evicted: %s", v.Outcome, v.Intent.Reason, want)
		}
	}
	if got := len(s.pods(busy)); got != 4 {
		t.Errorf("%d pods are on the node that was over-used, want 4", got)
	}
	if got := len(s.pods(idle[0])) + len(s.pods(idle[1])); got != 3 {
		t.Errorf("%d pods are on the other nodes, want the replacements of 3", got)
	}
	percent := func(cpu int64) *schemas.State {
		return &schemas.State{Load: map[corev1.ResourceName]int64{"cpu": cpu, "memory": 0}}
	}
	if got, want := events.loads(busy, 1), []*schemas.State{nil, percent(88)}; !reflect.DeepEqual(got, want) {
		t.Errorf("the node became over-used: got %s\nwant %s", expect.Indented(got), expect.Indented(want))
	}

	// The smoothed load reflects the moves only slowly. Meanwhile the old load moves no pods.
	s.measures("2")
	states := events.loads(busy, 2)
	if after := states[3].Load["cpu"]; after > 55 {
		t.Errorf("the node is no longer over-used: got %s, want at most 55 percent at the end", expect.Indented(states))
	}
	if got := s.evictions(); len(got) != 3 {
		t.Errorf("evicted %v, want three pods", got)
	}
}

// servesMetrics makes the API server serve metrics.k8s.io until the end of the scene.
func (s *scene) servesMetrics() {
	s.t.Helper()
	s.t.Must(s.cluster.ServeMetrics(s.t.Context()))
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.cluster.HideMetrics(ctx); err != nil {
			s.t.Error(err)
		}
	})
}

// measures sets the measured CPU usage of each pod of the scene, and of each node as the sum of its pods.
func (s *scene) measures(cpu string) {
	s.t.Helper()
	using := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Mi")}
	for _, node := range s.nodes {
		total := corev1.ResourceList{"cpu": {}, "memory": {}}
		for _, pod := range s.pods(node) {
			s.t.Must(s.cluster.SetPodMetrics(s.t.Context(), cluster.PodMetrics{
				Namespace: s.namespace, Name: pod, Containers: []corev1.ResourceList{using},
			}))
			for name, quantity := range using {
				sum := total[name]
				sum.Add(quantity)
				total[name] = sum
			}
		}
		s.t.Must(s.cluster.SetNodeMetrics(s.t.Context(), cluster.NodeMetrics{Name: node, Usage: total, Timestamp: time.Now(), Window: 10 * time.Minute}))
	}
}

// byLoad returns a policy for the nodes of the scene that uses the metrics API.
func (s *scene) byLoad() string {
	s.t.Helper()
	return s.profiles([]string{`  - name: default
    pluginConfig:
      - name: LowNodeUtilization
        args:
          thresholds: {cpu: 20}
          targetThresholds: {cpu: 55}
          metricsUtilization: {source: KubernetesMetrics}
    plugins: {balance: {enabled: [LowNodeUtilization]}}`}, "metricsProviders: [{source: KubernetesMetrics}]")
}

// loads waits for n deltas about the load of a node, and returns their states, two per delta.
func (r *recording) loads(node string, n int) []*schemas.State {
	r.t.Helper()
	var states []*schemas.State
	expect.EventuallyWithState(r.t, fmt.Sprintf("%d deltas about the load of %s", n, node), func() (bool, string) {
		states = nil
		for _, d := range payloads[schemas.Delta](r) {
			if d.Kind == schemas.NodeLoad && d.Object.Name == node {
				states = append(states, d.Before, d.After)
			}
		}
		return len(states) >= 2*n, expect.Indented(states)
	})
	return states
}
