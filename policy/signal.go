package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// Signal is a mark by which another system, or a person, asks others to leave a pod or a node alone.
type Signal struct {
	// Where the mark is looked for. Of a pod with the effect [Protect], of a node with the others.
	Where SignalPlace `json:"where" required:"true" enum:"annotation,label,taint,condition"`
	// Key is that of the annotation, label or taint, or the type of the condition. Of a taint it may be a prefix, which ends
	// in a slash.
	Key string `json:"key" required:"true"`
	// Value is what the mark must have as its value. Empty: any.
	Value string `json:"value,omitzero"`
	// Duration says that the value is a length of time, such as 30m: the pod is protected until that long after its start,
	// and before it. A value that is no length of time is no signal. Only with [Protect], and instead of Value.
	Duration bool         `json:"duration,omitzero"`
	Effect   SignalEffect `json:"effect" enum:"protect,ignoreNode,ignoreTaint" required:"true"`
}

// SignalPlace is a part of a pod or a node that can hold a signal.
type SignalPlace string

// The places.
const (
	SignalAnnotation SignalPlace = "annotation" // of a pod or a node
	SignalLabel      SignalPlace = "label"      // of a pod or a node
	SignalTaint      SignalPlace = "taint"      // of a node
	SignalCondition  SignalPlace = "condition"  // of a node; its value is its status
)

// SignalEffect is what a signal does.
type SignalEffect string

// The effects.
const (
	Protect     SignalEffect = "protect"     // the pod is not moved
	IgnoreNode  SignalEffect = "ignoreNode"  // no pod is moved from the node, and none is meant to go there
	IgnoreTaint SignalEffect = "ignoreTaint" // the strategies do not see the taint
)

// DefaultSignals are the signals that hold unless the policy switches them off, whatever the version of its file.
func DefaultSignals() []Signal {
	table := defaultSignals()
	return table[:]
}

// signalTable is an array, so that asking for it anew for each pod costs no memory.
type signalTable [18]Signal

func defaultSignals() signalTable {
	return signalTable{
		// Karpenter: a pod that must not be disrupted, for ever or for some time after its start.
		{Where: SignalAnnotation, Key: "karpenter.sh/do-not-disrupt", Value: "true", Effect: Protect},
		{Where: SignalAnnotation, Key: "karpenter.sh/do-not-disrupt", Duration: true, Effect: Protect},
		// Cluster Autoscaler.
		{Where: SignalAnnotation, Key: "cluster-autoscaler.kubernetes.io/safe-to-evict", Value: "false", Effect: Protect},
		// Cluster API: a pod that a drain leaves alone, or lets end by itself.
		{Where: SignalLabel, Key: "cluster.x-k8s.io/drain", Value: "skip", Effect: Protect},
		{Where: SignalLabel, Key: "cluster.x-k8s.io/drain", Value: "wait-completed", Effect: Protect},
		// CAST AI, whose documentation names both.
		{Where: SignalAnnotation, Key: "autoscaling.cast.ai/removal-disabled", Value: "true", Effect: Protect},
		{Where: SignalLabel, Key: "autoscaling.cast.ai/removal-disabled", Value: "true", Effect: Protect},
		// Koordinator: the highest cost means never.
		{Where: SignalAnnotation, Key: "scheduling.koordinator.sh/eviction-cost", Value: "2147483647", Effect: Protect},

		// Karpenter: a node that is going away, or has not arrived.
		{Where: SignalTaint, Key: "karpenter.sh/disrupted", Effect: IgnoreNode},
		{Where: SignalTaint, Key: "karpenter.sh/unregistered", Effect: IgnoreNode},
		// Cluster Autoscaler: a node that it is deleting, and one that it is about to. It drains the node itself.
		{Where: SignalTaint, Key: "ToBeDeletedByClusterAutoscaler", Effect: IgnoreNode},
		{Where: SignalTaint, Key: "DeletionCandidateOfClusterAutoscaler", Effect: IgnoreNode},
		// Medik8s and kured empty the node themselves.
		{Where: SignalTaint, Key: "medik8s.io/drain", Effect: IgnoreNode},
		{Where: SignalAnnotation, Key: "weave.works/kured-reboot-in-progress", Effect: IgnoreNode},
		// Kubernetes, KEP-5683: the node is being emptied, is under maintenance, or shuts down.
		{Where: SignalCondition, Key: "DrainInProgress", Value: "True", Effect: IgnoreNode},
		{Where: SignalCondition, Key: "MaintenanceInProgress", Value: "True", Effect: IgnoreNode},
		{Where: SignalCondition, Key: "GracefulNodeShutdownInProgress", Value: "True", Effect: IgnoreNode},
		// Node Readiness Controller: a node that is not ready for new pods says nothing about those that it has.
		{Where: SignalTaint, Key: "readiness.k8s.io/", Effect: IgnoreTaint},
	}
}

