package policy

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rehome-dev/rehome/policy/strict"
)

// Namespaces limits a strategy to some namespaces. The zero value is all namespaces.
//
// An entry is the exact name of a namespace, or the beginning of names with a * behind it. The second is not part of the
// descheduler's versions of the file, under which [Parse] refuses it.
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

// anyMatches runs for every pod of a cluster, so it compares in place.
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

// Validate checks the values; each error is a *[FieldError].
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

// validateNodeSelector checks a label selector of nodes, as text.
func validateNodeSelector(text string) error {
	if _, err := labels.Parse(text); err != nil {
		return &FieldError{Field: "nodeSelector", Value: text, Reason: err.Error(),
			Right: `write a label selector, such as "pool=web,!gpu"`}
	}
	return nil
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
					found.Add(field+"."+list.name+Item(i), e, "is a pattern, which only "+Version+" has",
						"write exact names, or apiVersion: "+Version)
				}
			}
		}
	}
	return found.Err()
}

// namespaceFields are the arguments that are [Namespaces], by the names that the descheduler gave them.
func namespaceFields() []string { return []string{"namespaces", "evictableNamespaces"} }

// Selects compiles a label selector. nil, and one that [ValidateSelector] refuses, behave as in the descheduler: the first
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

// ValidateSelector checks a label selector by the rules of the API server; each error is a *[FieldError]. nil is valid.
func ValidateSelector(selector *metav1.LabelSelector) error {
	var found Findings
	for _, e := range metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, nil) {
		value := e.BadValue
		if value == "" || e.Type == field.ErrorTypeRequired || e.Type == field.ErrorTypeForbidden {
			value = nil // the error is about a missing value
		}
		found.Add(e.Field, value, e.Detail, "")
	}
	return found.Err()
}
