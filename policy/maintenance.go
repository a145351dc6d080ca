package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Maintenance says how pods leave the nodes of a NodeMaintenance. With the zero value replacements come first where they
// can, and only the rules for pods that cannot be moved and the signals of other systems protect a pod.
type Maintenance struct {
	// Restart: every Deployment with one replica, and every one whose budget allows no disruption, makes a replacement first
	// unless it is marked otherwise, so that a budget that wants all of its pods cannot hold a node for ever. false: as
	// [Policy.Restart] says. nil: true.
	Restart *bool `json:"restart"`
	// Protect are the rules of protection that hold, of [MaintenanceRules]. Signals hold without being named.
	Protect []string `json:"protect"`
	// Start are the conditions and taints by which other programs begin to empty a node.
	Start []StartSign `json:"start"`

	signals Signals
}

// StartSign is a condition or a taint of a node by which another program begins a drain. Exactly one of Condition and Taint
// is set.
type StartSign struct {
	// Condition is the type of a condition, and Status its status. Empty: True.
	Condition string                 `json:"condition"`
	Status    corev1.ConditionStatus `json:"status"`
	// Taint is KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT. Without a value or an effect every one matches.
	Taint string `json:"taint"`
}

// RestartAsUsual says that a replacement comes first only if [Policy.Restart] says so.
func (m Maintenance) RestartAsUsual() bool { return m.Restart != nil && !*m.Restart }

// MaintenanceRules lists the rules that may protect the pods of maintenances: the rules that need nothing but the pod.
func MaintenanceRules() []string {
	return []string{
		SystemCriticalPods, FailedBarePods, PodsWithLocalStorage, DaemonSetPods, PodsWithPVC, PodsWithResourceClaims,
		PreferNoEvictionRule, EvictAnnotationFalseRule,
	}
}

// Protects lists what forbids a maintenance to move the pod at the time now, always in the same order. Nothing: it may be
// moved. A pod that the kubelet runs from its own files, and one that is being deleted, never may. [EvictAnnotation] lifts
// signals and rules as it does elsewhere. Drain rules and drain labels are the business of package maintenance; so the
// label of Cluster API does not protect a pod that has [v1alpha1.LabelDrain] too.
func (m Maintenance) Protects(pod *corev1.Pod, now time.Time) []schemas.Protection {
	protections := PodProtections{ExtraEnabled: []string{PodsWithPVC, PodsWithResourceClaims}}
	all := Evictor{args: EvictorArgs{NoEvictionPolicy: Mandatory, PodProtections: protections}, signals: m.signals}
	if _, own := pod.Labels[v1alpha1.LabelDrain]; own {
		all.signals = m.signals.without("cluster.x-k8s.io/drain")
	}
	always := []string{MirrorPods, StaticPods, TerminatingPods, SignalRule}
	found := slices.DeleteFunc(all.Protects(pod, now, nil), func(p schemas.Protection) bool {
		return !slices.Contains(always, p.Rule) && !slices.Contains(m.Protect, p.Rule)
	})
	if len(found) == 0 {
		return nil
	}
	return found
}

// Started returns the first sign of [Maintenance.Start] that the node has. Empty: it has none.
func (m Maintenance) Started(n *corev1.Node) string {
	for _, sign := range m.Start {
		if sign.on(n) {
			return sign.String()
		}
	}
	return ""
}

func (s StartSign) on(n *corev1.Node) bool {
	if s.Condition == "" {
		key, value, valued, effect := splitTaint(s.Taint)
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return key == t.Key && (!valued || value == t.Value) && (effect == "" || effect == string(t.Effect))
		})
	}
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return string(c.Type) == s.Condition && c.Status == cmp.Or(s.Status, corev1.ConditionTrue)
	})
}

// String is such as "condition NeedsReboot=True" or "taint example.com/drain:NoSchedule".
func (s StartSign) String() string {
	if s.Condition != "" {
		return fmt.Sprintf("condition %s=%s", s.Condition, cmp.Or(s.Status, corev1.ConditionTrue))
	}
	return "taint " + s.Taint
}

// splitTaint takes a taint of a file apart. valued is true for an empty value behind a =, too.
func splitTaint(text string) (key, value string, valued bool, effect string) {
	if at := strings.LastIndex(text, ":"); at >= 0 {
		text, effect = text[:at], text[at+1:]
	}
	key, value, valued = strings.Cut(text, "=")
	return key, value, valued, effect
}

// Complete drops the default of Restart.
func (m *Maintenance) Complete() {
	if !m.RestartAsUsual() {
		m.Restart = nil
	}
}

// Validate checks the values; each error is a *[FieldError].
func (m Maintenance) Validate() error {
	var found Findings
	for i, rule := range m.Protect {
		switch {
		case !slices.Contains(MaintenanceRules(), rule):
			found.Add("protect"+Item(i), rule, "is not a rule that can hold for pods of maintenances",
				fmt.Sprintf("want one of %v", MaintenanceRules()))
		case slices.Contains(m.Protect[:i], rule):
			found.Add("protect"+Item(i), rule, "is given twice", "keep one")
		}
	}
	return found.Err()
}

// Validate checks the values; each error is a *[FieldError].
func (s StartSign) Validate() error {
	var found Findings
	statuses := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}
	switch {
	case s.Condition == "" && s.Taint == "":
		found.Add("condition", nil, "is missing", "write condition, or taint")
	case s.Condition != "" && s.Taint != "":
		found.Add("taint", s.Taint, "cannot be used together with condition", "write two entries")
	case s.Taint != "":
		found.Join("taint", validateTaint(s.Taint))
		if s.Status != "" {
			found.Add("status", s.Status, "goes only with condition", "")
		}
	case len(validation.IsQualifiedName(s.Condition)) > 0:
		found.Add("condition", s.Condition, "is not the type of a condition", "write NAME or PREFIX/NAME")
	}
	if s.Condition != "" && s.Status != "" && !slices.Contains(statuses, s.Status) {
		found.Add("status", s.Status, "is not known", `want "True", "False" or Unknown`)
	}
	return found.Err()
}

func validateTaint(text string) error {
	key, value, _, effect := splitTaint(text)
	effects := []string{
		string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute),
	}
	wrong := len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 ||
		strings.Contains(text, ":") && !slices.Contains(effects, effect)
	if !wrong {
		return nil
	}
	return &FieldError{Value: text, Reason: "is not a taint",
		Right: "write KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT with the effect " + strict.Either(effects)}
}
