package duplicates

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

type (
	pods = []schemas.ScopedPod
	list = []schemas.Intent
)

// replica returns a pod of the ReplicaSet api with one container, on a node.
func replica(name, node string, options ...test.PodOption) schemas.ScopedPod {
	return test.Pod(name, append([]test.PodOption{test.On(node), test.OwnedBy("ReplicaSet", "api"), test.Images("api:1")}, options...)...)
}

// alike returns a group of nodes without labels and taints.
func alike(names ...string) schemas.NodeGroup { return schemas.NodeGroup{Names: names} }

// inZone returns a group of nodes with the label zone.
func inZone(zone string, names ...string) schemas.NodeGroup {
	return schemas.NodeGroup{Labels: map[string]string{"zone": zone}, Names: names}
}

func tainted(taint string, names ...string) schemas.NodeGroup {
	return schemas.NodeGroup{Taints: []corev1.Taint{test.Taint(taint)}, Names: names}
}

func scope(nodes []schemas.NodeGroup, pods ...schemas.ScopedPod) schemas.WorkloadScope {
	return schemas.WorkloadScope{
		ScopeHead: schemas.ScopeHead{Kind: schemas.WorkloadKind, Key: "web/ReplicaSet/api", Now: time.Unix(1000, 0)},
		Pods:      pods, Nodes: nodes,
	}
}

// leaves returns the intent to move a pod of the ReplicaSet api from node-1.
func leaves(name string, here, replicas, most, feasible int) schemas.Intent {
	return leavesNode(name, "node-1", here, replicas, most, feasible)
}

func leavesNode(name, node string, here, replicas, most, feasible int) schemas.Intent {
	return test.Intent(name, node, reason(node, here, replicas, most, feasible))
}

func reason(node string, here, replicas, most, feasible int) string {
	return fmt.Sprintf("%d of %d pods of ReplicaSet api run on %s, where at most %d should: %d nodes could run them", here, replicas, node, most, feasible)
}

func toleratesGPU() test.PodOption {
	return test.Tolerating(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "gpu"})
}

type decision struct {
	name  string
	args  Args
	nodes []schemas.NodeGroup
	pods  pods
	want  list
}

func (c decision) check(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		test.Decides(t, c.args, Args{}, scope(c.nodes, c.pods...), c.want)
	})
}