// Signals are the signals of a policy. The zero value are [DefaultSignals].
type Signals struct {
	// DefaultDisabled are keys of [DefaultSignals] that do not hold.
	DefaultDisabled []string `json:"defaultDisabled"`
	// ExtraEnabled are further signals.
	ExtraEnabled []Signal `json:"extraEnabled"`

	rows []Signal // those that hold; nil: DefaultSignals
}

// all lists the signals that hold. table is memory for the defaults.
func (s Signals) all(table *signalTable) []Signal {
	if s.rows != nil {
		return s.rows
	}
	*table = defaultSignals()
	return table[:]
}

// without are the signals but those with the keys.
func (s Signals) without(keys ...string) Signals {
	var table signalTable
	rows := make([]Signal, 0, len(table)) // not nil, which would be all defaults
	for _, r := range s.all(&table) {
		if !slices.Contains(keys, r.Key) {
			rows = append(rows, r)
		}
	}
	return Signals{rows: rows}
}

// IgnoresNode says why no pod may be moved from the node, or nothing when that does not follow from a signal.
func (s Signals) IgnoresNode(n *corev1.Node) string {
	var table signalTable
	rows := s.all(&table)
	for i := range rows {
		if r := &rows[i]; r.Effect == IgnoreNode {
			if value, set := r.onNode(n); set {
				return fmt.Sprintf("its %s %s", r.Where, described(r.Key, value))
			}
		}
	}
	return ""
}

// Taints are the taints that strategies see. The list is taints itself when they see all of them.
func (s Signals) Taints(taints []corev1.Taint) []corev1.Taint {
	if len(taints) == 0 {
		return taints
	}
	var table signalTable
	rows := s.all(&table)
	var seen []corev1.Taint
	for i := range taints {
		if !ignored(rows, &taints[i]) {
			seen = append(seen, taints[i])
		}
	}
	if len(seen) == len(taints) {
		return taints
	}
	return seen
}

func ignored(rows []Signal, t *corev1.Taint) bool {
	for i := range rows {
		if r := &rows[i]; r.Effect == IgnoreTaint && r.matchesTaint(t) {
			return true
		}
	}
	return false
}

// protects appends the signals that forbid to move the pod at the time now.
func (s Signals) protects(found []schemas.Protection, pod *corev1.Pod, now time.Time) []schemas.Protection {
	if len(pod.Annotations) == 0 && len(pod.Labels) == 0 {
		return found
	}
	var table signalTable
	rows := s.all(&table)
	for i := range rows {
		if r := &rows[i]; r.Effect == Protect {
			if detail := r.onPod(pod, now); detail != "" {
				found = append(found, schemas.Protection{Rule: SignalRule, Detail: detail})
			}
		}
	}
	return found
}

