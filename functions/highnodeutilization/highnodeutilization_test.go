package highnodeutilization

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

func priority(value int32) func(*schemas.UsingPod) {
	return func(p *schemas.UsingPod) { p.Pod.Spec.Priority = &value }
}

func terminating(p *schemas.UsingPod) { p.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func protected(p *schemas.UsingPod) {
	p.Protected = []schemas.Protection{{Rule: policy.DaemonSetPods, Detail: "it belongs to the DaemonSet agent"}}
}

func unmeasured(p *schemas.UsingPod) { p.Used = nil }

// requesting adds a container with these requests; of an init container when init.
func requesting(requests string, init bool) func(*schemas.UsingPod) {
	return func(p *schemas.UsingPod) {
		c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: amounts(requests)}}
		if init {
			p.Pod.Spec.InitContainers = append(p.Pod.Spec.InitContainers, c)
		} else {
			p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, c)
		}
	}
}

func limited(p *schemas.UsingPod) {
	p.Pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: amounts("cpu=1")}}}
}

func wholly(p *schemas.UsingPod) {
	p.Pod.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts("cpu=1")}
}

// moves are the intents to move pods in the namespace web, each NAME, off one node.
func moves(from, reason string, names ...string) []schemas.Intent {
	var list []schemas.Intent
	for _, name := range names {
		list = append(list, schemas.Intent{
			Pod: schemas.PodRef{Namespace: "web", Name: name, UID: types.UID("uid-" + name)}, Node: from, Reason: from + " is under-used: " + reason,
		})
	}
	return list
}

