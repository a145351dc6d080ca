package functionstest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/schemas"
)

// Amounts parses resources such as "cpu=8 memory=20".
func Amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for entry := range strings.FieldsSeq(text) {
		name, amount, _ := strings.Cut(entry, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return list
}

// UsageOption changes the usage of a node under construction.
type UsageOption = func(*schemas.NodeUsage)

// Usage returns a node with 10 CPUs, 100 bytes of memory, and 100 pods, and with these used amounts, after applying the options.
func Usage(name, used string, options ...UsageOption) schemas.NodeUsage {
	n := schemas.NodeUsage{Name: name, Capacity: Amounts("cpu=10 memory=100 pods=100"), Used: Amounts(used)}
	for _, option := range options {
		option(&n)
	}
	return n
}

// Cordoned cordons the node.
func Cordoned() UsageOption {
	return func(n *schemas.NodeUsage) { n.Unschedulable = true }
}

// Capacity sets the allocatable amounts of the node.
func Capacity(amounts string) UsageOption {
	return func(n *schemas.NodeUsage) { n.Capacity = Amounts(amounts) }
}

// Tainted adds taints, in the form of [Taint].
func Tainted(taints ...string) UsageOption {
	return func(n *schemas.NodeUsage) {
		for _, text := range taints {
			n.Taints = append(n.Taints, Taint(text))
		}
	}
}

// Using returns a [Pod] on a node with its used amounts.
func Using(node, name, used string, options ...PodOption) schemas.UsingPod {
	p := Pod(name, append([]PodOption{On(node)}, options...)...)
	return schemas.UsingPod{ScopedPod: p, Used: Amounts(used + " pods=1")}
}

// Unmeasured returns the pod without its usage.
func Unmeasured(p schemas.UsingPod) schemas.UsingPod {
	p.Used = nil
	return p
}

// MovesFrom returns the answer that moves pods of the namespace web off a node, in order, with the same reason.
func MovesFrom(node, reason string, names ...string) []schemas.Intent {
	var list []schemas.Intent
	for _, name := range names {
		list = append(list, Intent(name, node, reason))
	}
	return list
}

// Balancing is the type of the arguments of a strategy for the usage of all nodes.
type Balancing interface {
	Strategy[schemas.UsageScope]
	Sources(nodes []schemas.NodeUsage) []string
}

// Balances compares the overloaded nodes and the answer with the expected ones: for the arguments and their decoded form, and
// with nodes and pods in both orders. The arguments must be valid. An answer without intents is nil.
func Balances[A Balancing](
	t testing.TB, args A, nodes []schemas.NodeUsage, pods []schemas.UsingPod, sources []string, want []schemas.Intent,
) {
	t.Helper()
	if err := args.Validate(); err != nil {
		t.Fatal(err)
	}
	forwards := schemas.UsageScope{
		ScopeHead: schemas.ScopeHead{Kind: schemas.UsageKind, Key: "cluster", Now: time.Unix(1000, 0)},
		Nodes:     nodes, Pods: pods,
	}
	backwards := forwards
	backwards.Nodes, backwards.Pods = slices.Clone(nodes), slices.Clone(pods)
	slices.Reverse(backwards.Nodes)
	slices.Reverse(backwards.Pods)
	for _, args := range []A{args, ThroughJSON(t, args)} {
		for _, scope := range []schemas.UsageScope{forwards, backwards} {
			if got := args.Sources(scope.Nodes); !slices.Equal(got, sources) {
				t.Errorf("sources: got %q, want %q", got, sources)
			}
			if got := args.Decide(scope); !reflect.DeepEqual(got, want) {
				t.Errorf("with %+v:\ngot  %+v\nwant %+v", args, got, want)
			}
		}
	}
}
