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

// overUsed returns the intents to move pods in the namespace web, each NAME, off one node.
func overUsed(from, reason string, names ...string) []schemas.Intent {
	return test.MovesFrom(from, from+" is over-used: "+reason, names...)
}

type (
	shares = utilization.Thresholds
	nodes  = []schemas.NodeUsage
	pods   = []schemas.UsingPod
	list   = []schemas.Intent
)

// cpu returns arguments with an under-used limit of 20 % and an over-used limit of 50 %, with changes.
func cpu(changes ...func(*utilization.LowArgs)) utilization.LowArgs {
	a := utilization.LowArgs{Thresholds: shares{"cpu": 20}, TargetThresholds: shares{"cpu": 50}}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func atMost(perNode uint) func(*utilization.LowArgs) {
	return func(a *utilization.LowArgs) { a.EvictionLimits.Node = &perNode }
}

func deviation(a *utilization.LowArgs) { a.UseDeviationThresholds = true }

func kubernetes(a *utilization.LowArgs) {
	a.MetricsUtilization = &utilization.MetricsUtilization{Source: policy.LoadKubernetes}
}

// load returns arguments with an under-used limit of 20 % and an over-used limit of 50 % of one value from Prometheus,
// with changes.
func load(changes ...func(*utilization.LowArgs)) utilization.LowArgs {
	a := utilization.LowArgs{
		Thresholds: shares{schemas.LoadMetric: 20}, TargetThresholds: shares{schemas.LoadMetric: 50},
		MetricsUtilization: &utilization.MetricsUtilization{Source: policy.LoadPrometheus, Prometheus: &utilization.Prometheus{Query: "load"}},
	}
	for _, change := range changes {
		change(&a)
	}
	return a
}

// nodesCase is a case about which nodes lose pods.
type nodesCase struct {
	name    string
	args    utilization.LowArgs
	nodes   nodes
	pods    pods
	sources []string
	want    list
}

func (c nodesCase) run(t *testing.T) {
	test.Balances(t, c.args, c.nodes, c.pods, c.sources, c.want)
}

func TestLowNodeUtilizationDecide(t *testing.T) {
	two := pods{test.Using("n1", "a", "cpu=1"), test.Using("n1", "b", "cpu=1")}
	for _, c := range []nodesCase{
		{"until the node is not over-used any more", cpu(), nodes{test.Usage("n1", "cpu=8"), test.Usage("n2", "cpu=1")},
			pods{test.Using("n1", "a", "cpu=1"), test.Using("n1", "b", "cpu=1500m"), test.Using("n1", "c", "cpu=500m"), test.Using("n1", "d", "cpu=1")},
			[]string{"n1"}, overUsed("n1", "cpu 80 % of 50 %", "b", "a", "c")},
		{"a node exactly at the target is not over-used", cpu(), nodes{test.Usage("n1", "cpu=5"), test.Usage("n2", "cpu=1")}, two, nil, nil},
		{"a node a little above it is", cpu(), nodes{test.Usage("n1", "cpu=5001m"), test.Usage("n2", "cpu=1")}, two,
			[]string{"n1"}, overUsed("n1", "cpu 50.01 % of 50 %", "a")},
		{"a node exactly at the threshold is under-used", cpu(), nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=2")}, two,
			[]string{"n1"}, overUsed("n1", "cpu 60 % of 50 %", "a")},
		{"a node a little above it is not", cpu(), nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=2001m")}, two, nil, nil},
		{"a share is not rounded", cpu(), nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=2", test.Capacity("cpu=9999m memory=100 pods=100"))}, two, nil, nil},

		{"a node is under-used when all its resources are",
			utilization.LowArgs{Thresholds: shares{"cpu": 20, "memory": 20}, TargetThresholds: shares{"cpu": 50, "memory": 50}},
			nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=1 memory=21")}, two, nil, nil},
		{"a node is over-used when one of its resources is, and each that is is named",
			utilization.LowArgs{Thresholds: shares{"cpu": 20, "memory": 20, "pods": 20}, TargetThresholds: shares{"cpu": 50, "memory": 33.3, "pods": 50}},
			nodes{test.Usage("n1", "cpu=1 memory=34 pods=51"), test.Usage("n2", "cpu=2 memory=20 pods=20")},
			pods{test.Using("n1", "a", "memory=1"), test.Using("n1", "b", "cpu=1")},
			[]string{"n1"}, overUsed("n1", "memory 34 % of 33.3 %, pods 51 % of 50 %", "a")},
		{"a node between the thresholds neither loses nor takes", cpu(),
			nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=3"), test.Usage("n3", "cpu=2")},
			append(pods{test.Using("n2", "c", "cpu=1")}, two...), []string{"n1"}, overUsed("n1", "cpu 60 % of 50 %", "a")},
		{"a cordoned node is not under-used", cpu(), nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=1", test.Cordoned())}, two, nil, nil},
		{"a cordoned node can be over-used", cpu(), nodes{test.Usage("n1", "cpu=6", test.Cordoned()), test.Usage("n2", "cpu=1")}, two,
			[]string{"n1"}, overUsed("n1", "cpu 60 % of 50 %", "a")},

		{"no node at all", cpu(), nil, nil, nil, nil},
		{"no node is under-used", cpu(), nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=3")}, two, nil, nil},
		{"all are under-used", cpu(), nodes{test.Usage("n1", "cpu=1"), test.Usage("n2", "cpu=2")}, two, nil, nil},
		{"none is over-used", cpu(), nodes{test.Usage("n1", "cpu=4"), test.Usage("n2", "cpu=2")}, two, nil, nil},
		{"as many are under-used as may be", cpu(func(a *utilization.LowArgs) { a.NumberOfNodes = 2 }),
			nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=2"), test.Usage("n3", "cpu=2")}, two, nil, nil},
		{"more are under-used than may be", cpu(func(a *utilization.LowArgs) { a.NumberOfNodes = 1 }),
			nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=2"), test.Usage("n3", "cpu=2")}, two, []string{"n1"}, overUsed("n1", "cpu 60 % of 50 %", "a")},

		{"the highest share first, by whatever resource, and not the most bytes", cpu(), nodes{
			test.Usage("n1", "cpu=6 memory=90", test.Capacity("cpu=10 memory=1000 pods=100")), test.Usage("n2", "cpu=7 memory=1"), test.Usage("n3", "cpu=6 memory=71"), test.Usage("n4", ""),
		}, pods{test.Using("n1", "a", "cpu=1"), test.Using("n2", "b", "cpu=2"), test.Using("n3", "c", "cpu=1")}, []string{"n3", "n2", "n1"},
			slices.Concat(overUsed("n3", "cpu 60 % of 50 %", "c"), overUsed("n2", "cpu 70 % of 50 %", "b"), overUsed("n1", "cpu 60 % of 50 %", "a"))},
		{"of equal shares the first by name", cpu(), nodes{test.Usage("n3", "cpu=6"), test.Usage("n2", "cpu=6"), test.Usage("n1", "cpu=1")},
			pods{test.Using("n3", "a", "cpu=1"), test.Using("n2", "b", "cpu=1")}, []string{"n2", "n3"},
			slices.Concat(overUsed("n2", "cpu 60 % of 50 %", "b"), overUsed("n3", "cpu 60 % of 50 %", "a"))},
		{"a node without pods that may leave is passed over", cpu(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "cpu=6"), test.Usage("n3", "")},
			pods{test.Using("n1", "a", "cpu=1", test.Protected(policy.DaemonSetPods)), test.Using("n2", "b", "cpu=1")}, []string{"n1", "n2"}, overUsed("n2", "cpu 60 % of 50 %", "b")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestLowNodeUtilizationRoom(t *testing.T) {
	three := pods{test.Using("n1", "a", "cpu=1 memory=10"), test.Using("n1", "b", "cpu=1 memory=10"), test.Using("n1", "c", "cpu=1 memory=10")}
	for _, c := range []nodesCase{
		{"up to the target", cpu(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "cpu=1500m", test.Capacity("cpu=8 memory=100 pods=100"))},
			append(pods{test.Using("n1", "d", "cpu=1"), test.Using("n1", "e", "cpu=1")}, three...),
			[]string{"n1"}, overUsed("n1", "cpu 90 % of 50 %", "a", "b")},
		{"no room at all when it is filled exactly", cpu(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "cpu=1", test.Capacity("cpu=6 memory=100 pods=100"))},
			three, []string{"n1"}, overUsed("n1", "cpu 90 % of 50 %", "a", "b")},
		{"the room of all that are under-used, together", cpu(),
			nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "", test.Capacity("cpu=2 memory=50 pods=50")), test.Usage("n3", "", test.Capacity("cpu=2 memory=50 pods=50"))},
			three, []string{"n1"}, overUsed("n1", "cpu 90 % of 50 %", "a", "b")},
		{"one room for all that are over-used", cpu(), nodes{test.Usage("n1", "cpu=8"), test.Usage("n2", "cpu=9"), test.Usage("n3", "", test.Capacity("cpu=4 memory=50 pods=50"))},
			pods{test.Using("n1", "a", "cpu=1"), test.Using("n2", "b", "cpu=1500m"), test.Using("n2", "c", "cpu=1"), test.Using("n2", "d", "cpu=1")},
			[]string{"n2", "n1"}, overUsed("n2", "cpu 90 % of 50 %", "b")},
		{"a pod larger than the capacity of any target stays", cpu(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "cpu=2"), test.Usage("n3", "cpu=2")},
			pods{test.Using("n1", "a", "cpu=4")}, []string{"n1"}, nil},
		{"a pod that does not use the over-used resource stays", cpu(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "")},
			pods{test.Using("n1", "a", "memory=1"), test.Using("n1", "b", "cpu=4")}, []string{"n1"}, overUsed("n1", "cpu 90 % of 50 %", "b")},
		{"one pod that is enough and not four", cpu(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "")}, pods{
			test.Using("n1", "a", "cpu=1"), test.Using("n1", "b", "cpu=1"), test.Using("n1", "c", "cpu=1"), test.Using("n1", "d", "cpu=1"), test.Using("n1", "e", "cpu=4"),
		}, []string{"n1"}, overUsed("n1", "cpu 90 % of 50 %", "e")},
		{"a resource without a threshold can be used up, too", cpu(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "memory=85")},
			three, []string{"n1"}, overUsed("n1", "cpu 90 % of 50 %", "a")},
		{"places for pods as well", cpu(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "pods=98")},
			three, []string{"n1"}, overUsed("n1", "cpu 90 % of 50 %", "a", "b")},
		{"nothing moves when one of them is used up before", cpu(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "memory=100")}, three, nil, nil},
		{"nor when thresholds leave no room", utilization.LowArgs{Thresholds: shares{"cpu": 50}, TargetThresholds: shares{"cpu": 50}},
			nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "cpu=5")}, three, nil, nil},
		{"a resource without a threshold that is promised twice keeps pods leaving", cpu(),
			nodes{test.Usage("n1", "cpu=6 memory=115"), test.Usage("n2", "")}, three, []string{"n1"}, overUsed("n1", "cpu 60 % of 50 %", "a", "b")},
		{"a threshold of a resource that takers lack", utilization.LowArgs{Thresholds: shares{"cpu": 20, "nvidia.com/gpu": 20}, TargetThresholds: shares{"cpu": 50, "nvidia.com/gpu": 50}},
			nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "")}, three, []string{"n1"}, overUsed("n1", "cpu 90 % of 50 %", "a", "b", "c")},
		{"a threshold of a resource that only takers have", utilization.LowArgs{Thresholds: shares{"nvidia.com/gpu": 20, "cpu": 20}, TargetThresholds: shares{"nvidia.com/gpu": 50, "cpu": 50}},
			nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "", test.Capacity("cpu=10 memory=100 pods=100 nvidia.com/gpu=4"))}, three,
			[]string{"n1"}, overUsed("n1", "cpu 60 % of 50 %", "a")},
		{"the share of a missing resource is 0", utilization.LowArgs{Thresholds: shares{"nvidia.com/gpu": 0, "cpu": 20}, TargetThresholds: shares{"nvidia.com/gpu": 50, "cpu": 50}},
			nodes{test.Usage("n1", "cpu=6", test.Capacity("cpu=10 memory=100 pods=100 nvidia.com/gpu=0")), test.Usage("n2", "", test.Capacity("cpu=10 memory=100 pods=100 nvidia.com/gpu=4"))},
			three, []string{"n1"}, overUsed("n1", "cpu 60 % of 50 %", "a")},
		{"a part of a unit is cut off a target", utilization.LowArgs{Thresholds: shares{"pods": 10}, TargetThresholds: shares{"pods": 50}},
			nodes{test.Usage("n1", "pods=3", test.Capacity("cpu=10 memory=100 pods=5")), test.Usage("n2", "")}, three, // 2.5 may stay, so 2
			[]string{"n1"}, overUsed("n1", "pods 60 % of 50 %", "a")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestPodSelection(t *testing.T) {
	hot, cold := test.Usage("n1", "cpu=9"), test.Usage("n2", "")
	const because = "cpu 90 % of 50 %"
	p := func(name string, options ...test.PodOption) schemas.UsingPod {
		return test.Using("n1", name, "cpu=2", options...)
	}
	small := func(name string, options ...test.PodOption) schemas.UsingPod {
		return test.Using("n1", name, "cpu=100m", options...)
	}
	other := overUsed("n1", because, "a")
	other[0].Pod.Namespace = "db"
	for _, c := range []nodesCase{
		{"protected pods stay", cpu(), nodes{hot, cold}, pods{p("a", test.Protected(policy.DaemonSetPods)), p("b")}, []string{"n1"}, overUsed("n1", because, "b")},
		{"pods that have ended stay, pending ones do not", cpu(), nodes{hot, cold},
			pods{p("a", test.Phase(corev1.PodSucceeded)), p("b", test.Phase(corev1.PodFailed)), p("c", test.Phase(corev1.PodPending))}, []string{"n1"}, overUsed("n1", because, "c")},
		{"pods of other nodes stay", cpu(), nodes{hot, cold}, pods{test.Using("n2", "a", "cpu=1"), test.Using("n9", "b", "cpu=1")}, []string{"n1"}, nil},
		{"pods of namespaces that are excluded stay", cpu(func(a *utilization.LowArgs) { a.EvictableNamespaces.Exclude = []string{"web", "kube-system"} }),
			nodes{hot, cold}, pods{p("a", test.In("db")), p("b"), p("c", test.In("kube-system"))}, []string{"n1"}, other},
		{"by priority, prefer-no-eviction, quality of service, and name",
			cpu(), nodes{hot, cold}, pods{
				small("a", test.Priority(5)), small("b", test.Priority(-5)), small("c"), small("d", test.Quality(corev1.PodQOSGuaranteed)),
				small("e", test.Quality(corev1.PodQOSBestEffort)), small("f", test.ReluctantToMove()), small("h"), small("g"),
			}, []string{"n1"}, overUsed("n1", because, "e", "c", "g", "h", "d", "f", "b", "a")},
		{"a pod with unknown usage stays", cpu(kubernetes), nodes{hot, cold}, pods{test.Unmeasured(p("a")), p("b"), p("c")},
			[]string{"n1"}, overUsed("n1", because, "b", "c")},
		{"also with requests as the load", cpu(), nodes{hot, cold}, pods{test.Unmeasured(p("a")), p("b")}, []string{"n1"}, overUsed("n1", because, "b")},

		{"a pod that tolerates no taker stays", cpu(), nodes{hot, test.Usage("n2", "", test.Tainted("gpu:NoSchedule"))},
			pods{p("a"), p("b", test.ToleratingKeys("gpu")), p("c", test.ToleratingKeys("spot"))}, []string{"n1"}, overUsed("n1", because, "b")},
		{"the scheduler avoids a taint with PreferNoSchedule", cpu(), nodes{hot, test.Usage("n2", "", test.Tainted("gone:NoExecute", "soft:PreferNoSchedule"))},
			pods{p("a"), p("b", test.ToleratingKeys("soft")), p("c", test.ToleratingKeys("gone")), p("d", test.ToleratingKeys("gone", "soft"))},
			[]string{"n1"}, overUsed("n1", because, "d")},
		{"but not if the node that the pod leaves has one, too", cpu(), nodes{test.Usage("n1", "cpu=9", test.Tainted("old:PreferNoSchedule")), test.Usage("n2", "", test.Tainted("soft:PreferNoSchedule"))},
			pods{p("a"), p("b"), p("c")}, []string{"n1"}, overUsed("n1", because, "a", "b")},
		{"and not if the pod cannot return", cpu(), nodes{test.Usage("n1", "cpu=9", test.Cordoned()), test.Usage("n2", "", test.Tainted("soft:PreferNoSchedule"))},
			pods{p("a"), p("b"), p("c")}, []string{"n1"}, overUsed("n1", because, "a", "b")},
		{"one wildcard tolerates two taints", cpu(), nodes{hot, test.Usage("n2", "", test.Tainted("gpu:NoSchedule", "gone:NoExecute"))},
			pods{p("a", test.ToleratingKeys("gpu")), p("b", test.ToleratingKeys("")), p("c", test.ToleratingKeys("gpu", "gone"))}, []string{"n1"}, overUsed("n1", because, "b", "c")},
		{"one taker is enough", cpu(), nodes{hot, test.Usage("n2", "", test.Tainted("gpu:NoSchedule")), test.Usage("n3", "", test.Tainted("spot:NoSchedule"))},
			pods{p("a", test.ToleratingKeys("spot")), p("b", test.ToleratingKeys("gpu")), p("c")}, []string{"n1"}, overUsed("n1", because, "a", "b")},
		{"one taker without taints takes any", cpu(), nodes{hot, test.Usage("n2", "", test.Tainted("gpu:NoSchedule")), test.Usage("n3", "")},
			pods{p("a"), p("b")}, []string{"n1"}, overUsed("n1", because, "a", "b")},
		{"a node between the thresholds is no taker", cpu(), nodes{hot, test.Usage("n2", "", test.Tainted("gpu:NoSchedule")), test.Usage("n3", "cpu=3")},
			pods{p("a")}, []string{"n1"}, nil},

		{"no more of a node than the limit", cpu(atMost(1)), nodes{hot, test.Usage("n0", "cpu=8"), cold},
			pods{p("a"), p("b"), test.Using("n0", "c", "cpu=1"), test.Using("n0", "d", "cpu=1")}, []string{"n1", "n0"},
			slices.Concat(overUsed("n1", because, "a"), overUsed("n0", "cpu 80 % of 50 %", "c"))},
		{"a limit that is not reached", cpu(atMost(9)), nodes{hot, cold}, pods{p("a"), p("b"), p("c")}, []string{"n1"}, overUsed("n1", because, "a", "b")},
		{"a limit of none", cpu(atMost(0)), nodes{hot, cold}, pods{p("a"), p("b")}, nil, nil},
		{"staying pods do not count in the limit", cpu(atMost(1)), nodes{hot, cold}, pods{p("a", test.Protected(policy.DaemonSetPods)), test.Unmeasured(p("b")), p("c"), p("d")},
			[]string{"n1"}, overUsed("n1", because, "c")},

		{"a pod that is being deleted is gone from its node", cpu(), nodes{hot, cold}, pods{p("a"), p("b"), p("c", test.Deleted())},
			[]string{"n1"}, overUsed("n1", because, "a")},
		{"a pod that is stuck is not", cpu(), nodes{hot, cold}, pods{p("a"), p("b"), p("c", test.Stuck())}, []string{"n1"}, overUsed("n1", because, "a", "b")},
		{"and does not count in the limit", cpu(atMost(1)), nodes{hot, cold}, pods{p("a"), p("b"), p("c", test.Stuck())}, []string{"n1"}, overUsed("n1", because, "a")},
		{"and enough of them are enough", cpu(), nodes{hot, cold}, pods{p("a"), p("b", test.Deleted()), p("c", test.Deleted())}, []string{"n1"}, nil},
		{"it takes room elsewhere, before the turn of its node", cpu(), nodes{hot, test.Usage("n0", "cpu=8"), test.Usage("n2", "", test.Capacity("cpu=8 memory=100 pods=100"))},
			pods{test.Using("n0", "a", "cpu=1500m", test.Deleted()), p("b"), p("c")}, []string{"n1", "n0"}, overUsed("n1", because, "b")},
		{"it counts in the limit, protected or not", cpu(atMost(2)), nodes{hot, cold}, pods{small("a", test.Deleted(), test.Protected(policy.DaemonSetPods)), small("b"), small("c")},
			[]string{"n1"}, overUsed("n1", because, "b")},
		{"a pod with unknown usage does not block others", cpu(), nodes{hot, cold}, pods{p("a"), p("b"), p("c"), test.Unmeasured(p("d", test.Deleted()))},
			[]string{"n1"}, overUsed("n1", because, "a", "b")},
		{"one that has ended is long gone", cpu(), nodes{hot, cold}, pods{p("a"), p("b"), p("c", test.Deleted(), test.Phase(corev1.PodFailed))},
			[]string{"n1"}, overUsed("n1", because, "a", "b")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestDeviationThresholds(t *testing.T) {
	ten := func(changes ...func(*utilization.LowArgs)) utilization.LowArgs {
		a := cpu(append([]func(*utilization.LowArgs){deviation}, changes...)...)
		a.Thresholds, a.TargetThresholds = shares{"cpu": 10}, shares{"cpu": 10}
		return a
	}
	two := pods{test.Using("n1", "a", "cpu=1"), test.Using("n1", "b", "cpu=1"), test.Using("n1", "c", "cpu=1")}
	gpu := utilization.LowArgs{Thresholds: shares{"cpu": 10, "nvidia.com/gpu": 10}, TargetThresholds: shares{"cpu": 10, "nvidia.com/gpu": 10}, UseDeviationThresholds: true}
	for _, c := range []nodesCase{
		{"of all nodes", ten(), nodes{test.Usage("n1", "cpu=8"), test.Usage("n2", "cpu=5"), test.Usage("n3", "cpu=2")}, two, // mean 50: 40 to 60
			[]string{"n1"}, overUsed("n1", "cpu 80 % of 60 %", "a", "b")},
		{"of cordoned ones, too", ten(), nodes{test.Usage("n1", "cpu=8"), test.Usage("n2", "cpu=5", test.Cordoned()), test.Usage("n3", "cpu=2")}, two,
			[]string{"n1"}, overUsed("n1", "cpu 80 % of 60 %", "a", "b")},
		{"of shares, not of amounts", ten(), nodes{test.Usage("n1", "cpu=8"), test.Usage("n2", "cpu=2", test.Capacity("cpu=100 memory=100 pods=100"))}, two, // mean 41
			[]string{"n1"}, overUsed("n1", "cpu 80 % of 51 %", "a", "b", "c")},
		{"targets are filled up to the mean plus the threshold", ten(), nodes{test.Usage("n1", "cpu=9"), test.Usage("n2", "cpu=1", test.Capacity("cpu=4 memory=100 pods=100"))}, two, // mean 57.5
			[]string{"n1"}, overUsed("n1", "cpu 90 % of 67.5 %", "a")},
		{"on the edge nothing is over-used", ten(), nodes{test.Usage("n1", "cpu=6"), test.Usage("n2", "cpu=4")}, two, nil, nil},
		{"not below 0", utilization.LowArgs{Thresholds: shares{"cpu": 50}, TargetThresholds: shares{"cpu": 10}, UseDeviationThresholds: true},
			nodes{test.Usage("n1", "cpu=3"), test.Usage("n2", "")}, two, []string{"n1"}, overUsed("n1", "cpu 30 % of 25 %", "a")},
		{"not above 100", utilization.LowArgs{Thresholds: shares{"cpu": 10}, TargetThresholds: shares{"cpu": 50}, UseDeviationThresholds: true},
			nodes{test.Usage("n1", "cpu=11"), test.Usage("n2", "cpu=5")}, two, []string{"n1"}, overUsed("n1", "cpu 110 % of 100 %", "a")},
		{"nor is a node above 100 under-used, whatever the mean", utilization.LowArgs{Thresholds: shares{"cpu": 10}, TargetThresholds: shares{"cpu": 10}, UseDeviationThresholds: true},
			nodes{test.Usage("n1", "cpu=35"), test.Usage("n2", "cpu=11"), test.Usage("n3", "")}, pods{test.Using("n2", "a", "cpu=1"), test.Using("n2", "b", "cpu=1")}, // mean 153
			[]string{"n1", "n2"}, overUsed("n2", "cpu 110 % of 100 %", "a")},
		{"a threshold may be above the target then", utilization.LowArgs{Thresholds: shares{"cpu": 20}, TargetThresholds: shares{"cpu": 10}, UseDeviationThresholds: true},
			nodes{test.Usage("n1", "cpu=8"), test.Usage("n2", "cpu=2")}, two, []string{"n1"}, overUsed("n1", "cpu 80 % of 60 %", "a", "b")},
		{"the mean of a resource is over the nodes that have it", gpu, nodes{
			test.Usage("n1", "cpu=5 nvidia.com/gpu=4", test.Capacity("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")),
			test.Usage("n2", "cpu=5", test.Capacity("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")), test.Usage("n3", "cpu=5"),
		}, pods{test.Using("n1", "a", "nvidia.com/gpu=2"), test.Using("n1", "b", "nvidia.com/gpu=2")}, nil, nil}, // cpu at the mean: none is under-used
		{"nodes without the resource are under-used", utilization.LowArgs{Thresholds: shares{"nvidia.com/gpu": 10}, TargetThresholds: shares{"nvidia.com/gpu": 10}, UseDeviationThresholds: true},
			nodes{
				test.Usage("n1", "cpu=5 nvidia.com/gpu=4", test.Capacity("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")),
				test.Usage("n2", "cpu=5", test.Capacity("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")), test.Usage("n3", "cpu=5"),
			}, pods{test.Using("n1", "a", "nvidia.com/gpu=1"), test.Using("n1", "b", "nvidia.com/gpu=1"), test.Using("n1", "c", "nvidia.com/gpu=1")}, // mean 50
			[]string{"n1"}, overUsed("n1", "nvidia.com/gpu 100 % of 60 %", "a", "b")},
		{"a resource that no node has does not count", gpu, nodes{test.Usage("n1", "cpu=8"), test.Usage("n2", "cpu=2")}, two,
			[]string{"n1"}, overUsed("n1", "cpu 80 % of 60 %", "a", "b")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestPrometheusLoadWithoutPodUsage(t *testing.T) {
	hot, cold := test.Usage("n1", "MetricResource=90"), test.Usage("n2", "MetricResource=10")
	p := func(on, name string, options ...test.PodOption) schemas.UsingPod {
		return test.Unmeasured(test.Using(on, name, "", options...))
	}
	const because = "load 90 % of 50 %"
	three := pods{p("n1", "a"), p("n1", "b"), p("n1", "c")}
	for _, c := range []nodesCase{
		{"one of each node", load(), nodes{hot, test.Usage("n0", "MetricResource=60"), cold}, append(pods{p("n0", "d"), p("n0", "e")}, three...),
			[]string{"n1", "n0"}, slices.Concat(overUsed("n1", because, "a"), overUsed("n0", "load 60 % of 50 %", "d"))},
		{"or as many as the limit says, however little is left to do", load(atMost(2)), nodes{test.Usage("n1", "MetricResource=51"), cold}, three,
			[]string{"n1"}, overUsed("n1", "load 51 % of 50 %", "a", "b")},
		{"other resources do not count", load(), nodes{test.Usage("n1", "MetricResource=90 cpu=1"), test.Usage("n2", "MetricResource=10 memory=100 pods=100")}, three,
			[]string{"n1"}, overUsed("n1", because, "a")},
		{"the capacity may say it is 100", load(), nodes{test.Usage("n1", "MetricResource=90", test.Capacity("MetricResource=100")), cold}, three,
			[]string{"n1"}, overUsed("n1", because, "a")},
		{"the next one waits for the end of the one before", load(), nodes{hot, cold}, pods{p("n1", "a", test.Deleted()), p("n1", "b")}, []string{"n1"}, nil},
		{"and counts in the limit", load(atMost(2)), nodes{hot, cold}, append(pods{p("n1", "d", test.Deleted())}, three...), []string{"n1"}, overUsed("n1", because, "a")},
		{"the first that may leave", load(), nodes{hot, cold}, pods{p("n1", "a", test.Protected(policy.DaemonSetPods)), p("n1", "b", test.In("x")), p("n1", "c", test.Priority(3)), p("n1", "d")},
			[]string{"n1"}, list{test.Intent("d", "n1", "n1 is over-used: "+because)}},
		{"nothing when no node has room", load(func(a *utilization.LowArgs) { a.Thresholds = shares{schemas.LoadMetric: 50} }),
			nodes{hot, test.Usage("n2", "MetricResource=50")}, three, nil, nil},
		{"from the mean", load(deviation), nodes{test.Usage("n1", "MetricResource=100"), test.Usage("n2", "MetricResource=0"), test.Usage("n3", "")}, three, // mean 33.3
			[]string{"n1"}, overUsed("n1", "load 100 % of 83.3 %", "a")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestLowNodeUtilizationNeeds(t *testing.T) {
	basics := []corev1.ResourceName{"cpu", "memory", "pods"}
	for _, c := range []struct {
		name      string
		args      utilization.LowArgs
		load      policy.Load
		resources []corev1.ResourceName
	}{
		{"requests of the basics", cpu(), policy.Load{}, basics},
		{"basic requests and resources with a threshold", utilization.LowArgs{Thresholds: shares{"nvidia.com/gpu": 1, "cpu": 2, "ephemeral-storage": 3}},
			policy.Load{}, []corev1.ResourceName{"cpu", "ephemeral-storage", "memory", "nvidia.com/gpu", "pods"}},
		{"the load by Kubernetes", cpu(kubernetes), policy.Load{Source: policy.LoadKubernetes}, basics},
		{"the load by Kubernetes, in older words", cpu(func(a *utilization.LowArgs) {
			a.MetricsUtilization = &utilization.MetricsUtilization{MetricsServer: true}
		}),
			policy.Load{Source: policy.LoadKubernetes}, basics},
		{"the load by Prometheus, and nothing else", load(), policy.Load{Source: policy.LoadPrometheus, Query: "load"}, []corev1.ResourceName{schemas.LoadMetric}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, "load", c.args.Load(), c.load)
			expect.Equal(t, "resources", c.args.Resources(), c.resources)
			var _ policy.Gauged = c.args
		})
	}
}

func TestLowNodeUtilizationValidate(t *testing.T) {
	const names = "want cpu, memory, pods, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME, such as nvidia.com/gpu"
	metrics := func(m utilization.MetricsUtilization) utilization.LowArgs {
		return cpu(func(a *utilization.LowArgs) { a.MetricsUtilization = &m })
	}
	many := shares{"cpu": 0, "memory": 100, "pods": 1.5, "ephemeral-storage": 1, "hugepages-2Mi": 1, "example.com/a": 1}
	for _, c := range []struct {
		name string
		args utilization.LowArgs
		want []string
	}{
		{"every field, rightly", utilization.LowArgs{Thresholds: many, TargetThresholds: many, NumberOfNodes: 3, EvictableNamespaces: policy.Namespaces{Include: []string{}, Exclude: []string{"a"}}}, nil},
		{"nothing", utilization.LowArgs{}, []string{
			"thresholds: names no resource; want at least one, such as cpu: 20", "targetThresholds: names no resource; want at least one, such as cpu: 20",
		}},
		{"shares that are none", utilization.LowArgs{Thresholds: shares{"cpu": -0.1, "memory": 100.1, "pods": 1e300}, TargetThresholds: shares{"cpu": 50, "memory": 101, "pods": 1e300}}, []string{
			"thresholds[cpu]: is not a percentage, got -0.1; want a percentage from 0 to 100",
			"thresholds[memory]: is not a percentage, got 100.1; want a percentage from 0 to 100",
			"thresholds[pods]: is not a percentage, got 1e+300; want a percentage from 0 to 100",
			"targetThresholds[memory]: is not a percentage, got 101; want a percentage from 0 to 100",
			"targetThresholds[pods]: is not a percentage, got 1e+300; want a percentage from 0 to 100",
		}},
		{"resources that are none", utilization.LowArgs{Thresholds: shares{"CPU": 1, "gpu": 1, "a/b/c": 1, "MetricResource": 1}, TargetThresholds: shares{"CPU": 1, "gpu": 1, "a/b/c": 1, "MetricResource": 1}}, []string{
			"thresholds[CPU]: is not a measured resource; " + names, "thresholds[MetricResource]: is not a measured resource; " + names,
			"thresholds[a/b/c]: is not a measured resource; " + names, "thresholds[gpu]: is not a measured resource; " + names,
			"targetThresholds[CPU]: is not a measured resource; " + names, "targetThresholds[MetricResource]: is not a measured resource; " + names,
			"targetThresholds[a/b/c]: is not a measured resource; " + names, "targetThresholds[gpu]: is not a measured resource; " + names,
		}},
		{"other resources in the one than in the other", utilization.LowArgs{Thresholds: shares{"cpu": 20, "pods": 20}, TargetThresholds: shares{"cpu": 50, "memory": 50}}, []string{
			"thresholds[pods]: is not among targetThresholds; name the same resources in both", "targetThresholds[memory]: is not among thresholds; name the same resources in both",
		}},
		{"a threshold above its target", utilization.LowArgs{Thresholds: shares{"cpu": 50.5, "memory": 50}, TargetThresholds: shares{"cpu": 50, "memory": 50}},
			[]string{"thresholds[cpu]: is more than targetThresholds[cpu], got 50.5; want at most 50"}},
		{"a number of nodes below none", cpu(func(a *utilization.LowArgs) { a.NumberOfNodes = -1 }), []string{"numberOfNodes: must not be negative, got -1; 0 is any number"}},
		{"namespaces to include", cpu(func(a *utilization.LowArgs) {
			a.EvictableNamespaces = policy.Namespaces{Include: []string{"a"}, Exclude: []string{"B"}}
		}), []string{
			"evictableNamespaces.include: cannot be used by this strategy; list the other namespaces in exclude",
			`evictableNamespaces.exclude[0]: is not the name of a namespace, got "B"; write an exact name, or its beginning and a *`,
		}},

		{"the load by Kubernetes", metrics(utilization.MetricsUtilization{Source: policy.LoadKubernetes}), nil},
		{"the load by Kubernetes, in older words", metrics(utilization.MetricsUtilization{MetricsServer: true}), nil},
		{"the load by Prometheus", load(), nil},
		{"no source", metrics(utilization.MetricsUtilization{}), []string{"metricsUtilization.source: is missing; want KubernetesMetrics or Prometheus"}},
		{"no source but a query", metrics(utilization.MetricsUtilization{Prometheus: &utilization.Prometheus{Query: "a"}}),
			[]string{"metricsUtilization.source: is missing; want KubernetesMetrics or Prometheus"}},
		{"invalid source", metrics(utilization.MetricsUtilization{Source: "prometheus"}),
			[]string{`metricsUtilization.source: is not known, got "prometheus"; want KubernetesMetrics or Prometheus`}},
		{"a source in both words", metrics(utilization.MetricsUtilization{MetricsServer: true, Source: policy.LoadKubernetes}),
			[]string{"metricsUtilization.metricsServer: cannot be used together with source; keep source"}},
		{"a query without a source", metrics(utilization.MetricsUtilization{Source: policy.LoadKubernetes, Prometheus: &utilization.Prometheus{Query: "a"}}),
			[]string{"metricsUtilization.prometheus: cannot be used with KubernetesMetrics; remove prometheus, or use source: Prometheus instead"}},
		{"a query without a source, in the older form", metrics(utilization.MetricsUtilization{MetricsServer: true, Prometheus: &utilization.Prometheus{Query: "a"}}),
			[]string{"metricsUtilization.prometheus: cannot be used with KubernetesMetrics; remove prometheus, or use source: Prometheus instead"}},
		{"Prometheus without a block", load(func(a *utilization.LowArgs) { a.MetricsUtilization.Prometheus = nil }),
			[]string{"metricsUtilization.prometheus.query: is missing; write a PromQL query"}},
		{"Prometheus without a query", load(func(a *utilization.LowArgs) { a.MetricsUtilization.Prometheus = &utilization.Prometheus{Query: " "} }),
			[]string{"metricsUtilization.prometheus.query: is missing; write a PromQL query"}},
		{"Prometheus without a threshold", load(func(a *utilization.LowArgs) { a.Thresholds, a.TargetThresholds = nil, shares{} }), []string{
			"thresholds: names no resource; want at least one, such as MetricResource: 20",
			"targetThresholds: names no resource; want at least one, such as MetricResource: 20",
		}},
		{"Prometheus with another resource", load(func(a *utilization.LowArgs) {
			a.Thresholds, a.TargetThresholds = shares{"cpu": 20, schemas.LoadMetric: 20}, shares{"cpu": 50, schemas.LoadMetric: 50}
		}), []string{
			"thresholds[cpu]: is not a measured resource; want MetricResource, the only resource with a Prometheus source",
			"targetThresholds[cpu]: is not a measured resource; want MetricResource, the only resource with a Prometheus source",
		}},
		{"Kubernetes with a resource that it does not measure", func() utilization.LowArgs {
			a := cpu(kubernetes)
			a.Thresholds, a.TargetThresholds = shares{"nvidia.com/gpu": 20}, shares{"nvidia.com/gpu": 50}
			return a
		}(), []string{
			"thresholds[nvidia.com/gpu]: is not a measured resource; want cpu, memory or pods",
			"targetThresholds[nvidia.com/gpu]: is not a measured resource; want cpu, memory or pods",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Refused(t, c.args.Validate(), c.want...)
		})
	}
}
