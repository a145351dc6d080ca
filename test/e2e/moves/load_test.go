package moves

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
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// The smoothed load reflects the move only slowly. Meanwhile the old load must not move pods.
func TestOverusedByLoad(t *testing.T) {
	t.Parallel()
	s := scene.New(t, 3)
	serveMetrics(s)
	busy, idle := s.Nodes[0], s.Nodes[1:]
	for _, n := range idle {
		s.ChangeNode(n, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	}
	s.AddDeployment("api", 7)
	for _, n := range idle {
		s.ChangeNode(n, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	}
	setUsage(s, "4") // 28 of the 32 cores of one node
	dir := filetest.ShortDir(t)
	s.StartRun(byLoad(s), dir)
	events := scene.Record(t, scene.BusIn(dir))
	verdicts := events.WaitVerdicts("three pods are evicted", func(v []schemas.Verdict) bool { return len(v) >= 3 })
	s.WaitReady("api")

	for _, v := range verdicts {
		if want := fmt.Sprintf("%s is over-used: cpu 87.5 %% of 55 %%", busy); v.Outcome != schemas.Evicted || v.Intent.Reason != want {
			t.Errorf("verdict %s: %s, want it evicted: %s", v.Outcome, v.Intent.Reason, want)
		}
	}
	if got := len(s.PodsOn(busy)); got != 4 {
		t.Errorf("%d pods are on the node that was over-used, want 4", got)
	}
	if got := len(s.PodsOn(idle[0])) + len(s.PodsOn(idle[1])); got != 3 {
		t.Errorf("%d pods are on the other nodes, want the replacements of 3", got)
	}
	percent := func(cpu int64) *schemas.State {
		return &schemas.State{Load: map[corev1.ResourceName]int64{"cpu": cpu, "memory": 0}}
	}
	if got, want := loads(events, busy, 1), []*schemas.State{nil, percent(88)}; !reflect.DeepEqual(got, want) {
		t.Errorf("the node became over-used: got %s\nwant %s", expect.Indented(got), expect.Indented(want))
	}

	// The smoothed load reflects the moves only slowly. Meanwhile the old load moves no pods.
	setUsage(s, "2")
	states := loads(events, busy, 2)
	if after := states[3].Load["cpu"]; after > 55 {
		t.Errorf("the node is no longer over-used: got %s, want at most 55 percent at the end", expect.Indented(states))
	}
	if got := s.Evictions(); len(got) != 3 {
		t.Errorf("evicted %v, want three pods", got)
	}
}

// serveMetrics makes the API server serve metrics.k8s.io until the end of the scene.
func serveMetrics(s *scene.Scene) {
	s.T.Helper()
	s.T.Must(s.Cluster.ServeMetrics(s.T.Context()))
	s.T.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Cluster.HideMetrics(ctx); err != nil {
			s.T.Error(err)
		}
	})
}

// setUsage sets the measured CPU usage of each pod of the scene, and of each node as the sum of its pods.
func setUsage(s *scene.Scene, cpu string) {
	s.T.Helper()
	using := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Mi")}
	for _, node := range s.Nodes {
		total := corev1.ResourceList{"cpu": {}, "memory": {}}
		for _, pod := range s.PodsOn(node) {
			s.T.Must(s.Cluster.SetPodMetrics(s.T.Context(), cluster.PodMetrics{
				Namespace: s.Namespace, Name: pod, Containers: []corev1.ResourceList{using},
			}))
			for name, quantity := range using {
				sum := total[name]
				sum.Add(quantity)
				total[name] = sum
			}
		}
		s.T.Must(s.Cluster.SetNodeMetrics(s.T.Context(), cluster.NodeMetrics{Name: node, Usage: total, Timestamp: time.Now(), Window: 10 * time.Minute}))
	}
}

// byLoad returns a policy for the nodes of the scene that uses the metrics API.
func byLoad(s *scene.Scene) string {
	s.T.Helper()
	return s.ProfilesPolicy([]string{`  - name: default
    pluginConfig:
      - name: LowNodeUtilization
        args:
          thresholds: {cpu: 20}
          targetThresholds: {cpu: 55}
          metricsUtilization: {source: KubernetesMetrics}
    plugins: {balance: {enabled: [LowNodeUtilization]}}`}, "metricsProviders: [{source: KubernetesMetrics}]")
}

// loads waits for n deltas about the load of a node, and returns their states, two per delta.
func loads(r *scene.Recording, node string, n int) []*schemas.State {
	r.T.Helper()
	var states []*schemas.State
	expect.EventuallyWithState(r.T, fmt.Sprintf("%d deltas about the load of %s", n, node), func() (bool, string) {
		states = nil
		for _, d := range scene.Payloads[schemas.Delta](r) {
			if d.Kind == schemas.NodeLoad && d.Object.Name == node {
				states = append(states, d.Before, d.After)
			}
		}
		return len(states) >= 2*n, expect.Indented(states)
	})
	return states
}
