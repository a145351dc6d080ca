package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/simulate"
)

// NodeExplanation lists the pods of a node that cannot move now, and the reasons.
type NodeExplanation struct {
	Node string `json:"node"`
	Pods int    `json:"pods"` // on the node
	// Staying are the reasons that keep pods on the node: PodDisruptionBudgets, and rules of profiles if no profile can move the
	// pod. A pod with several reasons occurs several times.
	Staying []StayingPod `json:"staying"`
}

// StayingPod is a pod that cannot leave the node, and one reason.
type StayingPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Profile   string `json:"profile,omitempty"` // of the rule; empty if the policy has one profile, or if it is no rule
	Rule      string `json:"rule"`
	Message   string `json:"message"`
}

// Node evaluates the protections of each pod on a node of the cluster. It fails with [ErrNothing] if the cluster has neither the
// node nor a pod on it.
func Node(ctx context.Context, s Sources, name string) (NodeExplanation, error) {
	round, objects, err := s.round(ctx, time.Now())
	if err != nil {
		return NodeExplanation{}, err
	}
	return NodeOf(round, objects, name)
}

// NodeOf explains a node of the objects.
func NodeOf(round simulate.Config, objects []metav1.Object, node string) (NodeExplanation, error) {
	x := NodeExplanation{Node: node, Staying: []StayingPod{}}
	var budgets []policyv1.PodDisruptionBudget
	for _, o := range objects {
		if b, ok := o.(*policyv1.PodDisruptionBudget); ok {
			budgets = append(budgets, *b)
		}
	}
	pods, err := simulate.GuardsOn(round, objects, node)
	if err != nil {
		return x, err
	}
	isNode := func(o metav1.Object) bool { n, ok := o.(*corev1.Node); return ok && n.Name == node }
	if len(pods) == 0 && !slices.ContainsFunc(objects, isNode) {
		return x, fmt.Errorf("node %s: %w: it is not in the cluster, and no pod names it", node, ErrNothing)
	}
	x.Pods = len(pods)
	for _, p := range pods {
		add := func(profile, rule, message string) {
			x.Staying = append(x.Staying, StayingPod{p.Pod.Namespace, p.Pod.Name, profile, rule, message})
		}
		guards := p.Guards
		if slices.ContainsFunc(guards, func(g simulate.Guard) bool { return len(g.Rules) == 0 }) {
			guards = nil // this profile can move the pod
		}
		for _, g := range guards {
			profile := g.Profile
			if len(guards) == 1 {
				profile = ""
			}
			for _, r := range g.Rules {
				add(profile, r.Rule, r.Detail)
			}
		}
		over := budgetsOver(p.Pod, budgets)
		for _, b := range over {
			if b.Allowed <= 0 {
				add("", "DisruptionBudget", b.Message)
			}
		}
		if len(over) > 1 {
			add("", "DisruptionBudget", SeveralBudgets)
		}
	}
	return x, nil
}