func TestEvenSpread(t *testing.T) {
	two, three := []schemas.NodeGroup{alike("node-1", "node-2")}, []schemas.NodeGroup{alike("node-1", "node-2", "node-3")}
	a, b, c, d := replica("a", "node-1"), replica("b", "node-1"), replica("c", "node-1"), replica("d", "node-1")
	for _, c := range []decision{
		{"no pods", Args{}, two, nil, nil},
		{"one pod", Args{}, two, pods{a}, nil},
		{"one on each node", Args{}, two, pods{a, replica("b", "node-2")}, nil},
		{"two where one would do", Args{}, two, pods{a, b}, list{leaves("a", 2, 2, 1, 2)}},
		{"three on one of two nodes: the share is rounded up", Args{}, two, pods{a, b, c}, list{leaves("a", 3, 3, 2, 2)}},
		{"four on one of two nodes", Args{}, two, pods{a, b, c, d}, list{leaves("a", 4, 4, 2, 2), leaves("b", 4, 4, 2, 2)}},
		{"four on one of three nodes", Args{}, three, pods{a, b, c, d}, list{leaves("a", 4, 4, 2, 3), leaves("b", 4, 4, 2, 3)}},
		{"exactly the share", Args{}, two, pods{a, b, replica("c", "node-2"), replica("d", "node-2")}, nil},
		{"one more than on the other node is the share, rounded up", Args{}, two, pods{a, b, replica("c", "node-2")}, nil},
		{"two more than on the other node", Args{}, two, pods{a, b, c, replica("d", "node-2")}, list{leaves("a", 3, 4, 2, 2)}},
		{"more nodes than pods", Args{}, []schemas.NodeGroup{alike("node-1", "node-2", "node-3", "node-4", "node-5")},
			pods{a, b, c}, list{leaves("a", 3, 3, 1, 5), leaves("b", 3, 3, 1, 5)}},
		{"a node that the scope does not list is left as well", Args{}, []schemas.NodeGroup{alike("node-2", "node-3")},
			pods{a, b}, list{leaves("a", 2, 2, 1, 2)}},
		{"nodes by name, whatever the order of the pods", Args{}, []schemas.NodeGroup{alike("node-1", "node-2", "node-3", "node-4")},
			pods{replica("a", "node-2"), replica("b", "node-1"), replica("c", "node-2"), replica("d", "node-1")},
			list{leaves("b", 2, 4, 1, 4), leavesNode("a", "node-2", 2, 4, 1, 4)}},

		{"the lower priority leaves, whatever the names", Args{}, two,
			pods{replica("a", "node-1", test.Priority(5)), replica("b", "node-1", test.Priority(-5)), replica("c", "node-1")},
			list{leaves("c", 3, 3, 2, 2)}},
		{"then the lower quality of service", Args{}, two,
			pods{replica("a", "node-1"), replica("b", "node-1", test.Quality(corev1.PodQOSBestEffort))}, list{leaves("b", 2, 2, 1, 2)}},
		{"then the pod that does not mind", Args{}, two,
			pods{replica("a", "node-1", test.ReluctantToMove()), b}, list{leaves("b", 2, 2, 1, 2)}},
		{"the moves have the same order", Args{}, two,
			pods{replica("a", "node-1", test.Priority(3)), replica("b", "node-1", test.Priority(2)), replica("c", "node-1", test.Priority(1)), replica("d", "node-1", test.Priority(4))},
			list{leaves("c", 4, 4, 2, 2), leaves("b", 4, 4, 2, 2)}},
	} {
		c.check(t)
	}
}

func TestDuplicateImages(t *testing.T) {
	two := []schemas.NodeGroup{alike("node-1", "node-2")}
	with := func(name string, images ...string) schemas.ScopedPod {
		return test.Pod(name, test.OwnedBy("ReplicaSet", "api"), test.Images(images...))
	}
	for _, c := range []decision{
		{"another image", Args{}, two, pods{with("a", "api:1"), with("b", "api:2")}, nil},
		{"one image more", Args{}, two, pods{with("a", "api:1"), with("b", "api:1", "proxy")}, nil},
		{"the same image twice is not once", Args{}, two, pods{with("a", "api:1"), with("b", "api:1", "api:1")}, nil},
		{"the order of the containers does not count", Args{}, two,
			pods{with("a", "api:1", "proxy"), with("b", "proxy", "api:1")}, list{leaves("a", 2, 2, 1, 2)}},
		{"init containers do not count", Args{}, two,
			pods{replica("a", "node-1", test.InitImages("migrate:1")), replica("b", "node-1", test.InitImages("migrate:2"))}, list{leaves("a", 2, 2, 1, 2)}},
		{"pods without containers are alike", Args{}, two, pods{with("a"), with("b")}, list{leaves("a", 2, 2, 1, 2)}},
		{"each group is spread by itself, and all leave in one order", Args{}, two,
			pods{with("a", "api:2"), with("b", "api:1"), with("c", "api:2"), with("d", "api:1"), with("e", "api:2")},
			list{leaves("a", 3, 3, 2, 2), leaves("b", 2, 2, 1, 2)}},
		{"a second owner does not matter", Args{}, two,
			pods{replica("a", "node-1", test.OwnedBy("Tenant", "red")), replica("b", "node-1")}, list{leaves("a", 2, 2, 1, 2)}},
	} {
		c.check(t)
	}
}

