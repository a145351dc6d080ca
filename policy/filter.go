package policy

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Namespaces limits a strategy to some namespaces, by their exact names. The zero value is all namespaces.
type Namespaces struct {
	// Include names the only namespaces to look at; Exclude those not to look at. At most one of them may be used.
	Include []string `json:"include,omitzero"`
	Exclude []string `json:"exclude,omitzero"`
}

// Has says whether pods of the namespace are looked at.
func (n Namespaces) Has(namespace string) bool {
	if len(n.Include) > 0 {
		return slices.Contains(n.Include, namespace)
	}
	return !slices.Contains(n.Exclude, namespace)
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
		if len(validation.IsDNS1123Label(name)) > 0 {
			found.Add(Item(i), name, "is not the name of a namespace", "write exact names; patterns are not supported")
		}
	}
	return found.Err()
}

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
