package utilization_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

// requesting adds a container with these requests, or an init container if init.
func requesting(requests string, init bool) test.PodOption {
	return func(p *schemas.ScopedPod) {
		c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: test.Amounts(requests)}}
		if init {
			p.Pod.Spec.InitContainers = append(p.Pod.Spec.InitContainers, c)
		} else {
			p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, c)
		}
	}
}

func limited(p *schemas.ScopedPod) {
	p.Pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: test.Amounts("cpu=1")}}}
}

func wholly(p *schemas.ScopedPod) {
	p.Pod.Spec.Resources = &corev1.ResourceRequirements{Requests: test.Amounts("cpu=1")}
}

// underUsed returns the intents to move pods in the namespace web, each NAME, off one node.
func underUsed(from, reason string, names ...string) []schemas.Intent {
	return test.MovesFrom(from, from+" is under-used: "+reason, names...)
}

func TestHighNodeUtilizationDecide(t *testing.T) {
	cpu := utilization.HighArgs{Thresholds: shares{"cpu": 20}}
	only := utilization.HighArgs{Thresholds: shares{"cpu": 20, "nvidia.com/gpu": 10}, EvictionModes: []utilization.EvictionMode{utilization.OnlyThresholdingResources}}
	cold, warm := test.Usage("n1", "cpu=2"), test.Usage("n2", "cpu=4")
	const because = "cpu 20 % of 20 %"
	p := func(name string, options ...test.PodOption) schemas.UsingPod {
		return test.Using("n1", name, "cpu=1", options...)
	}
	two := pods{p("a"), p("b")}
	db := underUsed("n1", because, "a")
	db[0].Pod.Namespace = "db"
	gpus := test.Capacity("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")
	for _, c := range []struct {
		name    string
		args    utilization.HighArgs
		nodes   nodes
		pods    pods
		sources []string
		want    list
	}{
		{"all of them", cpu, nodes{cold, warm}, two, []string{"n1"}, underUsed("n1", because, "a", "b")},
		{"a node a little above the threshold is not under-used", cpu, nodes{test.Usage("n1", "cpu=2001m"), warm}, two, nil, nil},
		{"a node is under-used when all its resources are", utilization.HighArgs{Thresholds: shares{"cpu": 20, "memory": 20}}, nodes{test.Usage("n1", "cpu=2 memory=21"), warm}, two, nil, nil},
		{"each resource is named, sorted", utilization.HighArgs{Thresholds: shares{"pods": 5.5, "cpu": 20, "memory": 20}}, nodes{test.Usage("n1", "cpu=1 memory=10 pods=2"), warm}, two,
			[]string{"n1"}, underUsed("n1", "cpu 10 % of 20 %, memory 10 % of 20 %, pods 2 % of 5.5 %", "a", "b")},
		{"a resource without a threshold does not count", cpu, nodes{test.Usage("n1", "cpu=2 memory=99"), warm}, two, []string{"n1"}, underUsed("n1", because, "a", "b")},
		{"a cordoned node can be under-used", cpu, nodes{test.Usage("n1", "cpu=2", test.Cordoned()), warm}, two, []string{"n1"}, underUsed("n1", because, "a", "b")},
		{"a node that lacks a resource is under-used in it", utilization.HighArgs{Thresholds: shares{"cpu": 20, "nvidia.com/gpu": 10}},
			nodes{cold, test.Usage("n2", "cpu=4", gpus)}, two, []string{"n1"}, underUsed("n1", because+", nvidia.com/gpu 0 % of 10 %", "a", "b")},

		{"no node at all", cpu, nil, nil, nil, nil},
		{"no node is under-used", cpu, nodes{test.Usage("n1", "cpu=3"), warm}, two, nil, nil},
		{"all are under-used", cpu, nodes{cold, test.Usage("n2", "")}, two, nil, nil},
		{"the others are cordoned", cpu, nodes{cold, test.Usage("n2", "cpu=4", test.Cordoned())}, two, nil, nil},
		{"as many are under-used as may be", utilization.HighArgs{Thresholds: shares{"cpu": 20}, NumberOfNodes: 1}, nodes{cold, warm}, two, nil, nil},
		{"more are under-used than may be", utilization.HighArgs{Thresholds: shares{"cpu": 20}, NumberOfNodes: 1}, nodes{cold, warm, test.Usage("n3", "cpu=1", test.Cordoned())}, two,
			[]string{"n3", "n1"}, underUsed("n1", because, "a", "b")},

		{"the lowest share first, of each the highest of any resource, and not the fewest bytes", cpu, nodes{
			test.Usage("n1", "memory=30"), test.Usage("n2", "cpu=2", test.Capacity("cpu=10 memory=1 pods=100")), test.Usage("n3", "memory=150", test.Capacity("cpu=10 memory=1000 pods=100")), warm2("n4"),
		}, pods{test.Using("n1", "a", ""), test.Using("n2", "b", ""), test.Using("n3", "c", "")}, []string{"n3", "n2", "n1"},
			slices.Concat(underUsed("n3", "cpu 0 % of 20 %", "c"), underUsed("n2", because, "b"), underUsed("n1", "cpu 0 % of 20 %", "a"))},
		{"of equal shares the first by name", cpu, nodes{test.Usage("n3", "cpu=1"), test.Usage("n1", "cpu=1"), warm}, pods{test.Using("n3", "a", ""), test.Using("n1", "b", "")},
			[]string{"n1", "n3"}, slices.Concat(underUsed("n1", "cpu 10 % of 20 %", "b"), underUsed("n3", "cpu 10 % of 20 %", "a"))},

		{"until the others are full, when no node can be emptied", cpu, nodes{cold, test.Usage("n2", "cpu=8500m")}, pods{p("a"), p("b"), p("c")},
			[]string{"n1"}, underUsed("n1", because, "a")},
		{"no room at all when they are filled exactly", cpu, nodes{cold, test.Usage("n2", "cpu=8")}, pods{p("a"), p("b"), p("c")},
			[]string{"n1"}, underUsed("n1", because, "a", "b")},
		{"nothing when they are full before", cpu, nodes{cold, test.Usage("n2", "cpu=10")}, two, nil, nil},
		{"nothing when they are full of something else", cpu, nodes{cold, test.Usage("n2", "cpu=4 pods=100")}, two, nil, nil},
		{"a resource that the others lack and the pods do not use does not matter", utilization.HighArgs{Thresholds: shares{"cpu": 20, "nvidia.com/gpu": 10}},
			nodes{cold, warm}, two, []string{"n1"}, underUsed("n1", because+", nvidia.com/gpu 0 % of 10 %", "a", "b")},
		{"a node without the resource of the threshold is not emptied", utilization.HighArgs{Thresholds: shares{"nvidia.com/gpu": 10}},
			nodes{cold, test.Usage("n2", "nvidia.com/gpu=1", gpus)}, two, nil, nil},
		{"a target that is used too much takes nothing from the others", cpu,
			nodes{cold, test.Usage("n2", "cpu=11"), test.Usage("n3", "cpu=7")}, pods{p("a"), p("b"), p("c")}, []string{"n1"}, underUsed("n1", because, "a", "b", "c")},
		{"a cordoned node is no target", cpu, nodes{cold, test.Usage("n2", "cpu=9"), test.Usage("n3", "cpu=4", test.Cordoned())}, two, []string{"n1"}, underUsed("n1", because, "a")},
		{"a node that is under-used is no target", cpu, nodes{cold, test.Usage("n2", "cpu=9"), test.Usage("n3", "cpu=1", test.Cordoned())}, two, []string{"n3", "n1"}, underUsed("n1", because, "a")},
		{"one room for all", cpu, nodes{cold, test.Usage("n0", "cpu=1"), test.Usage("n2", "cpu=8500m")}, append(pods{test.Using("n0", "c", "cpu=1")}, two...),
			[]string{"n0", "n1"}, underUsed("n0", "cpu 10 % of 20 %", "c")},
		{"of nodes used equally first the one with the fewest pods", cpu, nodes{
			test.Usage("n1", "cpu=2"), test.Usage("n2", "cpu=2"), test.Usage("n3", "cpu=8"),
		}, pods{
			test.Using("n1", "a", "cpu=500m"), test.Using("n1", "b", "cpu=500m"), test.Using("n1", "c", "cpu=500m"), test.Using("n1", "d", "cpu=500m"),
			test.Using("n2", "e", "cpu=2"),
		}, []string{"n1", "n2"}, underUsed("n2", because, "e")},
		{"a node that cannot be emptied does not start if another can", cpu, nodes{test.Usage("n1", "cpu=1"), test.Usage("n2", "cpu=2"), test.Usage("n3", "cpu=7")},
			pods{test.Using("n1", "a", "cpu=500m"), test.Using("n1", "b", "cpu=500m", test.Protected(policy.PodsWithPVC)), test.Using("n2", "c", "cpu=2")},
			[]string{"n1", "n2"}, underUsed("n2", because, "c")},
		{"a pod of a DaemonSet does not keep a node from being empty", cpu, nodes{test.Usage("n1", "cpu=1"), test.Usage("n2", "cpu=2"), test.Usage("n3", "cpu=7")},
			pods{test.Using("n1", "a", "cpu=500m"), test.Using("n1", "b", "cpu=500m", test.Protected(policy.DaemonSetPods)), test.Using("n2", "c", "cpu=2")},
			[]string{"n1", "n2"}, slices.Concat(underUsed("n1", "cpu 10 % of 20 %", "a"), underUsed("n2", because, "c"))},
		{"a pod that is larger than any target's capacity stays", cpu, nodes{test.Usage("n1", "cpu=2"), test.Usage("n2", "cpu=9"), test.Usage("n3", "cpu=9")},
			pods{test.Using("n1", "a", "cpu=2")}, []string{"n1"}, nil},

		{"protected pods stay", cpu, nodes{cold, warm}, pods{p("a", test.Protected(policy.DaemonSetPods)), p("b")}, []string{"n1"}, underUsed("n1", because, "b")},
		{"pods with unknown usage stay", cpu, nodes{cold, warm}, pods{test.Unmeasured(p("a")), p("b")}, []string{"n1"}, underUsed("n1", because, "b")},
		{"pods of namespaces that are excluded stay", utilization.HighArgs{Thresholds: shares{"cpu": 20}, EvictableNamespaces: policy.Namespaces{Exclude: []string{"web"}}},
			nodes{cold, warm}, pods{p("a", test.In("db")), p("b")}, []string{"n1"}, db},
		{"lower priority first", cpu, nodes{cold, warm}, pods{p("a", test.Priority(1)), p("b")}, []string{"n1"}, underUsed("n1", because, "b", "a")},
		{"pods that tolerate no target stay", cpu, nodes{cold, test.Usage("n2", "cpu=4", test.Tainted("gpu:NoSchedule", "soft:PreferNoSchedule")), test.Usage("n3", "cpu=4", test.Tainted("gone:NoExecute"))},
			pods{p("a"), p("b", test.ToleratingKeys("gpu")), p("c", test.ToleratingKeys("gone")), p("d", test.ToleratingKeys("")), p("e", test.ToleratingKeys("soft"))},
			[]string{"n1"}, underUsed("n1", because, "c", "d")},
		{"a pod that is being deleted takes room", cpu, nodes{cold, test.Usage("n2", "cpu=7500m")}, pods{p("a"), p("b"), p("c", test.Deleted())},
			[]string{"n1"}, underUsed("n1", because, "a")},

		{"only pods that request a resource with a threshold, when asked for", only, nodes{cold, test.Usage("n2", "cpu=4", gpus)}, pods{
			p("a"), p("b", requesting("memory=1", false)), p("c", requesting("memory=1", false), requesting("cpu=1", false)),
			p("d", requesting("nvidia.com/gpu=1", true)), p("e", requesting("cpu=0", false)), p("f", limited), p("g", wholly),
		}, []string{"n1"}, underUsed("n1", because+", nvidia.com/gpu 0 % of 10 %", "c", "d", "e")},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Balances(t, c.args, c.nodes, c.pods, c.sources, c.want)
		})
	}
}

