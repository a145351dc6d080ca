package watcher

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/index"
)

// elsewhere says where else the replacement of a pod would be placed: of all other nodes that are ready the one that it
// prefers most.
func (s scopes) elsewhere(p *corev1.Pod, on *corev1.Node) *schemas.Elsewhere {
	found := schemas.Elsewhere{Here: fit.Preference(p, on)}
	s.cluster.Ask(p, func(q *fit.Question) {
		r := q.Elsewhere(fit.Search{
			Allowed: func(n *corev1.Node) bool { return !cluster.NotReady(n) && n.Name != on.Name }, Enough: math.MaxInt,
		})
		found.Fits, found.Node, found.Preference = r.OK, r.Node, r.Preference
		if !r.OK {
			found.Why = cluster.Refusal(r.Refused)
		}
	})
	return &found
}

// seeks returns a function that lists the eligible domains in which the replacement of a pod would be placed, of those with
// at least two pods fewer than the fullest, which has most. eligible are the nodes of each domain; nil: that is not asked. Pods that the scheduler cannot tell apart are asked about once.
func (s scopes) seeks(
	eligible map[string][]*corev1.Node, domains []index.Domain, most int,
) func(*corev1.Pod) []string {
	below := map[string][]*corev1.Node{}
	for _, d := range domains {
		if d.Eligible && len(d.Pods) < most-1 {
			below[d.Value] = nil
		}
	}
	if eligible == nil || len(below) == 0 {
		return func(*corev1.Pod) []string { return nil }
	}
	for value, nodes := range eligible {
		if _, isBelow := below[value]; isBelow {
			below[value] = nodes
		}
	}
	known := map[string][]string{}
	return func(p *corev1.Pod) []string {
		class := likeness(p)
		if fits, asked := known[class]; asked && class != "" {
			return fits
		}
		fits := s.fitsIn(p, below)
		known[class] = fits
		return fits
	}
}

// fitsIn lists the domains that have a node on which the replacement of a pod would be placed, sorted.
func (s scopes) fitsIn(p *corev1.Pod, domains map[string][]*corev1.Node) []string {
	var fits []string
	s.cluster.Ask(p, func(q *fit.Question) {
		for value, nodes := range domains {
			if slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return q.On(n.Name).OK }) {
				fits = append(fits, value)
			}
		}
	})
	slices.Sort(fits)
	return fits
}

// likeness is the same for pods that the scheduler cannot tell apart: replicas of one owner with the same labels that
// request the same. Empty: the pod is like no other, because of its own volumes, or because it matters which pod of them
// leaves its place.
func likeness(p *corev1.Pod) string {
	if len(p.OwnerReferences) == 0 || len(p.Spec.TopologySpreadConstraints) > 1 {
		return ""
	}
	if a := p.Spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil) {
		return ""
	}
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return ""
		}
	}
	var class strings.Builder
	class.WriteString(string(p.OwnerReferences[0].UID))
	class.WriteString(labels.Set(p.Labels).String())
	requests := index.Requests(p)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		quantity := requests[name]
		class.WriteString(string(name) + quantity.String())
	}
	return class.String()
}
