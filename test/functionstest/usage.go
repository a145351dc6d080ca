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

// Amounts reads "cpu=8 memory=20".
func Amounts(text string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for entry := range strings.FieldsSeq(text) {
		name, amount, _ := strings.Cut(entry, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return list
}

// UsageOption changes the usage of a node that is being built.
type UsageOption = func(*schemas.NodeUsage)

// Usage is a node with 10 CPUs, 100 bytes of memory and place for 100 pods, and the amounts of them that are used; with
// the options applied in their order.
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

// Capacity sets the amounts that pods can have of the node.
func Capacity(amounts string) UsageOption {
	return func(n *schemas.NodeUsage) { n.Capacity = Amounts(amounts) }
}

// Tainted adds taints to the node, each as [Taint] reads it.
func Tainted(taints ...string) UsageOption {
	return func(n *schemas.NodeUsage) {
		for _, text := range taints {
			n.Taints = append(n.Taints, Taint(text))
		}
	}
}

// Using is [Pod] on a node, with the amounts that it uses besides its place.
func Using(node, name, used string, options ...PodOption) schemas.UsingPod {
	p := Pod(name, append([]PodOption{On(node)}, options...)...)
	return schemas.UsingPod{ScopedPod: p, Used: Amounts(used + " pods=1")}
}

// Unmeasured is the pod when it is not known what it uses.
func Unmeasured(p schemas.UsingPod) schemas.UsingPod {
	p.Used = nil
	return p
}

// MovesFrom is the answer that pods of the namespace web move from a node, in their order, each for the same reason.
func MovesFrom(node, reason string, names ...string) []schemas.Intent {
	var list []schemas.Intent
	for _, name := range names {
		list = append(list, Intent(name, node, reason))
	}
	return list
}

// Balancing is the arguments of a strategy that decides about the usage of all nodes.
type Balancing interface {
	Strategy[schemas.UsageScope]
	Sources(nodes []schemas.NodeUsage) []string
}

// Balances compares the nodes that are to lose pods, and the whole answer, with those that are wanted: under the
// arguments, which have to be right, and under what arrives of them; and with nodes and pods in the order that they are
// given in, and backwards. An answer of nothing is nil.
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
