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

// ownArguments are the arguments of a strategy that the policy describes: any JSON object. It begins with the defaults; an object
// that is read over them replaces whole fields, and a null takes one away. It has the rules of every kind of scope.
type ownArguments struct {
	fields map[string]json.RawMessage
	schema *strict.Schema // nil: everything is right
}

// own tells arguments of this kind from others.
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
	all := map[string]json.RawMessage{}
	maps.Copy(all, a.fields) // the defaults belong to others, too
	for name, value := range given {
		if string(value) == "null" {
			delete(all, name)
		} else {
			all[name] = value
		}
	}
	a.fields = all
	return nil
}

// MarshalJSON writes the fields in the order of their names.
func (a *ownArguments) MarshalJSON() ([]byte, error) {
	if a.fields == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(a.fields)
}

// Validate checks the fields against the schema, if there is one.
func (a *ownArguments) Validate() error { return a.schema.Validate(a.fields, strict.Whole) }

// Seeks is true for every pod of a strategy with the fact [FactElsewhere].
func (*ownArguments) Seeks(*corev1.Pod, *corev1.Node) bool { return true }

// Constraints are the constraints of the pod that the scheduler enforces.
func (*ownArguments) Constraints(pod *corev1.Pod) []corev1.TopologySpreadConstraint {
	var found []corev1.TopologySpreadConstraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			found = append(found, c)
		}
	}
	return found
}

// NeedsRoom is true, so that the scope always says where a pod could go.
func (*ownArguments) NeedsRoom() bool { return true }

// Resources are the resources that every cluster counts.
func (*ownArguments) Resources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
}

// Load is the requests of pods.
func (*ownArguments) Load() Load { return Load{} }

// Sources are all nodes: only the strategy knows which of them are used too much.
func (*ownArguments) Sources(nodes []schemas.NodeUsage) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return all
}
