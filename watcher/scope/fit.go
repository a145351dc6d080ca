package scope

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// hash adds a fit answer of the scope to its hash.
func (b *build) hash(pod types.UID, where any) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %v", b.FitHash, pod, where)
	b.FitHash = h.Sum64() | 1
}

// Fit is a pod with a node that has room for its replacement.
type Fit struct {
	Pod  string // NAMESPACE/NAME
	Node string // empty if the pod cannot be judged
}

// StillFit reports whether every replacement still fits on its node.
func (b *Builder) StillFit(key Key, fits []Fit) bool {
	s := b.policy.Find(key)
	if s == nil {
		return false
	}
	_, to := s.Evictor.NodeFit()
	allowed := cluster.IsTarget(to)
	return !slices.ContainsFunc(fits, func(f Fit) bool {
		p, n := BoundPod(b.cluster, f.Pod), b.cluster.Node(f.Node)
		if p == nil || n == nil || f.Node == p.Spec.NodeName || !allowed(n) {
			return true
		}
		var v fit.Verdict
		b.cluster.Ask(p, func(q *fit.Question) { v = q.On(f.Node) })
		return !v.OK
	})
}

// sharedFacts are the fit facts for the pods of one scope. If the replacement of a pod fits on a node, so do the
// replacements of all pods of its class in the same topology domains, except pods on that node.
type sharedFacts struct {
	*cluster.Cache
	fitting map[string]string // a node by class
	fits    []Fit             // all results of searches but those without a node
}

func (f *sharedFacts) Elsewhere(p *corev1.Pod, to policy.Targets) (fits, judged bool, why string) {
	class := schedulingClass(p)
	if on := f.Node(p.Spec.NodeName); on != nil && class != "" {
		for _, c := range p.Spec.TopologySpreadConstraints {
			class += "/" + on.Labels[c.TopologyKey] // the pod leaves this domain
		}
	}
	if node, known := f.fitting[class]; known && node != p.Spec.NodeName {
		return true, true, ""
	}
	result, why := f.Search(p, to)
	if class != "" && result.OK {
		f.fitting[class] = result.Node
	}
	if result.OK || !result.Judged {
		f.fits = append(f.fits, Fit{p.Namespace + "/" + p.Name, result.Node})
	}
	return result.OK, result.Judged, why
}

// elsewhere returns whether the replacement of a pod fits on another node that can take it, and where the scheduler would place
// it. The replacement of a pod in flight may have taken that room, and some pods cannot be judged. For both the result is
// the one that the pod prefers most, of those nodes whose taints and labels accept it.
func (b *build) elsewhere(p *corev1.Pod, on *corev1.Node) *schemas.Elsewhere {
	found := schemas.Elsewhere{Here: fit.Preference(p, on)}
	b.cluster.Ask(p, func(q *fit.Question) {
		to := policy.Targets{Signals: b.policy.Signals}
		s := fit.Search{Allowed: cluster.IsTarget(to), All: true, ByNode: b.isMoving(p)}
		r := q.Elsewhere(s)
		if !r.Judged {
			s.ByNode = true
			r = q.Elsewhere(s)
		}
		found.Fits, found.Node, found.Preference = r.OK, r.Node, r.Preference
		if !r.OK {
			found.Why = cluster.Refusal(r.Refused)
		} else if nodes := b.predicted(q); len(nodes) > 0 && !s.ByNode {
			node := nodes[0]
			if slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == on.Name }) {
				node = on
			}
			found.Node, found.Preference = node.Name, fit.Preference(p, node)
		}
	})
	return &found
}

// predicted returns the ready nodes with the best score for the replacement of a pod.
func (b *build) predicted(q *fit.Question) []*corev1.Node {
	return score.Predict(q, b.policy.Scheduler, cluster.IsReady)
}

// schedulingClass returns a key that is equal for pods that the scheduler treats alike: pods of one owner with the same labels
// and requests. It is empty if the pod has its own volumes, or if the removal of different pods changes its affinity differently.
func schedulingClass(p *corev1.Pod) string {
	if len(p.OwnerReferences) == 0 {
		return ""
	}
	if a := p.Spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil) {
		return ""
	}
	claims := func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }
	if slices.ContainsFunc(p.Spec.Volumes, claims) {
		return ""
	}
	var class strings.Builder
	class.WriteString(string(p.OwnerReferences[0].UID))
	class.WriteString(labels.Set(p.Labels).String())
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		quantity := requests[name]
		class.WriteString(string(name) + quantity.String())
	}
	return class.String()
}
