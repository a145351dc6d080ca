package scope

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/schemas"
)

// hash notes what the scope says about where a pod fits.
func (b *build) hash(pod types.UID, where any) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %v", b.FitHash, pod, where)
	b.FitHash = h.Sum64() | 1
}

// elsewhere says on which other ready node the replacement of a pod fits that it prefers most.
func (b *build) elsewhere(p *corev1.Pod, on *corev1.Node) *schemas.Elsewhere {
	found := schemas.Elsewhere{Here: fit.Preference(p, on)}
	b.cluster.Ask(p, func(q *fit.Question) {
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

// domainsThatFit returns a function that lists the eligible domains in which the replacement of a pod fits, of the domains with at
// least two pods fewer than the fullest. It asks once for all pods that the scheduler cannot tell apart.
func (b *build) domainsThatFit(
	eligible map[string][]*corev1.Node, domains []spreadDomain, most int,
) func(*corev1.Pod) []string {
	below := map[string][]*corev1.Node{}
	for _, d := range domains {
		if d.eligible && len(d.pods) < most-1 {
			below[d.value] = eligible[d.value]
		}
	}
	known := map[string][]string{}
	return func(p *corev1.Pod) []string {
		class := schedulingClass(p)
		if fits, asked := known[class]; asked && class != "" || len(below) == 0 {
			return fits
		}
		var fits []string
		b.cluster.Ask(p, func(q *fit.Question) {
			for value, nodes := range below {
				if slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return q.On(n.Name).OK }) {
					fits = append(fits, value)
				}
			}
		})
		slices.Sort(fits)
		known[class] = fits
		return fits
	}
}

// schedulingClass is equal for pods that the scheduler cannot tell apart: pods of one owner with the same labels and requests. Empty:
// the pod has volumes of its own, or it matters which of the pods leaves its place.
func schedulingClass(p *corev1.Pod) string {
	if len(p.OwnerReferences) == 0 || len(p.Spec.TopologySpreadConstraints) > 1 {
		return ""
	}
	if a := p.Spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil) {
		return ""
	}
	if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }) {
		return ""
	}
	var class strings.Builder
	class.WriteString(string(p.OwnerReferences[0].UID))
	class.WriteString(labels.Set(p.Labels).String())
	requests := requestsOf(p)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		quantity := requests[name]
		class.WriteString(string(name) + quantity.String())
	}
	return class.String()
}