func scope(nodes []schemas.NodeUsage, pods []schemas.UsingPod) schemas.UsageScope {
	return schemas.UsageScope{
		ScopeHead: schemas.ScopeHead{Kind: schemas.UsageKind, Key: "cluster", Now: time.Unix(1000, 0)}, Nodes: nodes, Pods: pods,
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

type (
	shares = utilization.Thresholds
	nodes  = []schemas.NodeUsage
	pods   = []schemas.UsingPod
	list   = []schemas.Intent
)

func TestPodsLeaveNodesThatAreHardlyUsed(t *testing.T) {
	cpu := Args{Thresholds: shares{"cpu": 20}}
	only := Args{Thresholds: shares{"cpu": 20, "nvidia.com/gpu": 10}, EvictionModes: []EvictionMode{OnlyThresholdingResources}}
	cold, warm := node("n1", "cpu=2"), node("n2", "cpu=4")
	const because = "cpu 20 % of 20 %"
	p := func(name string, changes ...func(*schemas.UsingPod)) schemas.UsingPod {
		return pod("n1", name, "cpu=1", changes...)
	}
	two := pods{p("a"), p("b")}
	db := moves("n1", because, "a")
	db[0].Pod.Namespace = "db"
	gpus := with("cpu=10 memory=100 pods=100 nvidia.com/gpu=4")
	for _, c := range []struct {
		name    string
		args    Args
		nodes   nodes
		pods    pods
		sources []string
		want    list
	}{
		{"all of them", cpu, nodes{cold, warm}, two, []string{"n1"}, moves("n1", because, "a", "b")},
		{"a node a little above the threshold is not under-used", cpu, nodes{node("n1", "cpu=2001m"), warm}, two, nil, nil},
		{"a node is under-used when all its resources are", Args{Thresholds: shares{"cpu": 20, "memory": 20}}, nodes{node("n1", "cpu=2 memory=21"), warm}, two, nil, nil},
		{"each resource is named, sorted", Args{Thresholds: shares{"pods": 5.5, "cpu": 20, "memory": 20}}, nodes{node("n1", "cpu=1 memory=10 pods=2"), warm}, two,
			[]string{"n1"}, moves("n1", "cpu 10 % of 20 %, memory 10 % of 20 %, pods 2 % of 5.5 %", "a", "b")},
		{"a resource without a threshold does not count", cpu, nodes{node("n1", "cpu=2 memory=99"), warm}, two, []string{"n1"}, moves("n1", because, "a", "b")},
		{"a cordoned node can be under-used", cpu, nodes{node("n1", "cpu=2", cordoned), warm}, two, []string{"n1"}, moves("n1", because, "a", "b")},
		{"a node that lacks a resource is under-used in it", Args{Thresholds: shares{"cpu": 20, "nvidia.com/gpu": 10}},
			nodes{cold, node("n2", "cpu=4", gpus)}, two, []string{"n1"}, moves("n1", because+", nvidia.com/gpu 0 % of 10 %", "a", "b")},

		{"no node at all", cpu, nil, nil, nil, nil},
		{"no node is under-used", cpu, nodes{node("n1", "cpu=3"), warm}, two, nil, nil},
		{"all are under-used", cpu, nodes{cold, node("n2", "")}, two, nil, nil},
		{"the others are cordoned", cpu, nodes{cold, node("n2", "cpu=4", cordoned)}, two, nil, nil},
		{"as many are under-used as may be", Args{Thresholds: shares{"cpu": 20}, NumberOfNodes: 1}, nodes{cold, warm}, two, nil, nil},
		{"more are under-used than may be", Args{Thresholds: shares{"cpu": 20}, NumberOfNodes: 1}, nodes{cold, warm, node("n3", "cpu=1", cordoned)}, two,
			[]string{"n3", "n1"}, moves("n1", because, "a", "b")},

		{"the lowest share first, of each the highest of any resource, and not the fewest bytes", cpu, nodes{
			node("n1", "memory=30"), node("n2", "cpu=2", with("cpu=10 memory=1 pods=100")), node("n3", "memory=150", with("cpu=10 memory=1000 pods=100")), warm2("n4"),
		}, pods{pod("n1", "a", ""), pod("n2", "b", ""), pod("n3", "c", "")}, []string{"n3", "n2", "n1"},
			slices.Concat(moves("n3", "cpu 0 % of 20 %", "c"), moves("n2", because, "b"), moves("n1", "cpu 0 % of 20 %", "a"))},
		{"of equal shares the first by name", cpu, nodes{node("n3", "cpu=1"), node("n1", "cpu=1"), warm}, pods{pod("n3", "a", ""), pod("n1", "b", "")},
			[]string{"n1", "n3"}, slices.Concat(moves("n1", "cpu 10 % of 20 %", "b"), moves("n3", "cpu 10 % of 20 %", "a"))},

		{"until the others are full, with the pod that fills them", cpu, nodes{cold, node("n2", "cpu=8500m")}, pods{p("a"), p("b"), p("c")},
			[]string{"n1"}, moves("n1", because, "a", "b")},
		{"no room at all when they are filled exactly", cpu, nodes{cold, node("n2", "cpu=8")}, pods{p("a"), p("b"), p("c")},
			[]string{"n1"}, moves("n1", because, "a", "b")},
		{"nothing when they are full before", cpu, nodes{cold, node("n2", "cpu=10")}, two, nil, nil},
		{"nothing when they are full of something else", cpu, nodes{cold, node("n2", "cpu=4 pods=100")}, two, nil, nil},
		{"nothing when they lack a resource", Args{Thresholds: shares{"cpu": 20, "nvidia.com/gpu": 10}}, nodes{cold, warm}, two, nil, nil},
		{"full nodes are targets as well, and those that promise too much count against the others", cpu,
			nodes{cold, node("n2", "cpu=11"), node("n3", "cpu=7")}, pods{p("a"), p("b"), p("c")}, []string{"n1"}, moves("n1", because, "a", "b")},
		{"a cordoned node is no target", cpu, nodes{cold, node("n2", "cpu=9"), node("n3", "cpu=4", cordoned)}, two, []string{"n1"}, moves("n1", because, "a")},
		{"a node that is under-used is no target", cpu, nodes{cold, node("n2", "cpu=9"), node("n3", "cpu=1", cordoned)}, two, []string{"n3", "n1"}, moves("n1", because, "a")},
		{"one room for all", cpu, nodes{cold, node("n0", "cpu=1"), node("n2", "cpu=8500m")}, append(pods{pod("n0", "c", "cpu=1")}, two...),
			[]string{"n0", "n1"}, slices.Concat(moves("n0", "cpu 10 % of 20 %", "c"), moves("n1", because, "a"))},

		{"protected pods stay", cpu, nodes{cold, warm}, pods{p("a", protected), p("b")}, []string{"n1"}, moves("n1", because, "b")},
		{"pods of which the usage is not known stay", cpu, nodes{cold, warm}, pods{p("a", unmeasured), p("b")}, []string{"n1"}, moves("n1", because, "b")},
		{"pods of namespaces that are excluded stay", Args{Thresholds: shares{"cpu": 20}, EvictableNamespaces: policy.Namespaces{Exclude: []string{"web"}}},
			nodes{cold, warm}, pods{p("a", in("db")), p("b")}, []string{"n1"}, db},
		{"lower priority first", cpu, nodes{cold, warm}, pods{p("a", priority(1)), p("b")}, []string{"n1"}, moves("n1", because, "b", "a")},
		{"pods that tolerate no target stay", cpu, nodes{cold, node("n2", "cpu=4", tainted("gpu:NoSchedule", "soft:PreferNoSchedule")), node("n3", "cpu=4", tainted("gone:NoExecute"))},
			pods{p("a"), p("b", tolerating("gpu")), p("c", tolerating("gone")), p("d", tolerating("")), p("e", tolerating("soft"))},
			[]string{"n1"}, moves("n1", because, "b", "c", "d")},
		{"a pod that is being deleted takes room", cpu, nodes{cold, node("n2", "cpu=8500m")}, pods{p("a"), p("b"), p("c", terminating)},
			[]string{"n1"}, moves("n1", because, "a")},

		{"only pods that request a resource with a threshold, when asked for", only, nodes{cold, node("n2", "cpu=4", gpus)}, pods{
			p("a"), p("b", requesting("memory=1", false)), p("c", requesting("memory=1", false), requesting("cpu=1", false)),
			p("d", requesting("nvidia.com/gpu=1", true)), p("e", requesting("cpu=0", false)), p("f", limited), p("g", wholly),
		}, []string{"n1"}, moves("n1", because+", nvidia.com/gpu 0 % of 10 %", "c", "d", "e")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.args.Validate(); err != nil {
				t.Fatal(err)
			}
			backwards := scope(slices.Clone(c.nodes), slices.Clone(c.pods))
			slices.Reverse(backwards.Nodes)
			slices.Reverse(backwards.Pods)
			for _, args := range []Args{c.args, throughJSON(t, c.args)} {
				for _, s := range []schemas.UsageScope{scope(c.nodes, c.pods), backwards} {
					if got := args.Sources(s.Nodes); !slices.Equal(got, c.sources) {
						t.Errorf("sources: got %q, want %q", got, c.sources)
					}
					if got := args.Decide(s); !reflect.DeepEqual(got, c.want) {
						t.Errorf("with %+v:\ngot  %+v\nwant %+v", args, got, c.want)
					}
				}
			}
		})
	}
}

// warm2 is a node that is not under-used and has room for everything.
func warm2(name string) schemas.NodeUsage {
	return node(name, "cpu=40", with("cpu=100 memory=10000 pods=1000"))
}

func TestWhatIsAskedForOfTheCluster(t *testing.T) {
	args := Args{Thresholds: shares{"nvidia.com/gpu": 1, "cpu": 2}}
	var gauged policy.Gauged = args
	if got, want := gauged.Load(), (policy.Load{}); got != want {
		t.Errorf("load: got %+v, want %+v", got, want)
	}
	if got, want := gauged.Resources(), []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu", "pods"}; !slices.Equal(got, want) {
		t.Errorf("resources: got %q, want %q", got, want)
	}
}

