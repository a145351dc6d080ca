package score_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// FuzzRead checks that Read refuses a scheduler configuration with a reason, or returns a profile with bounded scores: each plugin
// gives each node 0 to 100 times its weight, and Predict returns the nodes with the highest sum.
func FuzzRead(f *testing.F) {
	f.Add([]byte(""))
	for _, text := range []string{
		"", "profiles: []", "profiles: [{schedulerName: mine}]", "extenders: [{}]",
		"profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}]}, score: {enabled: [{name: TaintToleration, weight: -1}]}}}]",
		"profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio, resources: " +
			"[{name: cpu, weight: -1}, {name: memory}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]}}}}]}]",
		"profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 100}]}}}]}]",
		"profiles: [{pluginConfig: [{name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu}, {name: example.com/device}]}}]}]",
		"profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: " +
			"[{maxSkew: -5, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}]}}]}]",
		"profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: 100, ignorePreferredTermsOfExistingPods: true}}, null]}]",
	} {
		f.Add([]byte(start + text))
	}
	c := cluster(node("a", "x"), node("b", "x", "example.com/device", "1"), node("c", "y", "cpu", "0"), avoided(node("d", "z", "memory", "1"), 3),
		with(pod("p", "a", "cpu", "3"), fixtures.ControlledBy("ReplicaSet", "web")), with(pod("q", "b", "memory", "4000Mi"), near(7, "web")), pod("r", "c"))
	asked := []*corev1.Pod{
		with(pod("new", "", "cpu", "1", "memory", "2000Mi"), fixtures.ControlledBy("ReplicaSet", "web")), pod("none", ""),
		with(pod("soft", "", "cpu", "1"), fixtures.Spread(corev1.LabelHostname, fixtures.Anyway)), with(pod("near", "", "cpu", "1"), near(3, "web")),
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := score.Read(text)
		if err != nil {
			if err.Error() == "" || p != nil {
				t.Errorf("got %+v, %q", p, err)
			}
			return
		}
		for _, pod := range asked {
			q := c.Ask(pod)
			ranked := score.Rank(q, p, nil)
			best := map[string]bool{}
			for _, n := range ranked {
				var sum int64
				for plugin, part := range n.Plugins {
					if weight := p.Weights[plugin]; part < min(0, 100*weight) || part > max(0, 100*weight) {
						t.Errorf("pod %s: %s gives %s %d, and weighs %d", pod.Name, plugin, n.Name, part, weight)
					}
					sum += part
				}
				if n.Score != sum {
					t.Errorf("pod %s: %s has the score %d, and its parts come to %d", pod.Name, n.Name, n.Score, sum)
				}
				if n.Score == ranked[0].Score {
					best[n.Name] = true
				}
			}
			got := map[string]bool{}
			for _, n := range score.Predict(q, p, nil) {
				got[n.Name] = true
			}
			if !reflect.DeepEqual(got, best) {
				t.Errorf("pod %s: predicted %v, want %v", pod.Name, got, best)
			}
		}
	})
}
