package simulate

import (
	"slices"

	"github.com/rehome-dev/rehome/schemas"
)

func pods(scope schemas.Payload) []schemas.ScopedPod {
	var all []schemas.ScopedPod
	visit(scope, func(p *schemas.ScopedPod) { all = append(all, *p) })
	return all
}

// unprotected returns a copy of a scope in which nothing protects any pod.
func unprotected(scope schemas.Payload) schemas.Payload {
	return visit(scope, func(p *schemas.ScopedPod) { p.Protected = nil })
}

// visit calls do for each pod of a copy of a scope, and returns the copy.
func visit(scope schemas.Payload, do func(*schemas.ScopedPod)) schemas.Payload {
	switch s := scope.(type) {
	case schemas.NodeScope:
		s.Pods = visited(s.Pods, do)
		return s
	case schemas.PodScope:
		do(&s.Pod)
		return s
	case schemas.WorkloadScope:
		s.Pods = visited(s.Pods, do)
		return s
	case schemas.SpreadScope:
		s.Domains = slices.Clone(s.Domains)
		for i := range s.Domains {
			s.Domains[i].Pods = visited(s.Domains[i].Pods, func(p *schemas.SpreadPod) { do(&p.ScopedPod) })
		}
		return s
	case schemas.DomainScope:
		s.Pods = visited(s.Pods, func(p *schemas.ContendingPod) { do(&p.ScopedPod) })
		return s
	case schemas.UsageScope:
		s.Pods = visited(s.Pods, func(p *schemas.UsingPod) { do(&p.ScopedPod) })
		return s
	}
	return scope
}

func visited[P any](list []P, do func(*P)) []P {
	list = slices.Clone(list)
	for i := range list {
		do(&list[i])
	}
	return list
}
