package watcher

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/index"
)

// group builds the scope of a group of pods. It is empty when there is nothing that could move, or no such group any more:
// an answer to it withdraws what was wanted before. The index is read first, and then questions are asked that take long,
// such as where pods fit.
func (s scopes) group(head schemas.ScopeHead, e enabled) (built, error) {
	var b built
	s.groups.read(e, func(ix index.Index) { b.empty = s.usable.tooFew() || !ix.Has(head.Key) })
	switch e.strategy.Scope {
	case schemas.WorkloadKind:
		b.scope = s.workload(head, e, &b)
	case schemas.SpreadKind:
		b.scope = s.spread(head, e, &b)
	case schemas.DomainKind:
		b.scope = s.domain(head, e, &b)
	case schemas.UsageKind:
		b.scope = s.usage(head, e, &b)
	}
	return b, nil
}

// current is the newest state of a pod. An index may hold an older one, since not every change concerns its group.
func (s scopes) current(p *corev1.Pod) *corev1.Pod {
	if newest := s.cluster.Pod(p.Namespace, p.Name); newest != nil && newest.UID == p.UID {
		return newest
	}
	return p
}

// scoped is a pod in a scope, with what protects it. When that can end by the passing of time alone, b is to be built
// again then.
func (s scopes) scoped(p *corev1.Pod, e enabled, head schemas.ScopeHead, b *built) schemas.ScopedPod {
	b.later(e.profile.Evictor.Lapses(p, head.Now), head.Now)
	scoped := schemas.ScopedPod{Pod: *p, Protected: s.protects(e, p, head)}
	if protection, is := disrupted(p, head.Now, b); is {
		scoped.Protected = append(scoped.Protected, protection)
	}
	return scoped
}

func (s scopes) workload(head schemas.ScopeHead, e enabled, b *built) schemas.Payload {
	scope := schemas.WorkloadScope{ScopeHead: head, Pods: []schemas.ScopedPod{}, Nodes: []schemas.NodeGroup{}}
	if b.empty {
		return scope
	}
	var pods []*corev1.Pod
	var nodes map[string]*corev1.Node
	s.groups.read(e, func(ix index.Index) {
		workloads := ix.(*index.Workloads)
		pods, nodes = workloads.Pods(head.Key), maps.Clone(workloads.Nodes())
	})
	scope.Pods = make([]schemas.ScopedPod, 0, len(pods))
	for _, p := range pods {
		scope.Pods = append(scope.Pods, s.scoped(s.current(p), e, head, b))
	}
	scope.Nodes = alike(nodes, askedLabels(pods))
	return scope
}

func (s scopes) spread(head schemas.ScopeHead, e enabled, b *built) schemas.Payload {
	var constraint corev1.TopologySpreadConstraint
	var domains []index.Domain
	var eligible map[string][]*corev1.Node
	var ok bool
	s.groups.read(e, func(ix index.Index) {
		spreads := ix.(*index.Spreads)
		if constraint, domains, ok = spreads.Domains(head.Key); !b.empty && e.spreading.NeedsRoom() {
			eligible = spreads.EligibleNodes(head.Key)
		}
	})
	scope := schemas.SpreadScope{
		ScopeHead: head, Namespace: namespaceOf(head.Key), Constraint: constraint, Domains: []schemas.Domain{},
	}
	if !ok {
		scope.Constraint = corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: topologyKeyOf(head.Key), WhenUnsatisfiable: corev1.DoNotSchedule,
		}
	}
	if b.empty {
		return scope
	}
	least, most := bounds(constraint, domains)
	seek := s.seeks(eligible, domains, most)
	for _, d := range domains {
		domain := schemas.Domain{Value: d.Value, Eligible: d.Eligible, Count: len(d.Pods)}
		if len(d.Pods) > least+1 {
			for _, p := range d.Pods {
				pod := schemas.SpreadPod{ScopedPod: s.scoped(s.current(p), e, head, b)}
				if len(pod.Protected) == 0 {
					pod.Fits = seek(&pod.Pod)
					b.seek(pod.Pod.UID, pod.Fits)
				}
				domain.Pods = append(domain.Pods, pod)
			}
		}
		scope.Domains = append(scope.Domains, domain)
	}
	return scope
}

// bounds are the count of the emptiest eligible domain, which is 0 as long as there are too few of them, and that of the
// fullest one.
func bounds(c corev1.TopologySpreadConstraint, domains []index.Domain) (least, most int) {
	eligible := 0
	for _, d := range domains {
		most = max(most, len(d.Pods))
		if d.Eligible {
			if eligible == 0 || len(d.Pods) < least {
				least = len(d.Pods)
			}
			eligible++
		}
	}
	if c.MinDomains != nil && eligible < int(*c.MinDomains) {
		least = 0
	}
	return least, most
}

func (s scopes) domain(head schemas.ScopeHead, e enabled, b *built) schemas.Payload {
	scope := schemas.DomainScope{ScopeHead: head, TopologyKey: index.TopologyKey(head.Key), Pods: []schemas.ContendingPod{}}
	if b.empty {
		return scope
	}
	var contenders []index.Contender
	s.groups.read(e, func(ix index.Index) { contenders = ix.(*index.Domains).Contenders(head.Key) })
	for _, c := range contenders {
		pod := schemas.ContendingPod{ScopedPod: s.scoped(s.current(c.Pod), e, head, b)}
		for _, other := range c.Repels {
			pod.Repels = append(pod.Repels, other.UID)
		}
		scope.Pods = append(scope.Pods, pod)
	}
	return scope
}

func (s scopes) usage(head schemas.ScopeHead, e enabled, b *built) schemas.Payload {
	scope := schemas.UsageScope{ScopeHead: head, Nodes: []schemas.NodeUsage{}, Pods: []schemas.UsingPod{}}
	if b.empty {
		return scope
	}
	nodes := s.usageOfNodes(e)
	sources := e.gauged.Sources(nodes)
	if len(sources) == 0 {
		b.empty = true
		return scope
	}
	scope.Nodes = nodes
	var pods []*corev1.Pod
	s.groups.read(e, func(ix index.Index) {
		for _, name := range sources {
			pods = append(pods, ix.(*index.Usage).Pods(name)...)
		}
	})
	for _, p := range pods {
		pod := schemas.UsingPod{ScopedPod: s.scoped(s.current(p), e, head, b), Used: s.usageOfPod(e, p)}
		scope.Pods = append(scope.Pods, pod)
	}
	return scope
}