func TestArgumentsThatMakeNoSenseAreRefused(t *testing.T) {
	const names = "want cpu, memory, pods, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME, such as nvidia.com/gpu"
	for _, c := range []struct {
		name string
		args Args
		want []string
	}{
		{"every field, rightly", Args{
			Thresholds: shares{"cpu": 0, "example.com/a": 100}, NumberOfNodes: 3, EvictionModes: []EvictionMode{OnlyThresholdingResources},
			EvictableNamespaces: policy.Namespaces{Include: []string{}, Exclude: []string{"a"}},
		}, nil},
		{"nothing", Args{}, []string{"thresholds: names no resource; want at least one, such as cpu: 20"}},
		{"thresholds", Args{Thresholds: shares{"cpu": -1, "MetricResource": 1}}, []string{
			"thresholds[MetricResource]: is not a resource that is measured; " + names,
			"thresholds[cpu]: is no share of a node, got -1; want a percentage from 0 to 100",
		}},
		{"the rest", Args{
			Thresholds: shares{"cpu": 1}, NumberOfNodes: -2, EvictionModes: []EvictionMode{OnlyThresholdingResources, ""},
			EvictableNamespaces: policy.Namespaces{Include: []string{"a"}},
		}, []string{
			"numberOfNodes: must not be negative, got -2; 0 is any number",
			`evictionModes[1]: is not known, got ""; want OnlyThresholdingResources`,
			"evictableNamespaces.include: cannot be used by this strategy; list the other namespaces in exclude",
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