func TestUncountedPods(t *testing.T) {
	two := []schemas.NodeGroup{alike("node-1", "node-2")}
	a, b, c := replica("a", "node-1"), replica("b", "node-1"), replica("c", "node-1")
	excluding := func(kinds ...string) Args { return Args{ExcludeOwnerKinds: kinds} }
	in := func(include, exclude []string) Args {
		return Args{Namespaces: policy.Namespaces{Include: include, Exclude: exclude}}
	}
	one := list{leaves("a", 2, 2, 1, 2)}
	for _, c := range []decision{
		{"a protected pod makes no duplicate", Args{}, two, pods{a, replica("b", "node-1", test.Protected(policy.PodsWithPVC))}, nil},
		{"a protected pod does not leave", Args{}, two, pods{replica("0", "node-1", test.Protected(policy.PodsWithPVC)), a, b}, one},
		{"a protected pod elsewhere does not raise the share", Args{}, two,
			pods{a, b, replica("c", "node-2", test.Protected(policy.PodsWithPVC)), replica("d", "node-2", test.Protected(policy.PodsWithPVC))}, one},
		{"a pod that is being deleted raises the share, since another one comes", Args{}, two,
			pods{a, b, c, replica("d", "node-1", test.Terminating())}, list{leaves("a", 3, 4, 2, 2)}},
		{"a pod that is stuck does not raise the share, since another one came", Args{}, two,
			pods{a, b, replica("c", "node-2"), replica("d", "node-2", test.Stuck())}, nil},
		{"nor do several hold up others", Args{}, two, pods{a, b, replica("c", "node-1", test.Stuck()), replica("d", "node-1", test.Stuck())}, one},
		{"a pod that is being deleted is gone from its node", Args{}, two,
			pods{a, b, replica("c", "node-1", test.Terminating()), replica("d", "node-1", test.Terminating())}, nil},
		{"a pod that is too young raises the share and does not leave", Args{}, two,
			pods{a, b, c, replica("0", "node-1", test.Protected(policy.MinPodAgeRule))}, list{leaves("a", 4, 4, 2, 2)}},
		{"a young or terminating pod with another protection is not counted", Args{}, two,
			pods{a, b, replica("c", "node-1", test.Terminating(), test.Protected(policy.PodsWithPVC)),
				replica("d", "node-1", test.Protected(policy.SignalRule), test.Protected(policy.MinPodAgeRule))}, one},
		{"a pod that has ended is not counted", Args{}, two,
			pods{a, b, replica("c", "node-1", test.Phase(corev1.PodSucceeded)), replica("d", "node-1", test.Phase(corev1.PodFailed))}, one},
		{"a pending pod is", Args{}, two, pods{a, replica("b", "node-1", test.Phase(corev1.PodPending))}, one},
		{"a pod without an owner", Args{}, two, pods{test.Pod("a", test.Images("api:1")), test.Pod("b", test.Images("api:1"))}, nil},

		{"an owner of a kind that is excluded", excluding("StatefulSet", "ReplicaSet"), two, pods{a, b}, nil},
		{"an owner of a kind that is not excluded", excluding("StatefulSet"), two, pods{a, b}, one},
		{"kinds are compared letter by letter", excluding("replicaset"), two, pods{a, b}, one},
		{"a second owner of a kind that is excluded", excluding("Tenant"), two,
			pods{a, b, replica("c", "node-1", test.OwnedBy("Tenant", "red"))}, one},
		{"a namespace that is included", in([]string{"web"}, nil), two, pods{a, b}, one},
		{"a namespace that is not included", in([]string{"db"}, nil), two, pods{a, b}, nil},
		{"a namespace that is excluded", in(nil, []string{"web"}), two, pods{a, b}, nil},
		{"a namespace that is not excluded", in(nil, []string{"db"}), two, pods{a, b}, one},
	} {
		c.check(t)
	}
}

