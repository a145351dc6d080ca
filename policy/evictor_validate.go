package policy

import (
	"fmt"
	"slices"
)

// Validate says what is wrong with the arguments; each error in it is a *[FieldError].
func (a EvictorArgs) Validate() error {
	var found Findings
	found.Join("labelSelector", ValidateSelector(a.LabelSelector))
	found.Join("namespaceLabelSelector", ValidateSelector(a.NamespaceLabelSelector))
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
	found.Join("", refuse(a.later()))
	return found.Err()
}

// later lists what the peer can do and this version of Rehome cannot. Each needs other objects than the pod.
func (a EvictorArgs) later() []later {
	const (
		unprotected = "pods would be moved that you want protected: remove it, or wait for a version that has it"
		nowhere     = "pods would be moved that fit nowhere else: remove it, or wait for a version that has it"
	)
	selectsNamespaces := a.NamespaceLabelSelector != nil &&
		len(a.NamespaceLabelSelector.MatchLabels)+len(a.NamespaceLabelSelector.MatchExpressions) > 0
	withoutPDB := slices.Index(a.PodProtections.ExtraEnabled, PodsWithoutPDB)
	return []later{
		{"nodeFit", a.NodeFit, nowhere},
		{"nodeSelector", a.NodeSelector != "", nowhere},
		{"namespaceLabelSelector", selectsNamespaces, unprotected},
		{"minReplicas", a.MinReplicas > 1, unprotected},
		{"priorityThreshold.name", a.PriorityThreshold.Name != "", "write the priority of the class as value"},
		{fmt.Sprintf("podProtections.extraEnabled[%d]", withoutPDB), withoutPDB >= 0, unprotected},
		{"podProtections.config.PodsWithPVC.protectedStorageClasses",
			len(a.PodProtections.Config.PodsWithPVC.ProtectedStorageClasses) > 0,
			"remove it to protect pods with a claim of any class, or wait for a version that has it"},
		{"ignorePodsWithoutPDB", a.IgnorePodsWithoutPDB, unprotected},
	}
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
