package policy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// Signal is a mark by which another system, or a user, excludes a pod or a node, such as the annotation
// karpenter.sh/do-not-disrupt. The default signals are in signals.yaml.
type Signal struct {
	// Where is the part of a pod (with the effect [Protect]) or of a node (with the others) that has the mark.
	Where SignalPlace `json:"where" enum:"annotation,label,taint,condition" required:"true"`
	// Key is the key of the annotation, label, or taint, or the type of the condition. For a taint it may be a prefix
	// that ends in a slash.
	Key string `json:"key" required:"true"`
	// Value is the required value of the mark. Empty means any.
	Value string `json:"value,omitzero"`
	// Duration means that the value is a duration, such as 30m, and the pod is protected until that long after its
	// start. Another value is no signal. Only with [Protect], and instead of Value.
	Duration bool         `json:"duration,omitzero"`
	Effect   SignalEffect `json:"effect" enum:"protect,ignoreNode,ignoreTaint" required:"true"`
}

// SignalPlace is a part of a pod or a node that can have a signal.
type SignalPlace string

// The places.
const (
	SignalAnnotation SignalPlace = "annotation" // of a pod or a node
	SignalLabel      SignalPlace = "label"      // of a pod or a node
	SignalTaint      SignalPlace = "taint"      // of a node
	SignalCondition  SignalPlace = "condition"  // of a node; its value is its status
)

// SignalEffect is the effect of a signal.
type SignalEffect string

// The effects.
const (
	Protect     SignalEffect = "protect"     // the pod is not moved
	IgnoreNode  SignalEffect = "ignoreNode"  // no pod moves from the node, and none should move to it
	IgnoreTaint SignalEffect = "ignoreTaint" // strategies ignore the taint
)

//go:embed signals.yaml
var signalsYAML []byte

// defaultSignals are the signals that apply unless the policy disables them, for any version of its file. They are read
// once, because Protects needs them for every pod.
//
//nolint:gochecknoglobals // a constant that Go cannot write as one
var defaultSignals = func() (all []Signal) {
	strict.Embedded(signalsYAML, &all)
	return all
}()

// Signals are the signals of a policy. The zero value has the default signals.
type Signals struct {
	// Keys of default [signals](differences.md#signals-of-other-systems) to ignore.
	DefaultDisabled []string `json:"defaultDisabled" enum:"*"`
	// Further signals.
	//
	//page:type list of signals
	ExtraEnabled []Signal `json:"extraEnabled"`

	rows []Signal // the active signals; nil means the default ones
}

// all returns the active signals.
func (s Signals) all() []Signal {
	if s.rows != nil {
		return s.rows
	}
	return defaultSignals
}

// without returns the signals without some keys.
func (s Signals) without(keys ...string) Signals {
	rows := slices.DeleteFunc(slices.Clone(s.all()), func(r Signal) bool { return slices.Contains(keys, r.Key) })
	return Signals{rows: rows}
}

// IgnoresNode returns the signal that excludes the node, or "".
func (s Signals) IgnoresNode(n *corev1.Node) string {
	rows := s.all()
	for i := range rows { // without copies: this runs for each node that could take a pod
		if r := &rows[i]; r.Effect == IgnoreNode {
			if value, set := r.onNode(n); set {
				return fmt.Sprintf("its %s %s", r.Where, described(r.Key, value))
			}
		}
	}
	return ""
}

// ClosesNode returns the signal that keeps pods from moving to the node, or "". A taint with the effect PreferNoSchedule
// does not: the scheduler avoids the node as long as another one takes the pod.
func (s Signals) ClosesNode(n *corev1.Node) string {
	soft := func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule }
	if slices.ContainsFunc(n.Spec.Taints, soft) {
		without := *n
		without.Spec.Taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints), soft)
		n = &without
	}
	return s.IgnoresNode(n)
}

// Taints returns the taints that strategies see. The result is taints itself if they see all of them.
func (s Signals) Taints(taints []corev1.Taint) []corev1.Taint {
	ignored := func(t corev1.Taint) bool {
		return slices.ContainsFunc(s.all(), func(r Signal) bool { return r.Effect == IgnoreTaint && r.matchesTaint(t) })
	}
	if !slices.ContainsFunc(taints, ignored) {
		return taints
	}
	seen := slices.DeleteFunc(slices.Clone(taints), ignored)
	if len(seen) == 0 {
		return nil
	}
	return seen
}