func TestFeasibleNodes(t *testing.T) {
	const gpu, kill = "dedicated=gpu:NoSchedule", "dedicated=gpu:NoExecute"
	groups := func(groups ...schemas.NodeGroup) []schemas.NodeGroup { return groups }
	both := func(options ...test.PodOption) pods {
		return pods{replica("a", "node-1", options...), replica("b", "node-1", options...)}
	}
	one := func(feasible int) list { return list{leaves("a", 2, 2, 1, feasible)} }
	east, notANumber := fixtures.NodeTerm("zone", corev1.NodeSelectorOpIn, "east"), fixtures.NodeTerm("zone", corev1.NodeSelectorOpGt, "high")
	zones := groups(inZone("east", "node-1", "node-2"), inZone("west", "node-3", "node-4", "node-5"))
	for _, c := range []decision{
		{"one node is too few", Args{}, groups(alike("node-1")), both(), nil},
		{"no node is too few", Args{}, nil, both(), nil},
		{"nodes of several groups", Args{}, groups(alike("node-1"), inZone("east", "node-2"), inZone("west", "node-3")), both(), one(3)},

		{"a taint that is not tolerated", Args{}, groups(alike("node-1"), tainted(gpu, "node-2")), both(), nil},
		{"a taint that evicts and is not tolerated", Args{}, groups(alike("node-1"), tainted(kill, "node-2")), both(), nil},
		{"a taint that is tolerated", Args{}, groups(alike("node-1"), tainted(gpu, "node-2")), both(toleratesGPU()), one(2)},
		{"every taint has to be tolerated", Args{}, groups(alike("node-1"),
			schemas.NodeGroup{Taints: []corev1.Taint{test.Taint(gpu), test.Taint("spot:NoSchedule")}, Names: []string{"node-2"}}),
			both(toleratesGPU()), nil},
		{"a taint that a comparison of numbers tolerates", Args{}, groups(alike("node-1"), tainted("level=9:NoSchedule", "node-2")),
			both(test.Tolerating(corev1.Toleration{Key: "level", Operator: corev1.TolerationOpGt, Value: "5"})), one(2)},

		{"a node selector", Args{}, zones, both(test.Selecting("zone", "east")), one(2)},
		{"a node selector that one node matches", Args{}, groups(inZone("east", "node-1"), inZone("west", "node-2")), both(test.Selecting("zone", "east")), nil},
		{"a required node affinity", Args{}, zones, both(test.Requiring(east)), one(2)},
		{"one of the terms has to match", Args{}, zones, both(test.Requiring(east, fixtures.NodeTerm("zone", corev1.NodeSelectorOpExists))), one(5)},
		{"selector and affinity have to match", Args{}, zones, both(test.Requiring(east), test.Selecting("zone", "west")), nil},
		{"a preferred node affinity does not count", Args{}, zones, both(test.Preferring(100, east)), one(5)},
		{"an affinity without terms matches no node", Args{}, zones, both(test.Requiring()), nil},
		{"an affinity that cannot be read matches no node", Args{}, zones, both(test.Requiring(notANumber)), nil},
		{"an affinity to one node by its name", Args{}, zones, both(test.Requiring(test.Named("node-4"))), nil},
		{"an affinity to two nodes of one group by their names", Args{}, zones, both(test.Requiring(test.Named("node-4"), test.Named("node-5"))), one(2)},
		{"a name and a label of one term", Args{}, zones, both(test.Requiring(corev1.NodeSelectorTerm{
			MatchExpressions: east.MatchExpressions, MatchFields: test.Named("node-4").MatchFields}, test.Named("node-1"), test.Named("node-3"))), one(2)},

		{"the nodes of the staying pod do not count", Args{}, groups(alike("node-1", "node-2"), tainted(gpu, "node-3")),
			pods{replica("a", "node-1"), replica("b", "node-1", toleratesGPU())}, one(2)},
		{"the nodes of the leaving pod count", Args{}, groups(alike("node-1", "node-2"), tainted(gpu, "node-3")),
			pods{replica("a", "node-1", toleratesGPU()), replica("b", "node-1")}, one(3)},
		{"nodes that only one of several duplicates could use add up", Args{}, zones,
			pods{replica("a", "node-1", test.Selecting("zone", "east")), replica("b", "node-1", test.Selecting("zone", "west")),
				replica("c", "node-1")}, list{leaves("a", 3, 3, 1, 5), leaves("b", 3, 3, 1, 5)}},
		{"nodes that two duplicates could use count once", Args{}, zones,
			pods{replica("a", "node-1"), replica("b", "node-1", test.Selecting("zone", "west")), replica("c", "node-1")},
			list{leaves("a", 3, 3, 1, 5), leaves("b", 3, 3, 1, 5)}},
		{"a duplicate that fits one node only adds none", Args{}, zones,
			pods{replica("a", "node-1", test.Selecting("zone", "east")), replica("b", "node-1", test.Requiring(test.Named("node-4"))),
				replica("c", "node-1")}, list{leaves("a", 3, 3, 2, 2)}},
		{"two duplicates that fit one node each", Args{}, zones,
			pods{replica("a", "node-1", test.Requiring(test.Named("node-3"))), replica("b", "node-1", test.Requiring(test.Named("node-4"))),
				replica("c", "node-1")}, nil},
		{"duplicates of several nodes are considered together", Args{}, zones,
			pods{replica("a", "node-1", test.Selecting("zone", "east")), replica("b", "node-1"),
				replica("c", "node-3", test.Selecting("zone", "west")), replica("d", "node-3")},
			list{leaves("a", 2, 4, 1, 5), leavesNode("c", "node-3", 2, 4, 1, 5)}},
	} {
		c.check(t)
	}
}

