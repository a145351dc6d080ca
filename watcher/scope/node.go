package scope

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// node builds the scope of one node, without the taints that the policy ignores. If pods may not leave the node, the
// scope has no pods, which withdraws an earlier answer.
func (b *build) node() {
	node := b.cluster.Node(b.head.Key)
	if node == nil {
		return
	}
	s := b.strategy
	scope := schemas.NodeScope{ScopeHead: b.head, Node: *node, Pods: []schemas.ScopedPod{}}
	scope.Node.Spec.Taints = b.policy.Signals.Taints(node.Spec.Taints)
	defer func() { b.Scope = scope }()
	pods := b.cluster.PodsOnNode(b.head.Key)
	if s.Concerned != nil && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return s.Concerned.Concerns(p, &scope.Node) }) {
		b.Empty = true
		return
	}
	if b.Unmovable(node) != "" {
		b.Empty = s.Concerned != nil
		return
	}
	slices.SortFunc(pods, byName)
	scope.Pods = make([]schemas.ScopedPod, 0, len(pods)) // allocated at once: a pod is a kilobyte, and append would copy them all
	for _, p := range pods {
		if schemas.Ended(p) {
			continue
		}
		pod := b.scoped(p)
		if s.Seeker != nil && len(pod.Protected) == 0 && s.Seeker.Seeks(p, node) {
			pod.Elsewhere = b.elsewhere(p, node)
			b.hash(p.UID, *pod.Elsewhere)
		}
		scope.Pods = append(scope.Pods, pod)
	}
}
