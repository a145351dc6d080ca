package scope

import (
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// pod builds the scope of one pod. If pods may not leave the node, the pod is protected, which withdraws an earlier
// answer.
func (b *build) pod() {
	p := BoundPod(b.cluster, b.head.Key)
	if p == nil {
		return
	}
	node := b.cluster.Node(p.Spec.NodeName)
	if node == nil {
		return
	}
	scoped := b.scoped(p)
	if why := b.Unmovable(node); why != "" {
		scoped.Protected = append(scoped.Protected, schemas.Protection{Rule: policy.NodeNotUsableRule, Detail: why})
	}
	b.Scope = schemas.PodScope{ScopeHead: b.head, Pod: scoped}
	at, ever := b.strategy.DueTime(p)
	if ever {
		b.again(at)
	}
	b.Empty = !ever || at.After(b.head.Now)
}
