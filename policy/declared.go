package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// ownArguments are those of a strategy that the policy describes: any JSON object. It begins with the defaults; what is
// read over it replaces whole fields, and a null takes one away.
type ownArguments struct {
	fields map[string]json.RawMessage
	schema *strict.Schema // nil: nobody said what is right
}

// own is how others recognise arguments of this kind.
func (a *ownArguments) own() *ownArguments { return a }

// UnmarshalJSON reads an object over the fields that there are.
func (a *ownArguments) UnmarshalJSON(data []byte) error {
	given := map[string]json.RawMessage{}
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		return errors.New("want a map")
	}
	if err := json.Unmarshal(data, &given); err != nil {
		return err
	}
	a.fields = maps.Clone(a.fields) // the defaults are those of others, too
	if a.fields == nil {
		a.fields = map[string]json.RawMessage{}
	}
	for name, value := range given {
		if string(value) == "null" {
			delete(a.fields, name)
		} else {
			a.fields[name] = value
		}
	}
	return nil
}

// MarshalJSON writes the fields in the order of their names.
func (a *ownArguments) MarshalJSON() ([]byte, error) {
	if a.fields == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(a.fields)
}

// Validate holds the fields against the schema, if there is one.
func (a *ownArguments) Validate() error { return a.schema.Validate(a.fields, strict.Whole) }

// Seeks is true for every pod of a strategy that needs to know where else pods fit.
func (*ownArguments) Seeks(*corev1.Pod, *corev1.Node) bool { return true }

// ownSpread are arguments of a strategy that decides about topology spread constraints.
type ownSpread struct{ ownArguments }

// Constraints are those of the pod that the scheduler holds to.
func (*ownSpread) Constraints(pod *corev1.Pod) []corev1.TopologySpreadConstraint {
	var found []corev1.TopologySpreadConstraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			found = append(found, c)
		}
	}
	return found
}

// NeedsRoom is true, so that the scope always says where a pod could go.
func (*ownSpread) NeedsRoom() bool { return true }

// ownUsage are arguments of a strategy that decides about what all nodes use.
type ownUsage struct{ ownArguments }

// Resources are those that every cluster counts.
func (*ownUsage) Resources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
}

// Load is what pods request.
func (*ownUsage) Load() Load { return Load{} }

// Sources are all nodes: which of them are used too much, only the strategy knows.
func (*ownUsage) Sources(nodes []schemas.NodeUsage) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return all
}

// newOwnArgs returns what makes the arguments of a strategy that decides on scopes of that kind.
func newOwnArgs(kind schemas.ScopeKind, defaults ownArguments) func() Args {
	switch kind {
	case schemas.SpreadKind:
		return func() Args { return &ownSpread{defaults} }
	case schemas.UsageKind:
		return func() Args { return &ownUsage{defaults} }
	}
	return func() Args {
		a := defaults
		return &a
	}
}
