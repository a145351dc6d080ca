package score_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/rehome-dev/rehome/fit/score"
)

const start = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, text string
		change     func(*score.Profile)
	}{
		{"nothing_set", "parallelism: 8\nleaderElection: {leaderElect: true}", func(*score.Profile) {}},
		{
			"most_allocated", `profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {apiVersion: kubescheduler.config.k8s.io/v1,
 kind: NodeResourcesFitArgs, scoringStrategy: {type: MostAllocated, resources: [{name: cpu}, {name: example.com/device, weight: 5}]}}}]}]`,
			func(p *score.Profile) {
				p.Strategy = config.ScoringStrategy{
					Type: config.MostAllocated, Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: device, Weight: 5}},
				}
			},
		},
		{
			"ratio", `profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio,
 requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}}}]}]`,
			func(p *score.Profile) {
				p.Strategy.Type = config.RequestedToCapacityRatio
				p.Strategy.RequestedToCapacityRatio = &config.RequestedToCapacityRatioParam{
					Shape: []config.UtilizationShapePoint{{}, {Utilization: 100, Score: 10}},
				}
			},
		},
		{
			"weights", `profiles: [{schedulerName: mine}, {schedulerName: default-scheduler, plugins: {
 multiPoint: {disabled: [{name: PodTopologySpread}], enabled: [{name: NodeAffinity, weight: 4}]},
 score: {disabled: [{name: ImageLocality}, {name: InterPodAffinity}], enabled: [{name: TaintToleration, weight: 9}]}}}]`,
			func(p *score.Profile) {
				delete(p.Weights, score.PodTopologySpread)
				delete(p.Weights, score.InterPodAffinity)
				p.Weights[score.NodeAffinity], p.Weights[score.TaintToleration] = 4, 9
			},
		},
		{
			"all_disabled_but_one", "profiles: [{plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit}]}}}]",
			func(p *score.Profile) { p.Weights = map[score.Plugin]int64{score.NodeResourcesFit: 1} },
		},
		{
			"spread_and_affinity", `profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [
 {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: ScheduleAnyway}]}},
 {name: InterPodAffinity, args: {hardPodAffinityWeight: 0, ignorePreferredTermsOfExistingPods: true}},
 {name: NodeResourcesBalancedAllocation, args: {resources: [{name: cpu, weight: 1}]}}]}]`,
			func(p *score.Profile) {
				p.Spread = config.PodTopologySpreadArgs{
					DefaultingType: config.ListDefaulting, DefaultConstraints: []corev1.TopologySpreadConstraint{
						{MaxSkew: 1, TopologyKey: "rack", WhenUnsatisfiable: corev1.ScheduleAnyway},
					},
				}
				p.RequiredAffinity, p.OwnAffinity = 0, true
				p.Balanced = []config.ResourceSpec{{Name: "cpu", Weight: 1}}
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := score.Read([]byte(start + test.text))
			want := score.Default()
			test.change(want)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for _, test := range []struct{ name, text, error string }{
		{"another_kind", "apiVersion: v1\nkind: ConfigMap", "is v1 ConfigMap, want kubescheduler.config.k8s.io/v1 KubeSchedulerConfiguration"},
		{"an_unknown_field", start + "profile: []", `unknown field "profile"`},
		{"an_unknown_argument", start + "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {weight: 1}}]}]", `pluginConfig InterPodAffinity: `},
		{"extenders", start + "extenders: [{urlPrefix: 'http://x'}]", "extenders cannot be predicted"},
		{"a_plugin_of_others", start + "profiles: [{plugins: {score: {enabled: [{name: Coscheduling}]}}}]", "score plugin Coscheduling cannot be predicted"},
		{"no_default_profile", start + "profiles: [{schedulerName: mine}]", "has no profile default-scheduler"},
		{
			"added_affinity", start + "profiles: [{pluginConfig: [{name: NodeAffinity, args: {addedAffinity: {}}}]}]",
			"pluginConfig NodeAffinity: addedAffinity cannot be predicted",
		},
		{
			"an_unknown_strategy", start + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Best}}}]}]",
			`pluginConfig NodeResourcesFit: scoringStrategy.type "Best" is not known`,
		},
		{
			"a_ratio_without_shape", start +
				"profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: RequestedToCapacityRatio}}}]}]",
			"pluginConfig NodeResourcesFit: requestedToCapacityRatio has no shape",
		},
		{
			"a_negative_weight_of_a_resource", start + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: " +
				"LeastAllocated, resources: [{name: cpu, weight: -1}]}}}]}]",
			"scoringStrategy.resources: the weight of cpu: want 1 to 100, got -1",
		},
		{
			"a_shape_out_of_order", start + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: " +
				"RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 50}, {utilization: 50, score: 10}]}}}}]}]",
			"requestedToCapacityRatio.shape[1]: want a utilization up to 100",
		},
		{
			"a_shape_above_the_highest_score", start + "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: " +
				"RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 0, score: 11}]}}}}]}]",
			"got 0 and 11",
		},
		{
			"a_negative_skew", start + "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, " +
				"defaultConstraints: [{maxSkew: -5, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}}]}]",
			"pluginConfig PodTopologySpread: defaultConstraints[0].maxSkew: want at least 1, got -5",
		},
		{
			"a_negative_weight_of_affinity",
			start + "profiles: [{pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: -1}}]}]",
			"pluginConfig InterPodAffinity: hardPodAffinityWeight: want 0 to 100, got -1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := score.Read([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.error) {
				t.Errorf("got %v, want %s", err, test.error)
			}
		})
	}
}
