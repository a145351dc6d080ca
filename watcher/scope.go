package watcher

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/requests"
)

// scopes builds scopes from the caches at the moment they are asked for.
type scopes struct {
	cluster *cluster.Cache
	plan    *plan
	usable  *usableNodes
	groups  *groups
	loads   loads
	waiting *waiting // nil: nobody wants to know what waits for room
	// requests are those that are open. nil: there are none.
	requests *requests.Controller
}

// built is a scope, and when its answer can change by the passing of time alone; zero: never.
type built struct {
	scope schemas.Payload
	again time.Time
	// empty: it holds nothing that the strategy could want to move. It needs an answer only to withdraw an earlier one.
	empty bool
	// seeks is a hash of what it says about where else pods fit, which can change when pods come or go anywhere. 0: nothing.
	seeks uint64
}

// seek notes what the scope says about where else a pod fits.
func (b *built) seek(pod types.UID, where any) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %v", b.seeks, pod, where)
	b.seeks = h.Sum64() | 1
}

// later makes again the earlier one of the times that are still to come.
func (b *built) later(at, now time.Time) {
	if at.After(now) && (b.again.IsZero() || at.Before(b.again)) {
		b.again = at
	}
}

// Build returns the scope of a pending evaluation. Without a scope there is nothing to evaluate any more: the policy no
// longer has the strategy, or what the scope is about is gone.
func (s scopes) Build(p *pending, now time.Time) (built, error) {
	e, ok := s.plan.find(p.evaluation)
	if !ok {
		return built{}, nil
	}
	head := schemas.ScopeHead{
		Kind: p.kind, Key: p.key, Profile: p.profile, Strategy: p.strategy, Args: e.strategy.Args,
		Now: now.UTC(), Since: since(p.causes, now), Causes: p.causes,
	}
	switch p.kind {
	case schemas.NodeKind:
		return s.node(head, e)
	case schemas.PodKind:
		return s.pod(head, e)
	case schemas.RequestKind:
		if s.requests == nil {
			return built{}, nil
		}
		scope, again := s.requests.Build(head)
		return built{scope: scope, again: again}, nil
	}
	if e.grouped() {
		return s.group(head, e)
	}
	return built{}, fmt.Errorf("strategy %s wants a scope of kind %q, which there is not", p.strategy, p.kind)
}

// since is when the oldest cause was observed. A time that is still to come is no cause yet: something else came first.
func since(causes []schemas.Cause, now time.Time) time.Time {
	oldest := now
	for _, c := range causes {
		if c.Time.Before(oldest) {
			oldest = c.Time
		}
	}
	return oldest.UTC()
}

// node builds the scope of one node, without the taints that the policy's signals hide. A node from which nothing may be
// moved has no pods in its scope, so that what was wanted before is withdrawn.
func (s scopes) node(head schemas.ScopeHead, e enabled) (built, error) {
	node := s.cluster.Node(head.Key)
	if node == nil {
		return built{}, nil
	}
	scope := schemas.NodeScope{ScopeHead: head, Node: *node, Pods: []schemas.ScopedPod{}}
	scope.Node.Spec.Taints = s.plan.signals.Taints(node.Spec.Taints)
	pods := s.cluster.PodsOnNode(head.Key)
	if e.concerned != nil && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return e.concerned.Concerns(p, &scope.Node) }) {
		return built{scope: scope, empty: true}, nil
	}
	if s.unmovable(node) != "" {
		return built{scope: scope, empty: e.concerned != nil}, nil
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var b built
	scope.Pods = make([]schemas.ScopedPod, 0, len(pods)) // at once: a pod is a kilobyte, and growing copies them all
	for _, p := range pods {
		if schemas.Ended(p) {
			continue
		}
		pod := s.scoped(p, e, head, &b)
		if e.seeker != nil && len(pod.Protected) == 0 && e.seeker.Seeks(p, node) {
			pod.Elsewhere = s.elsewhere(p, node)
			b.seek(p.UID, *pod.Elsewhere)
		}
		scope.Pods = append(scope.Pods, pod)
	}
	b.scope = scope
	return b, nil
}

// notUsable is the rule that protects a pod on a node from which nothing may be moved.
const notUsable = policy.NodeNotUsableRule

// pod builds the scope of one pod. On a node from which nothing may be moved the pod is protected, so that what was
// wanted before is withdrawn.
func (s scopes) pod(head schemas.ScopeHead, e enabled) (built, error) {
	p := boundPod(s.cluster, head.Key)
	if p == nil {
		return built{}, nil
	}
	var b built
	scoped := s.scoped(p, e, head, &b)
	node := s.cluster.Node(p.Spec.NodeName)
	if node == nil {
		return built{}, nil
	}
	if why := s.unmovable(node); why != "" {
		scoped.Protected = append(scoped.Protected, schemas.Protection{Rule: notUsable, Detail: why})
	}
	b.scope = schemas.PodScope{ScopeHead: head, Pod: scoped}
	at, ever := e.due(p)
	if ever {
		b.later(at, head.Now)
	}
	b.empty = !ever || at.After(head.Now)
	return b, nil
}

// unmovable says why nothing may be moved from the node; empty: pods may.
func (s scopes) unmovable(n *corev1.Node) string {
	if s.usable.tooFew() {
		return "there is no second node that could take a pod"
	}
	return s.plan.unusable(n)
}
