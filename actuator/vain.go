package actuator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// inVain says why it would change nothing for the better if the scheduler placed the replacement of the pod on a node. Empty: it would.
// It is a pure function.
func inVain(p *policy.Policy, e policy.Enabled, q *fit.Question, to *corev1.Node) string {
	own := q.Pod().Spec.NodeName
	if to.Name == own {
		return fmt.Sprintf("the scheduler would place the replacement on %s again", own)
	}
	if replicas := q.Replicas(); e.SpreadsReplicas && replicas[to.Name] >= replicas[own] {
		return fmt.Sprintf("the scheduler would place the replacement on %s, which has %d of these pods; %s would have %d",
			to.Name, replicas[to.Name], own, replicas[own])
	}
	if e.Scope != schemas.UsageKind {
		return ""
	}
	rules, err := e.ScopeRules()
	if err == nil && rules.Gauged.Load().Source == policy.LoadRequests &&
		slices.Contains(rules.Gauged.Sources(usage(p.Selector(), rules.Gauged, q, to)), to.Name) {
		return fmt.Sprintf("the scheduler would place the replacement on %s, which %s takes pods from, too", to.Name, e.Name)
	}
	return ""
}

// usage is what the pods on the selected nodes request when the replacement of the pod is on a node.
func usage(selected labels.Selector, g policy.Gauged, q *fit.Question, to *corev1.Node) (all []schemas.NodeUsage) {
	amount := func(name corev1.ResourceName, value int64) resource.Quantity {
		if name == corev1.ResourceCPU {
			return *resource.NewMilliQuantity(value, resource.DecimalSI)
		}
		return *resource.NewQuantity(value, resource.DecimalSI)
	}
	wanted := g.Resources()
	q.Usage(func(c fit.Candidate) {
		if !selected.Matches(labels.Set(c.Node.Labels)) {
			return
		}
		u := schemas.NodeUsage{
			Name: c.Node.Name, Unschedulable: c.Node.Spec.Unschedulable, Taints: c.Node.Spec.Taints,
			Capacity: corev1.ResourceList{}, Used: corev1.ResourceList{},
		}
		for _, name := range wanted {
			if capacity, has := c.Node.Status.Allocatable[name]; has {
				u.Capacity[name] = capacity
			}
			used, added := c.Requested(name), q.Requests(name)
			if name == corev1.ResourcePods {
				used, added = int64(c.Pods()), 1
			}
			if c.Node.Name == to.Name {
				used += added
			}
			u.Used[name] = amount(name, used)
		}
		all = append(all, u)
	})
	return all
}
