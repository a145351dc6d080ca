package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// Namespaces limits a strategy to some namespaces. The zero value is all namespaces.
//
// An entry is the exact name of a namespace, or the beginning of names with a * behind it. The second is not part of the
// peer's versions of the file, under which [Parse] refuses it.
type Namespaces struct {
	// Include names the only namespaces to look at; Exclude those not to look at. At most one of them may be used.
	Include []string `json:"include,omitzero"`
	Exclude []string `json:"exclude,omitzero"`
}

// Has says whether pods of the namespace are looked at.
func (n Namespaces) Has(namespace string) bool {
	if len(n.Include) > 0 {
		return anyMatches(n.Include, namespace)
	}
	return !anyMatches(n.Exclude, namespace)
}

// anyMatches is asked for every pod of a cluster, so it compares in place.
func anyMatches(entries []string, namespace string) bool {
	for _, e := range entries {
		if e == namespace {
			return true
		}
		if last := len(e) - 1; last > 0 && e[last] == '*' && strings.HasPrefix(namespace, e[:last]) {
			return true
		}
	}
	return false
}

// Validate says what is wrong; each error in it is a *[FieldError].
func (n Namespaces) Validate() error {
	var found Findings
	if len(n.Include) > 0 && len(n.Exclude) > 0 {
		found.Add("", nil, "has both include and exclude", "keep one")
	}
	found.Join("include", validateNames(n.Include))
	found.Join("exclude", validateNames(n.Exclude))
	return found.Err()
}

func validateNames(namespaces []string) error {
	var found Findings
	for i, name := range namespaces {
		if len(validation.IsDNS1123Label(name)) > 0 && !isPattern(name) {
			found.Add(Item(i), name, "is not the name of a namespace", "write an exact name, or its beginning and a *")
		}
	}
	return found.Err()
}

// isPattern says whether an entry is the beginning of names.
func isPattern(entry string) bool {
	begin, cut := strings.CutSuffix(entry, "*")
	return cut && begin != "" && len(validation.IsDNS1123Label(begin+"x")) == 0
}

// patterns finds the patterns in the arguments of a strategy, as JSON. Each becomes an error.
func patterns(args json.RawMessage) error {
	var found Findings
	for _, field := range namespaceFields() {
		var n Namespaces
		if json.Unmarshal(strict.Object(args)[field], &n) != nil {
			continue // no such argument, or nothing that a pattern could stand in
		}
		for _, list := range []struct {
			name    string
			entries []string
		}{{"include", n.Include}, {"exclude", n.Exclude}} {
			for i, e := range list.entries {
				if isPattern(e) {
					found.Add(field+"."+list.name+Item(i), e, "is a pattern, which only "+OwnVersion+" has",
						"write exact names, or apiVersion: "+OwnVersion)
				}
			}
		}
	}
	return found.Err()
}

// namespaceFields are the arguments that are [Namespaces], by the names that the peer gave them.
func namespaceFields() []string { return []string{"namespaces", "evictableNamespaces"} }

// Selects compiles a label selector. nil, and one that [ValidateSelector] refuses, behave as in the peer: the first
// selects everything, the second nothing.
func Selects(selector *metav1.LabelSelector) labels.Selector {
	if selector == nil {
		return labels.Everything()
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return labels.Nothing()
	}
	return compiled
}

// ValidateSelector says what is wrong with a label selector, by the rules of the API server; each error in it is a
// *[FieldError]. nil is right.
func ValidateSelector(selector *metav1.LabelSelector) error {
	var found Findings
	for _, e := range metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, nil) {
		value := e.BadValue
		if value == "" || e.Type == field.ErrorTypeRequired || e.Type == field.ErrorTypeForbidden {
			value = nil // it is about whether there is a value, not about which
		}
		found.Add(e.Field, value, e.Detail, "")
	}
	return found.Err()
}

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
