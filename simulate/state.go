package simulate

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/schemas"
)

// State describes the objects before or after a round, in the respects that strategies improve.
type State struct {
	// Strategies are in the order of the policy.
	Strategies []StrategyState `json:"strategies"`
	// Spreads are in the order of workloads and constraints.
	Spreads []SpreadState `json:"spreads,omitempty"`
	// Nodes are in the order of their names.
	Nodes []NodeState `json:"nodes"`
	// Pending is the number of pods without a node.
	Pending int `json:"pending"`
}

// StrategyState counts the intents of one strategy, as if it had the first turn.
type StrategyState struct {
	Profile  string `json:"profile"`
	Strategy string `json:"strategy"`
	// Wanted counts the pods that should move, and Protected the pods that would move without a protection.
	Wanted    int `json:"wanted"`
	Protected int `json:"protected"`
}

// SpreadState is one topology spread constraint of a workload.
type SpreadState struct {
	// Workload is KIND NAMESPACE/NAME.
	Workload          string `json:"workload"`
	TopologyKey       string `json:"topologyKey"`
	WhenUnsatisfiable string `json:"whenUnsatisfiable"`
	MaxSkew           int    `json:"maxSkew"`
	// Skew is the difference between the fullest and the emptiest domain.
	Skew int `json:"skew"`
	// Domains is the number of pods by domain.
	Domains map[string]int `json:"domains"`
}

// NodeState summarizes the pods on a node. CPU and Memory are the requested percentages of the allocatable resources,
// rounded down.
type NodeState struct {
	Name   string `json:"name"`
	Pods   int    `json:"pods"`
	CPU    int    `json:"cpuPercent"`
	Memory int    `json:"memoryPercent"`
}

// state measures the objects of a round before it runs.
func (r *round) state() (State, error) {
	strategies, err := r.strategies()
	s := State{Strategies: strategies, Nodes: []NodeState{}}
	if err != nil {
		return s, err
	}
	used := map[string]corev1.ResourceList{}
	pods := map[string]int{}
	workloads := map[string]*corev1.Pod{}
	for _, p := range r.pods {
		switch {
		case schemas.Ended(p):
			continue
		case p.Spec.NodeName == "":
			s.Pending++
		default:
			pods[p.Spec.NodeName]++
			used[p.Spec.NodeName] = sum(used[p.Spec.NodeName], fit.Held(p))
		}
		if name := workload(p); len(p.Spec.TopologySpreadConstraints) > 0 && (workloads[name] == nil || p.Name < workloads[name].Name) {
			workloads[name] = p
		}
	}
	for _, n := range r.offline.Cluster().AllNodes(labels.Everything()) {
		requested := used[n.Name]
		s.Nodes = append(s.Nodes, NodeState{
			Name: n.Name, Pods: pods[n.Name],
			CPU:    percent(requested.Cpu(), n.Status.Allocatable.Cpu()),
			Memory: percent(requested.Memory(), n.Status.Allocatable.Memory()),
		})
	}
	slices.SortFunc(s.Nodes, func(a, b NodeState) int { return cmp.Compare(a.Name, b.Name) })
	for name, p := range workloads {
		s.Spreads = append(s.Spreads, r.spreads(name, p)...)
	}
	slices.SortStableFunc(s.Spreads, func(a, b SpreadState) int { return cmp.Compare(a.Workload, b.Workload) })
	return s, nil
}

// strategies counts the pods that each strategy wants to move.
func (r *round) strategies() ([]StrategyState, error) {
	all := []StrategyState{}
	for _, p := range r.Policy.Profiles {
		for _, e := range p.Strategies {
			entries, err := r.entries(p.Name, e.Name)
			if err != nil {
				return all, err
			}
			wanted := map[types.UID]bool{}
			of := StrategyState{Profile: p.Name, Strategy: e.Name}
			for _, w := range entries {
				switch {
				case w.verdict == nil:
					wanted[w.open.Pod.UID] = true
				case w.verdict.Reason == schemas.ReasonProtected:
					of.Protected++
				}
			}
			of.Wanted = len(wanted)
			all = append(all, of)
		}
	}
	return all, nil
}

func sum(a, b corev1.ResourceList) corev1.ResourceList {
	if a == nil {
		a = corev1.ResourceList{}
	}
	for name, quantity := range b {
		total := a[name]
		total.Add(quantity)
		a[name] = total
	}
	return a
}

func percent(used, of *resource.Quantity) int {
	if of.IsZero() {
		return 0
	}
	return int(100 * used.AsApproximateFloat64() / of.AsApproximateFloat64())
}

// spreads measures the constraints of a workload, from one of its pods.
func (r *round) spreads(workload string, p *corev1.Pod) (all []SpreadState) {
	// A pod without a node, so that all pods of the workload count.
	next := &corev1.Pod{ObjectMeta: *p.ObjectMeta.DeepCopy(), Spec: corev1.PodSpec{
		NodeSelector: p.Spec.NodeSelector, Affinity: p.Spec.Affinity, Tolerations: p.Spec.Tolerations,
		TopologySpreadConstraints: p.Spec.TopologySpreadConstraints,
	}}
	next.UID = "none"
	r.offline.Cluster().Ask(next, func(q *fit.Question) {
		for i := range next.Spec.TopologySpreadConstraints {
			c := &next.Spec.TopologySpreadConstraints[i]
			domains, emptiest, ok := q.Domains(c)
			if !ok {
				continue
			}
			of := SpreadState{
				Workload: workload, TopologyKey: c.TopologyKey, WhenUnsatisfiable: string(c.WhenUnsatisfiable),
				MaxSkew: int(c.MaxSkew), Domains: domains,
			}
			for _, n := range domains {
				of.Skew = max(of.Skew, n-emptiest)
			}
			all = append(all, of)
		}
	})
	return all
}