// lapses is the first moment after now at which a signal on the pod, which has started, ends. Zero: none does.
func (s Signals) lapses(pod *corev1.Pod, now time.Time) time.Time {
	if len(pod.Annotations) == 0 && len(pod.Labels) == 0 {
		return time.Time{}
	}
	var table signalTable
	var first time.Time
	rows := s.all(&table)
	for i := range rows {
		r := &rows[i]
		if !r.Duration || r.onPod(pod, now) == "" {
			continue
		}
		length, err := time.ParseDuration(r.marks(pod)[r.Key])
		if at := pod.Status.StartTime.Add(length); err == nil && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// marks are the annotations or the labels of the pod, wherever the signal is looked for.
func (r *Signal) marks(pod *corev1.Pod) map[string]string {
	if r.Where == SignalLabel {
		return pod.Labels
	}
	return pod.Annotations
}

// onPod says what was found on the pod, or nothing.
func (r *Signal) onPod(pod *corev1.Pod, now time.Time) string {
	value, set := r.marks(pod)[r.Key]
	if !set {
		return ""
	}
	detail := fmt.Sprintf("its %s %s", r.Where, described(r.Key, value))
	if !r.Duration {
		if r.Value != "" && r.Value != value {
			return ""
		}
		return detail
	}
	length, err := time.ParseDuration(value)
	switch started := pod.Status.StartTime; {
	case err != nil || length <= 0:
		return ""
	case started == nil:
		return detail + ", and it has not started"
	case now.Sub(started.Time) < length:
		return fmt.Sprintf("%s, and it started at %s", detail, started.UTC().Format(time.RFC3339))
	}
	return ""
}

// onNode returns the value of the signal on the node, and whether the node has it.
func (r *Signal) onNode(n *corev1.Node) (value string, set bool) {
	switch r.Where {
	case SignalAnnotation:
		value, set = n.Annotations[r.Key]
	case SignalLabel:
		value, set = n.Labels[r.Key]
	case SignalTaint:
		for i := range n.Spec.Taints {
			if t := &n.Spec.Taints[i]; r.matchesTaint(t) {
				return t.Value, true
			}
		}
	case SignalCondition:
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; string(c.Type) == r.Key {
				value, set = string(c.Status), true
			}
		}
	}
	return value, set && (r.Value == "" || r.Value == value)
}

func (r *Signal) matchesTaint(t *corev1.Taint) bool {
	named := r.Key == t.Key || strings.HasSuffix(r.Key, "/") && strings.HasPrefix(t.Key, r.Key)
	return named && (r.Value == "" || r.Value == t.Value)
}

// described is a key with its value, if it has one.
func described(key, value string) string {
	if value == "" {
		return key + " is set"
	}
	return fmt.Sprintf("%s is %q", key, value)
}

// Complete fills in the signals that hold.
func (s *Signals) Complete() {
	if len(s.DefaultDisabled)+len(s.ExtraEnabled) > 0 {
		s.rows = append(Signals{}.without(s.DefaultDisabled...).rows, s.ExtraEnabled...)
	}
}

// Validate says what is wrong; each error in it is a *[FieldError].
func (s Signals) Validate() error {
	var found Findings
	var keys []string
	for _, d := range DefaultSignals() {
		if !slices.Contains(keys, d.Key) {
			keys = append(keys, d.Key)
		}
	}
	for i, key := range s.DefaultDisabled {
		at := "defaultDisabled" + Item(i)
		switch {
		case !slices.Contains(keys, key):
			found.Add(at, key, "is not a key of the signals that are on by default", strict.Suggest(key, keys))
		case slices.Contains(s.DefaultDisabled[:i], key):
			found.Add(at, key, "is given twice", "keep one")
		}
	}
	return found.Err()
}

// Validate says what is wrong with the signal; each error in it is a *[FieldError].
func (s Signal) Validate() error {
	var found Findings
	if places := s.Effect.places(); places != nil && !slices.Contains(places, string(s.Where)) &&
		slices.Contains(IgnoreNode.places(), string(s.Where)) {
		found.Add("where", s.Where, fmt.Sprintf("cannot have the effect %s", s.Effect), "want "+strict.Either(places))
	}
	name, isPrefix := s.Key, false
	if s.Where == SignalTaint && strings.HasSuffix(s.Key, "/") {
		name, isPrefix = s.Key+"x", true
	}
	switch {
	case s.Key == "":
	case len(validation.IsQualifiedName(name)) > 0 && !isPrefix:
		found.Add("key", s.Key, "is not a key", "write NAME or PREFIX/NAME")
	case len(validation.IsQualifiedName(name)) > 0:
		found.Add("key", s.Key, "is not a prefix of keys", "write PREFIX/")
	}
	if s.Duration && s.Effect != Protect {
		found.Add("duration", s.Duration, "goes only with the effect "+string(Protect), "")
	}
	if s.Duration && s.Value != "" {
		found.Add("duration", s.Duration, "cannot be used together with value", "keep one")
	}
	return found.Err()
}

// places are where the effect may be looked for; nil for an effect that is not known.
func (e SignalEffect) places() []string {
	switch e {
	case Protect:
		return []string{string(SignalAnnotation), string(SignalLabel)}
	case IgnoreNode:
		return []string{string(SignalAnnotation), string(SignalLabel), string(SignalTaint), string(SignalCondition)}
	case IgnoreTaint:
		return []string{string(SignalTaint)}
	}
	return nil
}

// Rules lists the signals with that effect. Each describes the pod or the node that has it.
func (s Signals) Rules(effect SignalEffect) []Rule {
	var table signalTable
	var rules []Rule
	for _, r := range s.all(&table) {
		if r.Effect == effect {
			rules = append(rules, Rule{SignalRule, r.words(), true, false})
		}
	}
	return rules
}

// words describe a pod or a node that has the signal.
func (r *Signal) words() string {
	text := fmt.Sprintf("has the %s %s", r.Where, r.Key)
	if strings.HasSuffix(r.Key, "/") {
		text = fmt.Sprintf("has a %s that begins with %s", r.Where, r.Key)
	}
	switch {
	case r.Duration:
		return text + " and has not started, or started less than its value ago"
	case r.Value != "":
		return fmt.Sprintf("%s with the value %q", text, r.Value)
	}
	return text
}
