package policy

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// Validate says what is wrong with the arguments; each error in it is a *[FieldError].
func (a EvictorArgs) Validate() error {
	var found Findings
	found.Join("labelSelector", ValidateSelector(a.LabelSelector))
	found.Join("namespaceLabelSelector", ValidateSelector(a.NamespaceLabelSelector))
	if _, err := labels.Parse(a.NodeSelector); err != nil {
		found.Add("nodeSelector", a.NodeSelector, err.Error(), `write a label selector, such as "pool=web,!gpu"`)
	}
	found.Join("priorityThreshold", a.PriorityThreshold.validate())
	if a.MinPodAge.Duration < 0 {
		found.Add("minPodAge", a.MinPodAge, "must not be negative", "")
	}
	switch a.NoEvictionPolicy {
	case "", Preferred, Mandatory:
	default:
		found.Add("noEvictionPolicy", a.NoEvictionPolicy, "is not known", fmt.Sprintf("want %s or %s", Preferred, Mandatory))
	}
	found.Join("podProtections", a.PodProtections.validate())
	if older := a.older(); older != "" && len(a.PodProtections.DefaultDisabled)+len(a.PodProtections.ExtraEnabled) > 0 {
		found.Add(older, true, "cannot be used together with podProtections", "say it in podProtections")
	}
	return found.Err()
}

// older returns the first of the older fields that is used.
func (a EvictorArgs) older() string {
	switch {
	case a.EvictLocalStoragePods:
		return "evictLocalStoragePods"
	case a.EvictDaemonSetPods:
		return "evictDaemonSetPods"
	case a.EvictSystemCriticalPods:
		return "evictSystemCriticalPods"
	case a.EvictFailedBarePods:
		return "evictFailedBarePods"
	case a.IgnorePVCPods:
		return "ignorePvcPods"
	case a.IgnorePodsWithoutPDB:
		return "ignorePodsWithoutPDB"
	}
	return ""
}

func (t PriorityThreshold) validate() error {
	var found Findings
	if t.Value != nil && t.Name != "" {
		found.Add("", nil, "has both a value and a name", "keep one")
	}
	if t.Value != nil && *t.Value > SystemCritical {
		found.Add("value", *t.Value, fmt.Sprintf("must be at most %d, where system-critical pods begin", SystemCritical), "")
	}
	return found.Err()
}

func (p PodProtections) validate() error {
	var found Findings
	off := []string{PodsWithLocalStorage, DaemonSetPods, SystemCriticalPods, FailedBarePods}
	on := []string{PodsWithPVC, PodsWithoutPDB, PodsWithResourceClaims}
	found.Join("defaultDisabled", validateRules(p.DefaultDisabled, off, "switched off", on, "extraEnabled"))
	found.Join("extraEnabled", validateRules(p.ExtraEnabled, on, "switched on", off, "defaultDisabled"))
	for i, class := range p.Config.PodsWithPVC.ProtectedStorageClasses {
		if class.Name == "" {
			found.Add(fmt.Sprintf("config.PodsWithPVC.protectedStorageClasses[%d].name", i), nil, "is missing", "")
		}
	}
	return found.Err()
}

// validateRules checks one list of rules: each is allowed there, once. others may stand in the list otherList.
func validateRules(rules, allowed []string, verb string, others []string, otherList string) error {
	var found Findings
	for i, rule := range rules {
		at := Item(i)
		switch {
		case slices.Contains(others, rule):
			found.Add(at, rule, "cannot be "+verb, "it belongs in "+otherList)
		case !slices.Contains(allowed, rule):
			found.Add(at, rule, "is not a protection", suggest(rule, allowed))
		case slices.Contains(rules[:i], rule):
			found.Add(at, rule, "is given twice", "keep one")
		}
	}
	return found.Err()
}
