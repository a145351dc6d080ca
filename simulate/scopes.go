package simulate

import (
	"slices"

	"github.com/rehome-dev/rehome/schemas"
)

// pods are those that a scope lists.
func pods(scope schemas.Payload) []schemas.ScopedPod {
	var all []schemas.ScopedPod
	switch s := scope.(type) {
	case schemas.NodeScope:
		return s.Pods
	case schemas.PodScope:
		return []schemas.ScopedPod{s.Pod}
	case schemas.WorkloadScope:
		return s.Pods
	case schemas.SpreadScope:
		for _, d := range s.Domains {
			for i := range d.Pods {
				all = append(all, d.Pods[i].ScopedPod)
			}
		}
	case schemas.DomainScope:
		for i := range s.Pods {
			all = append(all, s.Pods[i].ScopedPod)
		}
	case schemas.UsageScope:
		for i := range s.Pods {
			all = append(all, s.Pods[i].ScopedPod)
		}
	}
	return all
}

// unprotected is a scope in which nothing protects any pod. The scope itself is not changed.
func unprotected(scope schemas.Payload) schemas.Payload {
	switch s := scope.(type) {
	case schemas.NodeScope:
		s.Pods = bare(s.Pods)
		return s
	case schemas.PodScope:
		s.Pod.Protected = nil
		return s
	case schemas.WorkloadScope:
		s.Pods = bare(s.Pods)
		return s
	case schemas.SpreadScope:
		s.Domains = slices.Clone(s.Domains)
		for i := range s.Domains {
			s.Domains[i].Pods = slices.Clone(s.Domains[i].Pods)
			for j := range s.Domains[i].Pods {
				s.Domains[i].Pods[j].Protected = nil
			}
		}
		return s
	case schemas.DomainScope:
		s.Pods = slices.Clone(s.Pods)
		for i := range s.Pods {
			s.Pods[i].Protected = nil
		}
		return s
	case schemas.UsageScope:
		s.Pods = slices.Clone(s.Pods)
		for i := range s.Pods {
			s.Pods[i].Protected = nil
		}
		return s
	}
	return scope
}

func bare(list []schemas.ScopedPod) []schemas.ScopedPod {
	list = slices.Clone(list)
	for i := range list {
		list[i].Protected = nil
	}
	return list
}
