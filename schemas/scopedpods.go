package schemas

import (
	"encoding/json"
	"fmt"
)

// Scope is a scope of any kind.
type Scope interface {
	Payload
	// Head returns what all scopes have in common.
	Head() ScopeHead
	// ScopedPods are all pods that the scope lists, in its order: those that an answer to it may name.
	ScopedPods() []ScopedPod
}

// DecodeScope reads the data of e as the kind of scope that it says it is. It fails with an error that wraps [ErrInvalid]
// when e is no scope, or one of a kind that this version does not know.
func DecodeScope(e Event) (Scope, error) {
	if e.Type != ScopeType {
		return nil, fmt.Errorf("event %s: type is %q, want %q: %w", e.ID, e.Type, ScopeType, ErrInvalid)
	}
	var only struct {
		Kind ScopeKind `json:"kind"`
	}
	if err := json.Unmarshal(e.Data, &only); err != nil {
		return nil, fmt.Errorf("event %s of type %s: %w: %w", e.ID, e.Type, ErrInvalid, err)
	}
	switch only.Kind {
	case NodeKind:
		return decodeScope[NodeScope](e)
	case PodKind:
		return decodeScope[PodScope](e)
	case WorkloadKind:
		return decodeScope[WorkloadScope](e)
	case SpreadKind:
		return decodeScope[SpreadScope](e)
	case DomainKind:
		return decodeScope[DomainScope](e)
	case UsageKind:
		return decodeScope[UsageScope](e)
	}
	return nil, fmt.Errorf("event %s of type %s: kind is %q, which is not known: %w", e.ID, e.Type, only.Kind, ErrInvalid)
}

func decodeScope[S Scope](e Event) (Scope, error) {
	s, err := Decode[S](e)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ScopedPods implements [Scope].
func (s NodeScope) ScopedPods() []ScopedPod { return s.Pods }

// ScopedPods implements [Scope].
func (s PodScope) ScopedPods() []ScopedPod { return []ScopedPod{s.Pod} }

// ScopedPods implements [Scope].
func (s WorkloadScope) ScopedPods() []ScopedPod { return s.Pods }

// ScopedPods implements [Scope].
func (s SpreadScope) ScopedPods() []ScopedPod {
	var pods []ScopedPod
	for _, d := range s.Domains {
		for _, p := range d.Pods {
			pods = append(pods, p.ScopedPod)
		}
	}
	return pods
}

// ScopedPods implements [Scope].
func (s DomainScope) ScopedPods() []ScopedPod {
	var pods []ScopedPod
	for _, p := range s.Pods {
		pods = append(pods, p.ScopedPod)
	}
	return pods
}

// ScopedPods implements [Scope].
func (s UsageScope) ScopedPods() []ScopedPod {
	var pods []ScopedPod
	for _, p := range s.Pods {
		pods = append(pods, p.ScopedPod)
	}
	return pods
}
