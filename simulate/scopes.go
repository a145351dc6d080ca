package simulate

import (
	"slices"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func pods(scope schemas.Payload) []schemas.ScopedPod {
	var all []schemas.ScopedPod
	visit(scope, func(p *schemas.ScopedPod) { all = append(all, *p) })
	return all
}

// unprotected copies a scope without the protections of the pods.
func unprotected(scope schemas.Payload) schemas.Payload {
	return visit(scope, func(p *schemas.ScopedPod) { p.Protected = nil })
}

// anywhere is more than enough room.
const anywhere = 1 << 20

// fittingEverywhere copies a scope. In the copy the replacement of each pod fits on every other node, and NodeFit protects no
// pod.
func fittingEverywhere(scope schemas.Payload) schemas.Payload {
	scope = visit(scope, func(p *schemas.ScopedPod) {
		p.Protected = slices.DeleteFunc(slices.Clone(p.Protected), func(by schemas.Protection) bool {
			return by.Rule == policy.NodeFitRule
		})
		p.Elsewhere = &schemas.Elsewhere{Fits: true, Node: "another node", Preference: anywhere}
	})
	if s, ok := scope.(schemas.SpreadScope); ok {
		s.Room = slices.Clone(s.Room)
		for i := range s.Room {
			s.Room[i] = slices.Repeat([]int{anywhere}, len(s.Room[i]))
		}
		return s
	}
	return scope
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
