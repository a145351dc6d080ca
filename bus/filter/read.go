package filter

import (
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// statement has the fields of an event that filters read.
type statement struct {
	outcome, strategy, maintenance string

	about []place // at least one
}

// place is a node, a namespace, or a pod. Unknown fields are empty.
type place struct{ namespace, pod, node string }

// read reads an event. ok is false if its data is not of its type.
func read(noun string, e schemas.Event) (s statement, ok bool) {
	switch noun {
	case Delta:
		d, err := schemas.Decode[schemas.Delta](e)
		return statement{about: []place{placeOfDelta(d)}}, err == nil
	case Scope:
		h, err := schemas.Decode[schemas.ScopeHead](e)
		s = statement{strategy: h.Strategy, about: []place{placeOfScope(h.Kind, h.Key)}, maintenance: maintenanceOf(h.Kind, h.Key)}
		return s, err == nil
	case Intents:
		i, err := schemas.Decode[schemas.Intents](e)
		s = statement{strategy: i.Strategy, about: []place{placeOfScope(i.Scope.Kind, i.Scope.Key)}}
		s.maintenance = maintenanceOf(i.Scope.Kind, i.Scope.Key)
		for _, intent := range i.Intents {
			s.about = append(s.about, placeOfIntent(intent))
		}
		return s, err == nil
	case Verdict:
		v, err := schemas.Decode[schemas.Verdict](e)
		s = statement{outcome: string(v.Outcome), strategy: v.Strategy, about: []place{placeOfIntent(v.Intent)}}
		s.maintenance = maintenanceOf(v.Scope.Kind, v.Scope.Key)
		return s, err == nil
	case Maintenance:
		m, err := schemas.Decode[schemas.Maintenance](e)
		s = statement{strategy: schemas.MaintenanceStrategy, maintenance: m.Name, about: placesOfMaintenance(m)}
		return s, err == nil
	}
	return statement{}, false
}

// maintenanceOf returns the name of the maintenance of a scope, or "" for a scope of another kind.
func maintenanceOf(kind schemas.ScopeKind, key string) string {
	if kind != schemas.MaintenanceKind {
		return ""
	}
	return key
}

// placesOfMaintenance returns an empty place, the nodes of the event, and the pods that cannot move.
func placesOfMaintenance(m schemas.Maintenance) []place {
	list := []place{{}}
	for _, n := range m.Nodes {
		list = append(list, place{node: n.Name})
		for _, b := range n.Blocked {
			list = append(list, place{namespace: b.Namespace, pod: b.Name, node: n.Name})
		}
	}
	for _, name := range m.Forgotten {
		list = append(list, place{node: name})
	}
	for _, c := range m.Changes {
		list = append(list, place{node: c.Name})
	}
	return list
}

func placeOfDelta(d schemas.Delta) place {
	if d.Object.Namespace == "" {
		return place{node: d.Object.Name}
	}
	return place{namespace: d.Object.Namespace, pod: d.Object.Name, node: d.Node}
}

func placeOfIntent(i schemas.Intent) place {
	return place{namespace: i.Pod.Namespace, pod: i.Pod.Name, node: i.Node}
}

// placeOfScope reads the key of a scope.
func placeOfScope(kind schemas.ScopeKind, key string) place {
	namespace, rest, _ := strings.Cut(key, "/")
	switch kind {
	case schemas.NodeKind:
		return place{node: key}
	case schemas.PodKind:
		return place{namespace: namespace, pod: rest}
	case schemas.WorkloadKind, schemas.SpreadKind:
		return place{namespace: namespace}
	}
	return place{}
}
