package lownodeutilization

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// amounts reads "cpu=8 memory=20".
func amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for entry := range strings.FieldsSeq(text) {
		name, amount, _ := strings.Cut(entry, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return list
}

// node has 10 CPUs, 100 bytes of memory and place for 100 pods, with changes.
func node(name, used string, changes ...func(*schemas.NodeUsage)) schemas.NodeUsage {
	n := schemas.NodeUsage{Name: name, Capacity: amounts("cpu=10 memory=100 pods=100"), Used: amounts(used)}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func cordoned(n *schemas.NodeUsage) { n.Unschedulable = true }

func with(capacity string) func(*schemas.NodeUsage) {
	return func(n *schemas.NodeUsage) { n.Capacity = amounts(capacity) }
}

// tainted reads KEY:EFFECT.
func tainted(taints ...string) func(*schemas.NodeUsage) {
	return func(n *schemas.NodeUsage) {
		for _, text := range taints {
			key, effect, _ := strings.Cut(text, ":")
			n.Taints = append(n.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
		}
	}
}

// pod is a running pod in the namespace web that nothing protects, with changes. used is what it uses besides its place.
func pod(on, name, used string, changes ...func(*schemas.UsingPod)) schemas.UsingPod {
	p := schemas.UsingPod{
		ScopedPod: schemas.ScopedPod{Pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name)},
			Spec:       corev1.PodSpec{NodeName: on},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
		}},
		Used: amounts(used + " pods=1"),
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func tolerating(keys ...string) func(*schemas.UsingPod) {
	return func(p *schemas.UsingPod) {
		for _, key := range keys {
			p.Pod.Spec.Tolerations = append(p.Pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
		}
	}
}

func in(namespace string) func(*schemas.UsingPod) {
	return func(p *schemas.UsingPod) { p.Pod.Namespace = namespace }
}

func phase(phase corev1.PodPhase) func(*schemas.UsingPod) {
	return func(p *schemas.UsingPod) { p.Pod.Status.Phase = phase }
}

func quality(class corev1.PodQOSClass) func(*schemas.UsingPod) {
	return func(p *schemas.UsingPod) { p.Pod.Status.QOSClass = class }
}

func priority(value int32) func(*schemas.UsingPod) {
	return func(p *schemas.UsingPod) { p.Pod.Spec.Priority = &value }
}

func terminating(p *schemas.UsingPod) { p.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func preferring(p *schemas.UsingPod) {
	p.Pod.Annotations = map[string]string{policy.PreferNoEviction: ""}
}

func protected(p *schemas.UsingPod) {
	p.Protected = []schemas.Protection{{Rule: policy.DaemonSetPods, Detail: "it belongs to the DaemonSet agent"}}
}

func unmeasured(p *schemas.UsingPod) { p.Used = nil }

// moves are the intents to move pods in the namespace web, each NAME, off one node.
func moves(from, reason string, names ...string) []schemas.Intent {
	var list []schemas.Intent
	for _, name := range names {
		list = append(list, schemas.Intent{
			Pod: schemas.PodRef{Namespace: "web", Name: name, UID: types.UID("uid-" + name)}, Node: from, Reason: from + " is over-used: " + reason,
		})
	}
	return list
}

func scope(nodes []schemas.NodeUsage, pods []schemas.UsingPod) schemas.UsageScope {
	return schemas.UsageScope{
		ScopeHead: schemas.ScopeHead{Kind: schemas.UsageKind, Key: "cluster", Now: time.Unix(1000, 0)}, Nodes: nodes, Pods: pods,
	}
}

type (
	shares = utilization.Thresholds
	nodes  = []schemas.NodeUsage
	pods   = []schemas.UsingPod
	list   = []schemas.Intent
)

// cpu is under-used up to 20 % and over-used above 50 %, with changes.
func cpu(changes ...func(*Args)) Args {
	a := Args{Thresholds: shares{"cpu": 20}, TargetThresholds: shares{"cpu": 50}}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func atMost(perNode uint) func(*Args) {
	return func(a *Args) { a.EvictionLimits.Node = &perNode }
}

func deviation(a *Args) { a.UseDeviationThresholds = true }

func kubernetes(a *Args) {
	a.MetricsUtilization = &MetricsUtilization{Source: policy.LoadKubernetes}
}

// load is under-used up to 20 % and over-used above 50 % of one figure from Prometheus, with changes.
func load(changes ...func(*Args)) Args {
	a := Args{
		Thresholds: shares{schemas.LoadMetric: 20}, TargetThresholds: shares{schemas.LoadMetric: 50},
		MetricsUtilization: &MetricsUtilization{Source: policy.LoadPrometheus, Prometheus: &Prometheus{Query: "load"}},
	}
	for _, change := range changes {
		change(&a)
	}
	return a
}

// nodesCase is a rule about which nodes lose pods.
type nodesCase struct {
	name    string
	args    Args
	nodes   nodes
	pods    pods
	sources []string
	want    list
}

func (c nodesCase) run(t *testing.T) {
	if err := c.args.Validate(); err != nil {
		t.Fatal(err)
	}
	s := scope(c.nodes, c.pods)
	backwards := scope(slices.Clone(c.nodes), slices.Clone(c.pods))
	slices.Reverse(backwards.Nodes)
	slices.Reverse(backwards.Pods)
	for _, args := range []Args{c.args, throughJSON(t, c.args)} {
		for _, s := range []schemas.UsageScope{s, backwards} {
			if got := args.Sources(s.Nodes); !slices.Equal(got, c.sources) {
				t.Errorf("sources: got %q, want %q", got, c.sources)
			}
			if got := args.Decide(s); !reflect.DeepEqual(got, c.want) {
				t.Errorf("with %+v:\ngot  %+v\nwant %+v", args, got, c.want)
			}
		}
	}
}

// throughJSON is what arrives of the arguments in a scope.
func throughJSON(t *testing.T, args Args) Args {
	t.Helper()
	data, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	var got Args
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, args) {
		t.Errorf("got %+v from %s, want %+v", got, data, args)
	}
	return got
}

func TestPodsLeaveNodesThatAreUsedTooMuch(t *testing.T) {
	two := pods{pod("n1", "a", "cpu=1"), pod("n1", "b", "cpu=1")}
	for _, c := range []nodesCase{
		{"until the node is not over-used any more", cpu(), nodes{node("n1", "cpu=8"), node("n2", "cpu=1")},
			pods{pod("n1", "a", "cpu=1"), pod("n1", "b", "cpu=1500m"), pod("n1", "c", "cpu=500m"), pod("n1", "d", "cpu=1")},
			[]string{"n1"}, moves("n1", "cpu 80 % of 50 %", "a", "b", "c")},
		{"a node exactly at the target is not over-used", cpu(), nodes{node("n1", "cpu=5"), node("n2", "cpu=1")}, two, nil, nil},
		{"a node a little above it is", cpu(), nodes{node("n1", "cpu=5001m"), node("n2", "cpu=1")}, two,
			[]string{"n1"}, moves("n1", "cpu 50.01 % of 50 %", "a")},
		{"a node exactly at the threshold is under-used", cpu(), nodes{node("n1", "cpu=6"), node("n2", "cpu=2")}, two,
			[]string{"n1"}, moves("n1", "cpu 60 % of 50 %", "a")},
		{"a node a little above it is not", cpu(), nodes{node("n1", "cpu=6"), node("n2", "cpu=2001m")}, two, nil, nil},
		{"a share is not rounded", cpu(), nodes{node("n1", "cpu=6"), node("n2", "cpu=2", with("cpu=9999m memory=100 pods=100"))}, two, nil, nil},

		{"a node is under-used when all its resources are",
			Args{Thresholds: shares{"cpu": 20, "memory": 20}, TargetThresholds: shares{"cpu": 50, "memory": 50}},
			nodes{node("n1", "cpu=6"), node("n2", "cpu=1 memory=21")}, two, nil, nil},
		{"a node is over-used when one of its resources is, and each that is is named",
			Args{Thresholds: shares{"cpu": 20, "memory": 20, "pods": 20}, TargetThresholds: shares{"cpu": 50, "memory": 33.3, "pods": 50}},
			nodes{node("n1", "cpu=1 memory=34 pods=51"), node("n2", "cpu=2 memory=20 pods=20")},
			pods{pod("n1", "a", "memory=1"), pod("n1", "b", "cpu=1")},
			[]string{"n1"}, moves("n1", "memory 34 % of 33.3 %, pods 51 % of 50 %", "a")},
		{"a node between the thresholds neither loses nor takes", cpu(),
			nodes{node("n1", "cpu=6"), node("n2", "cpu=3"), node("n3", "cpu=2")},
			append(pods{pod("n2", "c", "cpu=1")}, two...), []string{"n1"}, moves("n1", "cpu 60 % of 50 %", "a")},
		{"a cordoned node is not under-used", cpu(), nodes{node("n1", "cpu=6"), node("n2", "cpu=1", cordoned)}, two, nil, nil},
		{"a cordoned node can be over-used", cpu(), nodes{node("n1", "cpu=6", cordoned), node("n2", "cpu=1")}, two,
			[]string{"n1"}, moves("n1", "cpu 60 % of 50 %", "a")},

		{"no node at all", cpu(), nil, nil, nil, nil},
		{"no node is under-used", cpu(), nodes{node("n1", "cpu=6"), node("n2", "cpu=3")}, two, nil, nil},
		{"all are under-used", cpu(), nodes{node("n1", "cpu=1"), node("n2", "cpu=2")}, two, nil, nil},
		{"none is over-used", cpu(), nodes{node("n1", "cpu=4"), node("n2", "cpu=2")}, two, nil, nil},
		{"as many are under-used as may be", cpu(func(a *Args) { a.NumberOfNodes = 2 }),
			nodes{node("n1", "cpu=6"), node("n2", "cpu=2"), node("n3", "cpu=2")}, two, nil, nil},
		{"more are under-used than may be", cpu(func(a *Args) { a.NumberOfNodes = 1 }),
			nodes{node("n1", "cpu=6"), node("n2", "cpu=2"), node("n3", "cpu=2")}, two, []string{"n1"}, moves("n1", "cpu 60 % of 50 %", "a")},

		{"the highest share first, by whatever resource, and not the most bytes", cpu(), nodes{
			node("n1", "cpu=6 memory=90", with("cpu=10 memory=1000 pods=100")), node("n2", "cpu=7 memory=1"), node("n3", "cpu=6 memory=71"), node("n4", ""),
		}, pods{pod("n1", "a", "cpu=1"), pod("n2", "b", "cpu=2"), pod("n3", "c", "cpu=1")}, []string{"n3", "n2", "n1"},
			slices.Concat(moves("n3", "cpu 60 % of 50 %", "c"), moves("n2", "cpu 70 % of 50 %", "b"), moves("n1", "cpu 60 % of 50 %", "a"))},
		{"of equal shares the first by name", cpu(), nodes{node("n3", "cpu=6"), node("n2", "cpu=6"), node("n1", "cpu=1")},
			pods{pod("n3", "a", "cpu=1"), pod("n2", "b", "cpu=1")}, []string{"n2", "n3"},
			slices.Concat(moves("n2", "cpu 60 % of 50 %", "b"), moves("n3", "cpu 60 % of 50 %", "a"))},
		{"a node without pods that may leave is passed over", cpu(), nodes{node("n1", "cpu=9"), node("n2", "cpu=6"), node("n3", "")},
			pods{pod("n1", "a", "cpu=1", protected), pod("n2", "b", "cpu=1")}, []string{"n1", "n2"}, moves("n2", "cpu 60 % of 50 %", "b")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestPodsLeaveAsLongAsThereIsRoomForThem(t *testing.T) {
	three := pods{pod("n1", "a", "cpu=1 memory=10"), pod("n1", "b", "cpu=1 memory=10"), pod("n1", "c", "cpu=1 memory=10")}
	for _, c := range []nodesCase{
		{"up to the target, with the pod that fills it", cpu(), nodes{node("n1", "cpu=9"), node("n2", "cpu=1500m", with("cpu=8 memory=100 pods=100"))},
			append(pods{pod("n1", "d", "cpu=1"), pod("n1", "e", "cpu=1")}, three...),
			[]string{"n1"}, moves("n1", "cpu 90 % of 50 %", "a", "b", "c")},
		{"no room at all when it is filled exactly", cpu(), nodes{node("n1", "cpu=9"), node("n2", "cpu=1", with("cpu=6 memory=100 pods=100"))},
			three, []string{"n1"}, moves("n1", "cpu 90 % of 50 %", "a", "b")},
		{"the room of all that are under-used, together", cpu(),
			nodes{node("n1", "cpu=9"), node("n2", "", with("cpu=2 memory=50 pods=50")), node("n3", "", with("cpu=2 memory=50 pods=50"))},
			three, []string{"n1"}, moves("n1", "cpu 90 % of 50 %", "a", "b")},
		{"one room for all that are over-used", cpu(), nodes{node("n1", "cpu=8"), node("n2", "cpu=9"), node("n3", "", with("cpu=4 memory=50 pods=50"))},
			pods{pod("n1", "a", "cpu=1"), pod("n2", "b", "cpu=1500m"), pod("n2", "c", "cpu=1"), pod("n2", "d", "cpu=1")},
			[]string{"n2", "n1"}, moves("n2", "cpu 90 % of 50 %", "b", "c")},
		{"a resource without a threshold can be used up, too", cpu(), nodes{node("n1", "cpu=9"), node("n2", "memory=85")},
			three, []string{"n1"}, moves("n1", "cpu 90 % of 50 %", "a", "b")},
		{"places for pods as well", cpu(), nodes{node("n1", "cpu=9"), node("n2", "pods=98")},
			three, []string{"n1"}, moves("n1", "cpu 90 % of 50 %", "a", "b")},
		{"nothing moves when one of them is used up before", cpu(), nodes{node("n1", "cpu=9"), node("n2", "memory=100")}, three, nil, nil},
		{"nor when thresholds leave no room", Args{Thresholds: shares{"cpu": 50}, TargetThresholds: shares{"cpu": 50}},
			nodes{node("n1", "cpu=9"), node("n2", "cpu=5")}, three, nil, nil},
		{"a resource without a threshold that is promised twice keeps pods leaving", cpu(),
			nodes{node("n1", "cpu=6 memory=115"), node("n2", "")}, three, []string{"n1"}, moves("n1", "cpu 60 % of 50 %", "a", "b")},
		{"a threshold of a resource that takers lack", Args{Thresholds: shares{"cpu": 20, "nvidia.com/gpu": 20}, TargetThresholds: shares{"cpu": 50, "nvidia.com/gpu": 50}},
			nodes{node("n1", "cpu=9"), node("n2", "")}, three, nil, nil},
		{"a threshold of a resource that only takers have", Args{Thresholds: shares{"nvidia.com/gpu": 20, "cpu": 20}, TargetThresholds: shares{"nvidia.com/gpu": 50, "cpu": 50}},
			nodes{node("n1", "cpu=6"), node("n2", "", with("cpu=10 memory=100 pods=100 nvidia.com/gpu=4"))}, three,
			[]string{"n1"}, moves("n1", "cpu 60 % of 50 %", "a")},
		{"a share of a resource of which there is nothing is 0", Args{Thresholds: shares{"nvidia.com/gpu": 0, "cpu": 20}, TargetThresholds: shares{"nvidia.com/gpu": 50, "cpu": 50}},
			nodes{node("n1", "cpu=6", with("cpu=10 memory=100 pods=100 nvidia.com/gpu=0")), node("n2", "", with("cpu=10 memory=100 pods=100 nvidia.com/gpu=4"))},
			three, []string{"n1"}, moves("n1", "cpu 60 % of 50 %", "a")},
		{"a part of a unit is cut off a target", Args{Thresholds: shares{"pods": 10}, TargetThresholds: shares{"pods": 50}},
			nodes{node("n1", "pods=3", with("cpu=10 memory=100 pods=5")), node("n2", "")}, three, // 2.5 may stay, so 2
			[]string{"n1"}, moves("n1", "pods 60 % of 50 %", "a")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestWhichPodsLeave(t *testing.T) {
	hot, cold := node("n1", "cpu=9"), node("n2", "")
	const because = "cpu 90 % of 50 %"
	p := func(name string, changes ...func(*schemas.UsingPod)) schemas.UsingPod {
		return pod("n1", name, "cpu=2", changes...)
	}
	small := func(name string, changes ...func(*schemas.UsingPod)) schemas.UsingPod {
		return pod("n1", name, "cpu=100m", changes...)
	}
	other := moves("n1", because, "a")
	other[0].Pod.Namespace = "db"
	for _, c := range []nodesCase{
		{"protected pods stay", cpu(), nodes{hot, cold}, pods{p("a", protected), p("b")}, []string{"n1"}, moves("n1", because, "b")},
		{"pods that have ended stay, pending ones do not", cpu(), nodes{hot, cold},
			pods{p("a", phase(corev1.PodSucceeded)), p("b", phase(corev1.PodFailed)), p("c", phase(corev1.PodPending))}, []string{"n1"}, moves("n1", because, "c")},
		{"pods of other nodes stay", cpu(), nodes{hot, cold}, pods{pod("n2", "a", "cpu=1"), pod("n9", "b", "cpu=1")}, []string{"n1"}, nil},
		{"pods of namespaces that are excluded stay", cpu(func(a *Args) { a.EvictableNamespaces.Exclude = []string{"web", "kube-system"} }),
			nodes{hot, cold}, pods{p("a", in("db")), p("b"), p("c", in("kube-system"))}, []string{"n1"}, other},
		{"lower priority first, none before all; then lower quality of service; then those without the wish to stay; then by namespace and name",
			cpu(), nodes{hot, cold}, pods{
				small("a", priority(5)), small("b", priority(-5)), small("c"), small("d", quality(corev1.PodQOSGuaranteed)),
				small("e", quality(corev1.PodQOSBestEffort)), small("f", preferring), small("h"), small("g"),
			}, []string{"n1"}, moves("n1", because, "e", "c", "g", "h", "f", "d", "b", "a")},
		{"a pod of which the usage is not known stays", cpu(kubernetes), nodes{hot, cold}, pods{p("a", unmeasured), p("b"), p("c")},
			[]string{"n1"}, moves("n1", because, "b", "c")},
		{"also when it is asked for requests", cpu(), nodes{hot, cold}, pods{p("a", unmeasured), p("b")}, []string{"n1"}, moves("n1", because, "b")},

		{"a pod that tolerates no taker stays", cpu(), nodes{hot, node("n2", "", tainted("gpu:NoSchedule"))},
			pods{p("a"), p("b", tolerating("gpu")), p("c", tolerating("spot"))}, []string{"n1"}, moves("n1", because, "b")},
		{"NoExecute counts, PreferNoSchedule does not", cpu(), nodes{hot, node("n2", "", tainted("gone:NoExecute", "soft:PreferNoSchedule"))},
			pods{p("a"), p("b", tolerating("soft")), p("c", tolerating("gone"))}, []string{"n1"}, moves("n1", because, "c")},
		{"one wildcard tolerates two taints", cpu(), nodes{hot, node("n2", "", tainted("gpu:NoSchedule", "gone:NoExecute"))},
			pods{p("a", tolerating("gpu")), p("b", tolerating("")), p("c", tolerating("gpu", "gone"))}, []string{"n1"}, moves("n1", because, "b", "c")},
		{"one taker is enough", cpu(), nodes{hot, node("n2", "", tainted("gpu:NoSchedule")), node("n3", "", tainted("spot:NoSchedule"))},
			pods{p("a", tolerating("spot")), p("b", tolerating("gpu")), p("c")}, []string{"n1"}, moves("n1", because, "a", "b")},
		{"one taker without taints takes any", cpu(), nodes{hot, node("n2", "", tainted("gpu:NoSchedule")), node("n3", "")},
			pods{p("a"), p("b")}, []string{"n1"}, moves("n1", because, "a", "b")},
		{"a node between the thresholds is no taker", cpu(), nodes{hot, node("n2", "", tainted("gpu:NoSchedule")), node("n3", "cpu=3")},
			pods{p("a")}, []string{"n1"}, nil},

		{"no more of a node than the limit", cpu(atMost(1)), nodes{hot, node("n0", "cpu=8"), cold},
			pods{p("a"), p("b"), pod("n0", "c", "cpu=1"), pod("n0", "d", "cpu=1")}, []string{"n1", "n0"},
			slices.Concat(moves("n1", because, "a"), moves("n0", "cpu 80 % of 50 %", "c"))},
		{"a limit that is not reached", cpu(atMost(9)), nodes{hot, cold}, pods{p("a"), p("b"), p("c")}, []string{"n1"}, moves("n1", because, "a", "b")},
		{"a limit of none", cpu(atMost(0)), nodes{hot, cold}, pods{p("a"), p("b")}, nil, nil},
		{"those that stay do not count in the limit", cpu(atMost(1)), nodes{hot, cold}, pods{p("a", protected), p("b", unmeasured), p("c"), p("d")},
			[]string{"n1"}, moves("n1", because, "c")},

		{"a pod that is being deleted is gone from its node", cpu(), nodes{hot, cold}, pods{p("a"), p("b"), p("c", terminating)},
			[]string{"n1"}, moves("n1", because, "a")},
		{"and enough of them are enough", cpu(), nodes{hot, cold}, pods{p("a"), p("b", terminating), p("c", terminating)}, []string{"n1"}, nil},
		{"it takes room elsewhere, before the turn of its node", cpu(), nodes{hot, node("n0", "cpu=8"), node("n2", "", with("cpu=4 memory=100 pods=100"))},
			pods{pod("n0", "a", "cpu=1500m", terminating), p("b"), p("c")}, []string{"n1", "n0"}, moves("n1", because, "b")},
		{"it counts in the limit, protected or not", cpu(atMost(2)), nodes{hot, cold}, pods{small("a", terminating, protected), small("b"), small("c")},
			[]string{"n1"}, moves("n1", because, "b")},
		{"one of which the usage is not known holds up no other", cpu(), nodes{hot, cold}, pods{p("a"), p("b"), p("c"), p("d", unmeasured, terminating)},
			[]string{"n1"}, moves("n1", because, "a", "b")},
		{"one that has ended is long gone", cpu(), nodes{hot, cold}, pods{p("a"), p("b"), p("c", terminating, phase(corev1.PodFailed))},
			[]string{"n1"}, moves("n1", because, "a", "b")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestThresholdsCanCountFromTheMean(t *testing.T) {
	ten := func(changes ...func(*Args)) Args {
		a := cpu(append([]func(*Args){deviation}, changes...)...)
		a.Thresholds, a.TargetThresholds = shares{"cpu": 10}, shares{"cpu": 10}
		return a
	}
	two := pods{pod("n1", "a", "cpu=1"), pod("n1", "b", "cpu=1"), pod("n1", "c", "cpu=1")}
	gpu := Args{Thresholds: shares{"cpu": 10, "nvidia.com/gpu": 10}, TargetThresholds: shares{"cpu": 10, "nvidia.com/gpu": 10}, UseDeviationThresholds: true}
	for _, c := range []nodesCase{
		{"of all nodes", ten(), nodes{node("n1", "cpu=8"), node("n2", "cpu=5"), node("n3", "cpu=2")}, two, // mean 50: 40 to 60
			[]string{"n1"}, moves("n1", "cpu 80 % of 60 %", "a", "b")},
		{"of cordoned ones, too", ten(), nodes{node("n1", "cpu=8"), node("n2", "cpu=5", cordoned), node("n3", "cpu=2")}, two,
			[]string{"n1"}, moves("n1", "cpu 80 % of 60 %", "a", "b")},
		{"of shares, not of amounts", ten(), nodes{node("n1", "cpu=8"), node("n2", "cpu=2", with("cpu=100 memory=100 pods=100"))}, two, // mean 41
			[]string{"n1"}, moves("n1", "cpu 80 % of 51 %", "a", "b", "c")},
		{"takers are filled up to the mean and what is added", ten(), nodes{node("n1", "cpu=9"), node("n2", "cpu=1", with("cpu=4 memory=100 pods=100"))}, two, // mean 57.5
			[]string{"n1"}, moves("n1", "cpu 90 % of 67.5 %", "a", "b")},
		{"on the edge nothing is over-used", ten(), nodes{node("n1", "cpu=6"), node("n2", "cpu=4")}, two, nil, nil},
		{"not below 0", Args{Thresholds: shares{"cpu": 50}, TargetThresholds: shares{"cpu": 10}, UseDeviationThresholds: true},
			nodes{node("n1", "cpu=3"), node("n2", "")}, two, []string{"n1"}, moves("n1", "cpu 30 % of 25 %", "a")},
		{"not above 100", Args{Thresholds: shares{"cpu": 10}, TargetThresholds: shares{"cpu": 50}, UseDeviationThresholds: true},
			nodes{node("n1", "cpu=11"), node("n2", "cpu=5")}, two, []string{"n1"}, moves("n1", "cpu 110 % of 100 %", "a")},
		{"nor is a node above 100 under-used, whatever the mean", Args{Thresholds: shares{"cpu": 10}, TargetThresholds: shares{"cpu": 10}, UseDeviationThresholds: true},
			nodes{node("n1", "cpu=35"), node("n2", "cpu=11"), node("n3", "")}, pods{pod("n2", "a", "cpu=1"), pod("n2", "b", "cpu=1")}, // mean 153
			[]string{"n1", "n2"}, moves("n2", "cpu 110 % of 100 %", "a")},
		{"a threshold may be above the target then", Args{Thresholds: shares{"cpu": 20}, TargetThresholds: shares{"cpu": 10}, UseDeviationThresholds: true},
			nodes{node("n1", "cpu=8"), node("n2", "cpu=2")}, two, []string{"n1"}, moves("n1", "cpu 80 % of 60 %", "a", "b")},
		{"the mean of a resource is that of the nodes that have it", gpu, nodes{
			node("n1", "cpu=5 nvidia.com/gpu=4", with("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")),
			node("n2", "cpu=5", with("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")), node("n3", "cpu=5"),
		}, pods{pod("n1", "a", "nvidia.com/gpu=2"), pod("n1", "b", "nvidia.com/gpu=2")}, nil, nil}, // cpu at the mean: none is under-used
		{"of which those that lack it are under-used", Args{Thresholds: shares{"nvidia.com/gpu": 10}, TargetThresholds: shares{"nvidia.com/gpu": 10}, UseDeviationThresholds: true},
			nodes{
				node("n1", "cpu=5 nvidia.com/gpu=4", with("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")),
				node("n2", "cpu=5", with("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")), node("n3", "cpu=5"),
			}, pods{pod("n1", "a", "nvidia.com/gpu=1"), pod("n1", "b", "nvidia.com/gpu=1"), pod("n1", "c", "nvidia.com/gpu=1")}, // mean 50
			[]string{"n1"}, moves("n1", "nvidia.com/gpu 100 % of 60 %", "a", "b")},
		{"a resource that no node has does not count", gpu, nodes{node("n1", "cpu=8"), node("n2", "cpu=2")}, two, nil, nil}, // no room for it
	} {
		t.Run(c.name, c.run)
	}
}

func TestALoadFromPrometheusMovesPodsWithoutKnowingTheirs(t *testing.T) {
	hot, cold := node("n1", "MetricResource=90"), node("n2", "MetricResource=10")
	p := func(on, name string, changes ...func(*schemas.UsingPod)) schemas.UsingPod {
		return pod(on, name, "", append(changes, unmeasured)...)
	}
	const because = "load 90 % of 50 %"
	three := pods{p("n1", "a"), p("n1", "b"), p("n1", "c")}
	for _, c := range []nodesCase{
		{"one of each node", load(), nodes{hot, node("n0", "MetricResource=60"), cold}, append(pods{p("n0", "d"), p("n0", "e")}, three...),
			[]string{"n1", "n0"}, slices.Concat(moves("n1", because, "a"), moves("n0", "load 60 % of 50 %", "d"))},
		{"or as many as the limit says, however little is left to do", load(atMost(2)), nodes{node("n1", "MetricResource=51"), cold}, three,
			[]string{"n1"}, moves("n1", "load 51 % of 50 %", "a", "b")},
		{"other resources do not count", load(), nodes{node("n1", "MetricResource=90 cpu=1"), node("n2", "MetricResource=10 memory=100 pods=100")}, three,
			[]string{"n1"}, moves("n1", because, "a")},
		{"the capacity may say it is 100", load(), nodes{node("n1", "MetricResource=90", with("MetricResource=100")), cold}, three,
			[]string{"n1"}, moves("n1", because, "a")},
		{"the next one waits for the end of the one before", load(), nodes{hot, cold}, pods{p("n1", "a", terminating), p("n1", "b")}, []string{"n1"}, nil},
		{"and counts in the limit", load(atMost(2)), nodes{hot, cold}, append(pods{p("n1", "d", terminating)}, three...), []string{"n1"}, moves("n1", because, "a")},
		{"the first that may leave", load(), nodes{hot, cold}, pods{p("n1", "a", protected), p("n1", "b", in("x")), p("n1", "c", priority(3)), p("n1", "d")},
			[]string{"n1"}, list{{Pod: schemas.PodRef{Namespace: "web", Name: "d", UID: "uid-d"}, Node: "n1", Reason: "n1 is over-used: " + because}}},
		{"nothing when no node has room", load(func(a *Args) { a.Thresholds = shares{schemas.LoadMetric: 50} }),
			nodes{hot, node("n2", "MetricResource=50")}, three, nil, nil},
		{"from the mean", load(deviation), nodes{node("n1", "MetricResource=100"), node("n2", "MetricResource=0"), node("n3", "")}, three, // mean 33.3
			[]string{"n1"}, moves("n1", "load 100 % of 83.3 %", "a")},
	} {
		t.Run(c.name, c.run)
	}
}

func TestWhatIsAskedForOfTheCluster(t *testing.T) {
	basics := []corev1.ResourceName{"cpu", "memory", "pods"}
	for _, c := range []struct {
		name      string
		args      Args
		load      policy.Load
		resources []corev1.ResourceName
	}{
		{"requests of the basics", cpu(), policy.Load{}, basics},
		{"requests of the basics and what has a threshold", Args{Thresholds: shares{"nvidia.com/gpu": 1, "cpu": 2, "ephemeral-storage": 3}},
			policy.Load{}, []corev1.ResourceName{"cpu", "ephemeral-storage", "memory", "nvidia.com/gpu", "pods"}},
		{"the load by Kubernetes", cpu(kubernetes), policy.Load{Source: policy.LoadKubernetes}, basics},
		{"the load by Kubernetes, in older words", cpu(func(a *Args) { a.MetricsUtilization = &MetricsUtilization{MetricsServer: true} }),
			policy.Load{Source: policy.LoadKubernetes}, basics},
		{"the load by Prometheus, and nothing else", load(), policy.Load{Source: policy.LoadPrometheus, Query: "load"}, []corev1.ResourceName{schemas.LoadMetric}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.args.Load(); got != c.load {
				t.Errorf("load: got %+v, want %+v", got, c.load)
			}
			if got := c.args.Resources(); !slices.Equal(got, c.resources) {
				t.Errorf("resources: got %q, want %q", got, c.resources)
			}
			var _ policy.Gauged = c.args
		})
	}
}

func TestArgumentsThatMakeNoSenseAreRefused(t *testing.T) {
	const names = "want cpu, memory, pods, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME, such as nvidia.com/gpu"
	metrics := func(m MetricsUtilization) Args {
		return cpu(func(a *Args) { a.MetricsUtilization = &m })
	}
	many := shares{"cpu": 0, "memory": 100, "pods": 1.5, "ephemeral-storage": 1, "hugepages-2Mi": 1, "example.com/a": 1}
	for _, c := range []struct {
		name string
		args Args
		want []string
	}{
		{"every field, rightly", Args{Thresholds: many, TargetThresholds: many, NumberOfNodes: 3, EvictableNamespaces: policy.Namespaces{Include: []string{}, Exclude: []string{"a"}}}, nil},
		{"nothing", Args{}, []string{
			"thresholds: names no resource; want at least one, such as cpu: 20", "targetThresholds: names no resource; want at least one, such as cpu: 20",
		}},
		{"shares that are none", Args{Thresholds: shares{"cpu": -0.1, "memory": 100.1, "pods": 1e300}, TargetThresholds: shares{"cpu": 50, "memory": 101, "pods": 1e300}}, []string{
			"thresholds[cpu]: is no share of a node, got -0.1; want a percentage from 0 to 100",
			"thresholds[memory]: is no share of a node, got 100.1; want a percentage from 0 to 100",
			"thresholds[pods]: is no share of a node, got 1e+300; want a percentage from 0 to 100",
			"targetThresholds[memory]: is no share of a node, got 101; want a percentage from 0 to 100",
			"targetThresholds[pods]: is no share of a node, got 1e+300; want a percentage from 0 to 100",
		}},
		{"resources that are none", Args{Thresholds: shares{"CPU": 1, "gpu": 1, "a/b/c": 1, "MetricResource": 1}, TargetThresholds: shares{"CPU": 1, "gpu": 1, "a/b/c": 1, "MetricResource": 1}}, []string{
			"thresholds[CPU]: is not a resource that is measured; " + names, "thresholds[MetricResource]: is not a resource that is measured; " + names,
			"thresholds[a/b/c]: is not a resource that is measured; " + names, "thresholds[gpu]: is not a resource that is measured; " + names,
			"targetThresholds[CPU]: is not a resource that is measured; " + names, "targetThresholds[MetricResource]: is not a resource that is measured; " + names,
			"targetThresholds[a/b/c]: is not a resource that is measured; " + names, "targetThresholds[gpu]: is not a resource that is measured; " + names,
		}},
		{"other resources in the one than in the other", Args{Thresholds: shares{"cpu": 20, "pods": 20}, TargetThresholds: shares{"cpu": 50, "memory": 50}}, []string{
			"thresholds[pods]: is not among targetThresholds; name the same resources in both", "targetThresholds[memory]: is not among thresholds; name the same resources in both",
		}},
		{"a threshold above its target", Args{Thresholds: shares{"cpu": 50.5, "memory": 50}, TargetThresholds: shares{"cpu": 50, "memory": 50}},
			[]string{"thresholds[cpu]: is more than targetThresholds[cpu], got 50.5; want at most 50"}},
		{"a number of nodes below none", cpu(func(a *Args) { a.NumberOfNodes = -1 }), []string{"numberOfNodes: must not be negative, got -1; 0 is any number"}},
		{"namespaces to include", cpu(func(a *Args) {
			a.EvictableNamespaces = policy.Namespaces{Include: []string{"a"}, Exclude: []string{"B"}}
		}), []string{
			"evictableNamespaces.include: cannot be used by this strategy; list the other namespaces in exclude",
			`evictableNamespaces.exclude[0]: is not the name of a namespace, got "B"; write an exact name, or its beginning and a *`,
		}},

		{"the load by Kubernetes", metrics(MetricsUtilization{Source: policy.LoadKubernetes}), nil},
		{"the load by Kubernetes, in older words", metrics(MetricsUtilization{MetricsServer: true}), nil},
		{"the load by Prometheus", load(), nil},
		{"no source", metrics(MetricsUtilization{}), []string{"metricsUtilization.source: is missing; want KubernetesMetrics or Prometheus"}},
		{"no source but a query", metrics(MetricsUtilization{Prometheus: &Prometheus{Query: "a"}}),
			[]string{"metricsUtilization.source: is missing; want KubernetesMetrics or Prometheus"}},
		{"a source that is none", metrics(MetricsUtilization{Source: "prometheus"}),
			[]string{`metricsUtilization.source: is not known, got "prometheus"; want KubernetesMetrics or Prometheus`}},
		{"a source in both words", metrics(MetricsUtilization{MetricsServer: true, Source: policy.LoadKubernetes}),
			[]string{"metricsUtilization.metricsServer: cannot be used together with source; keep source"}},
		{"a query for nobody", metrics(MetricsUtilization{Source: policy.LoadKubernetes, Prometheus: &Prometheus{Query: "a"}}),
			[]string{"metricsUtilization.prometheus: is not asked; write source: Prometheus, or leave it out"}},
		{"a query for nobody, in older words", metrics(MetricsUtilization{MetricsServer: true, Prometheus: &Prometheus{Query: "a"}}),
			[]string{"metricsUtilization.prometheus: is not asked; write source: Prometheus, or leave it out"}},
		{"Prometheus without a block", load(func(a *Args) { a.MetricsUtilization.Prometheus = nil }),
			[]string{"metricsUtilization.prometheus.query: is missing; write what Prometheus is to be asked"}},
		{"Prometheus without a query", load(func(a *Args) { a.MetricsUtilization.Prometheus = &Prometheus{Query: " "} }),
			[]string{"metricsUtilization.prometheus.query: is missing; write what Prometheus is to be asked"}},
		{"Prometheus without a threshold", load(func(a *Args) { a.Thresholds, a.TargetThresholds = nil, shares{} }), []string{
			"thresholds: names no resource; want at least one, such as MetricResource: 20",
			"targetThresholds: names no resource; want at least one, such as MetricResource: 20",
		}},
		{"Prometheus with another resource", load(func(a *Args) {
			a.Thresholds, a.TargetThresholds = shares{"cpu": 20, schemas.LoadMetric: 20}, shares{"cpu": 50, schemas.LoadMetric: 50}
		}), []string{
			"thresholds[cpu]: is not a resource that is measured; want MetricResource, the only one that Prometheus is asked for",
			"targetThresholds[cpu]: is not a resource that is measured; want MetricResource, the only one that Prometheus is asked for",
		}},
		{"Kubernetes with a resource that it does not measure", func() Args {
			a := cpu(kubernetes)
			a.Thresholds, a.TargetThresholds = shares{"nvidia.com/gpu": 20}, shares{"nvidia.com/gpu": 50}
			return a
		}(), []string{
			"thresholds[nvidia.com/gpu]: is not a resource that is measured; want cpu, memory or pods",
			"targetThresholds[nvidia.com/gpu]: is not a resource that is measured; want cpu, memory or pods",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			if err := c.args.Validate(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