// protects appends the signals that protect the pod at the time now.
func (s Signals) protects(found []schemas.Protection, pod *corev1.Pod, now time.Time) []schemas.Protection {
	if len(pod.Annotations) == 0 && len(pod.Labels) == 0 {
		return found
	}
	for _, r := range s.all() {
		if r.Effect == Protect {
			if detail := r.onPod(pod, now); detail != "" {
				found = append(found, schemas.Protection{Rule: SignalRule, Detail: detail})
			}
		}
	}
	return found
}

// lapses returns the first moment after now at which a signal on the started pod expires, or zero.
func (s Signals) lapses(pod *corev1.Pod, now time.Time) time.Time {
	var first time.Time
	for _, r := range s.all() {
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

// marks returns the annotations or the labels of the pod, according to the place of the signal.
func (r Signal) marks(pod *corev1.Pod) map[string]string {
	if r.Where == SignalLabel {
		return pod.Labels
	}
	return pod.Annotations
}

// onPod describes the signal on the pod, or returns "".
func (r Signal) onPod(pod *corev1.Pod, now time.Time) string {
	value, set := r.marks(pod)[r.Key]
	if !set || r.Value != "" && r.Value != value {
		return ""
	}
	detail := fmt.Sprintf("its %s %s", r.Where, described(r.Key, value))
	if !r.Duration {
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
		if i := slices.IndexFunc(n.Spec.Taints, r.matchesTaint); i >= 0 {
			return n.Spec.Taints[i].Value, true
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

func (r *Signal) matchesTaint(t corev1.Taint) bool {
	named := r.Key == t.Key || strings.HasSuffix(r.Key, "/") && strings.HasPrefix(t.Key, r.Key)
	return named && (r.Value == "" || r.Value == t.Value)
}

// described formats a key with its value, if it has one.
func described(key, value string) string {
	if value == "" {
		return key + " is set"
	}
	return fmt.Sprintf("%s is %q", key, value)
}

// Complete sets the active signals.
func (s *Signals) Complete() {
	if len(s.DefaultDisabled)+len(s.ExtraEnabled) > 0 {
		s.rows = append(Signals{}.without(s.DefaultDisabled...).rows, s.ExtraEnabled...)
	}
}

// Enums returns the words of fields.
func (Signals) Enums() map[string][]string {
	var keys []string
	for _, d := range defaultSignals {
		keys = append(keys, d.Key)
	}
	return map[string][]string{"defaultDisabled": slices.Compact(keys)}
}

// Validate checks the values; each error is a *[FieldError].
func (r Signal) Validate() error {
	var found Findings
	if places := r.Effect.places(); places != nil && !slices.Contains(places, string(r.Where)) &&
		slices.Contains(IgnoreNode.places(), string(r.Where)) {
		found.Add("where", r.Where, fmt.Sprintf("cannot have the effect %s", r.Effect), "want "+strict.Either(places))
	}
	prefix, isPrefix := strings.CutSuffix(r.Key, "/")
	switch isPrefix = isPrefix && r.Where == SignalTaint; {
	case isPrefix && len(validation.IsQualifiedName(prefix+"/x")) > 0:
		found.Add("key", r.Key, "is not a prefix of keys", "write PREFIX/")
	case !isPrefix && r.Key != "" && len(validation.IsQualifiedName(r.Key)) > 0:
		found.Add("key", r.Key, "is not a key", "write NAME or PREFIX/NAME")
	}
	if r.Duration && r.Effect != Protect {
		found.Add("duration", r.Duration, "goes only with the effect "+string(Protect), "")
	}
	if r.Duration && r.Value != "" {
		found.Add("duration", r.Duration, "cannot be used together with value", "keep one")
	}
	return found.Err()
}

// places returns the valid places for the effect, or none for an unknown effect.
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

// Rules returns the signals with that effect, each with a description of the pods or nodes that have it.
func (s Signals) Rules(effect SignalEffect) []Rule {
	var rules []Rule
	for _, r := range s.all() {
		if r.Effect != effect {
			continue
		}
		text := fmt.Sprintf("has the %s %s", r.Where, r.Key)
		switch {
		case strings.HasSuffix(r.Key, "/"):
			text = fmt.Sprintf("has a %s that begins with %s", r.Where, r.Key)
		case r.Duration:
			text += " and has not started, or started less than its value ago"
		case r.Value != "":
			text += fmt.Sprintf(" with the value %q", r.Value)
		}
		rules = append(rules, Rule{SignalRule, text, true, false})
	}
	return rules
}