func TestReasonOwner(t *testing.T) {
	s := scope([]schemas.NodeGroup{alike("node-1", "node-2")},
		test.Pod("a", test.OwnedBy("Set", "other"), test.OwnedBy("Rollout", "shop.blue")),
		test.Pod("b", test.OwnedBy("Rollout", "shop.blue")))
	s.Key = "web/Rollout/shop.blue"
	want := list{test.Intent("a", "node-1", "2 of 2 pods of Rollout shop.blue run on node-1, where at most 1 should: 2 nodes could run them")}
	if got := (Args{}).Decide(s); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestInvalidArguments(t *testing.T) {
	test.Refused(t, Args{}.Validate())
	test.Refused(t, Args{Namespaces: policy.Namespaces{Exclude: []string{"web"}}, ExcludeOwnerKinds: []string{"StatefulSet", "Job"}}.Validate())
	test.Refused(t, Args{
		Namespaces:        policy.Namespaces{Include: []string{"a"}, Exclude: []string{"B"}},
		ExcludeOwnerKinds: []string{"Job", "apps/v1", ""},
	}.Validate(),
		"namespaces: has both include and exclude; keep one",
		`namespaces.exclude[0]: is not the name of a namespace, got "B"; write an exact name, or its beginning and a *`,
		`excludeOwnerKinds[1]: is not a kind, got "apps/v1"; write it without its group, such as ReplicaSet`,
		`excludeOwnerKinds[2]: is not a kind, got ""; write it without its group, such as ReplicaSet`)
}

func BenchmarkDecide(b *testing.B) {
	// The default maximum of pods of a kubelet, all replicas on one node, in a cluster of a thousand nodes of ten
	// kinds.
	var crowd pods
	for i := range 110 {
		crowd = append(crowd, replica(fmt.Sprintf("api-%03d", i), "node-0000", test.Images("proxy:2"), test.Priority(int32(i%3)),
			test.Requiring(fixtures.NodeTerm("zone", corev1.NodeSelectorOpIn, "zone-1", "zone-2", "zone-3")), test.Tolerating(
				corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})))
	}
	var nodes []schemas.NodeGroup
	for i := range 1000 {
		if len(nodes) < 10 {
			nodes = append(nodes, inZone(fmt.Sprint("zone-", i)))
			if i == 1 {
				nodes[i].Taints = []corev1.Taint{test.Taint("dedicated=gpu:NoSchedule")}
			}
		}
		nodes[i%10].Names = append(nodes[i%10].Names, fmt.Sprintf("node-%04d", i))
	}
	s := scope(nodes, crowd...)
	args := Args{Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}, ExcludeOwnerKinds: []string{"StatefulSet"}}
	b.ReportAllocs()
	for b.Loop() {
		if got := args.Decide(s); len(got) != 109 {
			b.Fatalf("got %d intents, want 109", len(got))
		}
	}
}
