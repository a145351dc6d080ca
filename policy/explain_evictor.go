package policy

import (
	"fmt"
	"strings"
)

// protections says what protects a pod of the profile, rule by rule.
func (t *text) protections(e Evictor) {
	t.line(0, "")
	t.line(1, "What protects a pod in this profile")
	for _, r := range e.inWords() {
		if r.on {
			t.item(2, fmt.Sprintf("%s: %s", r.rule, r.words))
		}
	}
	t.item(2, "a PodDisruptionBudget, always: a pod that it holds is tried again when it allows a disruption")
	var off []string
	for _, r := range e.inWords() {
		if !r.on && r.usual {
			off = append(off, r.rule)
		}
	}
	if len(off) > 0 {
		t.line(1, "Off, and on by default: %s.", listed(off))
	}
	t.line(1, "The annotation %s on a pod, with any value but \"false\", lifts all of", EvictAnnotation)
	stay := []string{MirrorPods, StaticPods, TerminatingPods}
	for _, r := range e.inWords() {
		if r.on && (r.rule == NamespaceSelectorRule || r.rule == NodeFitRule) {
			stay = append(stay, r.rule)
		}
	}
	t.line(1, "these except %s and budgets.", strings.Join(stay, ", "))
	if e.Needs() != (Needs{}) {
		t.line(1, "When something around a pod changes that one of these looks at, the pod is looked at again.")
	}
}

// ruleInWords is one rule: on, or off. usual: it is on by default.
type ruleInWords struct {
	rule, words string
	on, usual   bool
}

// inWords lists every rule in the order of [Evictor.Protects]. Each describes the pod that it protects.
func (e Evictor) inWords() []ruleInWords {
	bare := "has no owner that would replace it"
	if e.movesFailedBare {
		bare += ", and has not failed"
	}
	rules := []ruleInWords{
		{MirrorPods, "mirrors a pod that the kubelet runs from its own files", true, true},
		{StaticPods, "is run by the kubelet from its own files", true, true},
		{TerminatingPods, "is being deleted already", true, true},
		{SystemCriticalPods, fmt.Sprintf("has a priority of %d or more", SystemCritical), !e.movesSystemCritical, true},
		e.thresholdInWords(),
		{FailedBarePods, bare, true, true},
		{PodsWithLocalStorage, "has a volume of the kind hostPath or emptyDir", !e.movesLocalStorage, true},
		{DaemonSetPods, "belongs to a DaemonSet", !e.movesDaemonSets, true},
		{PodsWithPVC, e.claimsInWords(), e.protectsPVC, false},
		{PodsWithoutPDB, "is selected by no PodDisruptionBudget", e.protectsUnbudgeted, false},
		{PodsWithResourceClaims, "has a resource claim", e.protectsClaims, false},
		e.selectorInWords(),
		{MinPodAgeRule, fmt.Sprintf("has not started, or less than %s ago", e.args.MinPodAge.Duration),
			e.args.MinPodAge.Duration > 0, false},
		{MinReplicasRule, fmt.Sprintf("has exactly one owner, and that owner fewer than %d pods", e.args.MinReplicas),
			e.args.MinReplicas > 1, false},
		{PreferNoEvictionRule, "has the annotation " + PreferNoEviction, e.args.NoEvictionPolicy == Mandatory, false},
	}
	rules = append(rules, e.signals.inWords(Protect)...)
	return append(rules, e.namespacesInWords(), ruleInWords{
		EvictAnnotationFalseRule, fmt.Sprintf("has the annotation %s with the value \"false\"", EvictAnnotation), true, true,
	}, e.roomInWords())
}

// inWords lists the signals with that effect. Each describes the pod or the node that has it.
func (s Signals) inWords(effect SignalEffect) []ruleInWords {
	var table signalTable
	var rules []ruleInWords
	for _, r := range s.all(&table) {
		if r.Effect == effect {
			rules = append(rules, ruleInWords{SignalRule, r.inWords(), true, false})
		}
	}
	return rules
}

// inWords describes a pod or a node that has the signal.
func (r *Signal) inWords() string {
	what := fmt.Sprintf("has the %s %s", r.Where, r.Key)
	if strings.HasSuffix(r.Key, "/") {
		what = fmt.Sprintf("has a %s that begins with %s", r.Where, r.Key)
	}
	switch {
	case r.Duration:
		return what + " and has not started, or started less than its value ago"
	case r.Value != "":
		return fmt.Sprintf("%s with the value %q", what, r.Value)
	}
	return what
}

func (e Evictor) thresholdInWords() ruleInWords {
	r := ruleInWords{rule: PriorityThresholdRule}
	if least := e.args.PriorityThreshold.Value; least != nil {
		r.words, r.on = fmt.Sprintf("has a priority of %d or more", *least), true
	}
	if name := e.args.PriorityThreshold.Name; name != "" {
		r.words = fmt.Sprintf("has the priority of the PriorityClass %s or more; any pod, if there is no such class", name)
		r.on = true
	}
	return r
}

func (e Evictor) claimsInWords() string {
	const claim = "has a volume that is a PersistentVolumeClaim"
	if len(e.classes) == 0 {
		return claim
	}
	classes := strings.Join(e.classes, " or ")
	return fmt.Sprintf("%s of the storage class %s, of none, or one that does not exist", claim, classes)
}

func (e Evictor) namespacesInWords() ruleInWords {
	r := ruleInWords{rule: NamespaceSelectorRule}
	if e.namespaces != nil {
		r.words, r.on = fmt.Sprintf("is in a namespace with labels that do not match %q", e.namespaces), true
	}
	return r
}

func (e Evictor) roomInWords() ruleInWords {
	r := ruleInWords{rule: NodeFitRule, words: "would find no room on another node that is ready", on: e.args.NodeFit}
	if e.targets != nil {
		r.words += fmt.Sprintf(" and has labels that match %q", e.targets)
	}
	return r
}

func (e Evictor) selectorInWords() ruleInWords {
	r := ruleInWords{rule: LabelSelectorRule}
	if e.selector != nil && !e.selector.Empty() {
		r.words, r.on = fmt.Sprintf("has labels that do not match %q", e.selector), true
	}
	return r
}
