package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Maintenance says how the pods of nodes are moved that a NodeMaintenance means. The zero value is what a file gets that says
// nothing: replacements come first where they can, and nothing protects a pod but what cannot be moved and the signals of
// other systems.
type Maintenance struct {
	// RestartAsUsual: whether a replacement comes first is as [Policy.Restart] says. If not, every Deployment with one replica,
	// and every one whose budget allows no disruption, makes one that is not marked otherwise, so that a budget that wants all
	// of its pods cannot hold a node for ever.
	RestartAsUsual bool
	// Protect are the rules of protection that hold, of [MaintenanceRules]. Signals hold without being named.
	Protect []string
	// Start are the marks of nodes by which other programs say that they are to be emptied.
	Start []StartSign

	signals Signals
}

// StartSign is a condition or a taint of a node by which another program begins a drain. Exactly one of Condition and Taint
// is set.
type StartSign struct {
	Condition string // the type of a condition
	Status    corev1.ConditionStatus
	Taint     TaintSign
}

// TaintSign is a taint as a file writes it, KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT. Without a value or an effect
// every one matches. The zero value is no taint.
type TaintSign struct {
	Key, Value string
	Valued     bool // Value counts, though it may be empty
	Effect     corev1.TaintEffect
}

// MaintenanceRules lists the rules that a file can say hold for the pods of maintenances: those that need nothing but the pod.
func MaintenanceRules() []string {
	return []string{
		SystemCriticalPods, FailedBarePods, PodsWithLocalStorage, DaemonSetPods, PodsWithPVC, PodsWithResourceClaims,
		PreferNoEvictionRule, EvictAnnotationFalseRule,
	}
}

// Protects lists what forbids a maintenance to move the pod at the time now, always in the same order. Nothing: it may be
// moved. A pod that the kubelet runs from its own files, and one that is being deleted, never may. [EvictAnnotation] lifts
// signals and rules as it does elsewhere. Whether the pod is one that drains leave alone, by its DaemonSet, its rule or its
// label, is not its business; so the label of Cluster API does not protect a pod that has [v1alpha1.LabelDrain] too.
func (m Maintenance) Protects(pod *corev1.Pod, now time.Time) []schemas.Protection {
	strict := Evictor{
		args: EvictorArgs{NoEvictionPolicy: Mandatory}, protectsPVC: true, protectsClaims: true, signals: m.signals,
	}
	if _, own := pod.Labels[v1alpha1.LabelDrain]; own {
		strict.signals = m.signals.without(drainLabelOfClusterAPI)
	}
	always := []string{MirrorPods, StaticPods, TerminatingPods, SignalRule}
	found := slices.DeleteFunc(strict.Protects(pod, now, nil), func(p schemas.Protection) bool {
		return !slices.Contains(always, p.Rule) && !slices.Contains(m.Protect, p.Rule)
	})
	if len(found) == 0 {
		return nil
	}
	return found
}

const drainLabelOfClusterAPI = "cluster.x-k8s.io/drain"

// without are the signals but those with the key.
func (s Signals) without(key string) Signals {
	var table signalTable
	rows := make([]Signal, 0, len(table))
	for _, r := range s.all(&table) {
		if r.Key != key {
			rows = append(rows, r)
		}
	}
	return Signals{rows: rows}
}

// Started says by which sign another program begins to empty the node, the first of [Maintenance.Start] that is there.
// Empty: by none.
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
		return slices.ContainsFunc(n.Spec.Taints, s.Taint.matches)
	}
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return string(c.Type) == s.Condition && c.Status == s.Status
	})
}

func (s TaintSign) matches(t corev1.Taint) bool {
	return s.Key == t.Key && (!s.Valued || s.Value == t.Value) && (s.Effect == "" || s.Effect == t.Effect)
}

// String is such as "condition NeedsReboot=True" or "taint example.com/drain:NoSchedule".
func (s StartSign) String() string {
	if s.Condition != "" {
		return fmt.Sprintf("condition %s=%s", s.Condition, s.Status)
	}
	return "taint " + s.Taint.String()
}

// String is the sign as a file writes it.
func (s TaintSign) String() string {
	text := s.Key
	if s.Valued {
		text += "=" + s.Value
	}
	if s.Effect != "" {
		text += ":" + string(s.Effect)
	}
	return text
}

// readTaint takes a sign apart; what is wrong with it is for validateTaint.
func readTaint(text string) TaintSign {
	var s TaintSign
	if at := strings.LastIndex(text, ":"); at >= 0 {
		text, s.Effect = text[:at], corev1.TaintEffect(text[at+1:])
	}
	s.Key, s.Value, s.Valued = strings.Cut(text, "=")
	return s
}