// warm2 returns a node that is not under-used and has room for everything.
func warm2(name string) schemas.NodeUsage {
	return test.Usage(name, "cpu=40", test.Capacity("cpu=100 memory=10000 pods=1000"))
}

func TestHighNodeUtilizationNeeds(t *testing.T) {
	args := utilization.HighArgs{Thresholds: shares{"nvidia.com/gpu": 1, "cpu": 2}}
	var gauged policy.Gauged = args
	expect.Equal(t, "load", gauged.Load(), (policy.Load{}))
	expect.Equal(t, "resources", gauged.Resources(), []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu", "pods"})
}

func TestHighNodeUtilizationValidate(t *testing.T) {
	const names = "want cpu, memory, pods, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME, such as nvidia.com/gpu"
	for _, c := range []struct {
		name string
		args utilization.HighArgs
		want []string
	}{
		{"every field, rightly", utilization.HighArgs{
			Thresholds: shares{"cpu": 0, "example.com/a": 100}, NumberOfNodes: 3, EvictionModes: []utilization.EvictionMode{utilization.OnlyThresholdingResources},
			EvictableNamespaces: policy.Namespaces{Include: []string{}, Exclude: []string{"a"}},
		}, nil},
		{"nothing", utilization.HighArgs{}, []string{"thresholds: names no resource; want at least one, such as cpu: 20"}},
		{"thresholds", utilization.HighArgs{Thresholds: shares{"cpu": -1, "MetricResource": 1}}, []string{
			"thresholds[MetricResource]: is not a measured resource; " + names,
			"thresholds[cpu]: is not a percentage, got -1; want a percentage from 0 to 100",
		}},
		{"the rest", utilization.HighArgs{
			Thresholds: shares{"cpu": 1}, NumberOfNodes: -2, EvictionModes: []utilization.EvictionMode{utilization.OnlyThresholdingResources, ""},
			EvictableNamespaces: policy.Namespaces{Include: []string{"a"}},
		}, []string{
			"numberOfNodes: must not be negative, got -2; 0 is any number",
			`evictionModes[1]: is not known, got ""; want OnlyThresholdingResources`,
			"evictableNamespaces.include: cannot be used by this strategy; list the other namespaces in exclude",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Refused(t, c.args.Validate(), c.want...)
		})
	}
}
