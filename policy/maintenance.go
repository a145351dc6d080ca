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
	// Protect are the rules of protection that hold. Signals hold without being named.
	Protect []string `json:"protect" enum:"*"`
	// Start are the conditions and taints by which other programs begin to empty a node.
	Start []StartSign `json:"start"`

	signals Signals
}

// StartSign is a condition or a taint of a node by which another program begins a drain. Exactly one of Condition and Taint
// is set.
type StartSign struct {
	// Condition is the type of a condition, and Status its status. Empty: True.
	Condition string                 `json:"condition" pattern:"key"`
	Status    corev1.ConditionStatus `json:"status" enum:"True,False,Unknown"`
	// Taint is KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT. Without a value or an effect every one matches.
	Taint string `json:"taint"`
}

// RestartAsUsual says that a replacement comes first only if [Policy.Restart] says so.
func (m Maintenance) RestartAsUsual() bool { return m.Restart != nil && !*m.Restart }

// Enums lists the words of fields. The rules that a maintenance can keep to need nothing but the pod.
func (Maintenance) Enums() map[string][]string {
	return map[string][]string{"protect": {
		SystemCriticalPods, FailedBarePods, PodsWithLocalStorage, DaemonSetPods, PodsWithPVC, PodsWithResourceClaims,
		PreferNoEvictionRule, EvictAnnotationFalseRule,
	}}
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
func (s StartSign) Validate() error {
	var found Findings
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

// Restart lets workloads make a replacement before a pod goes, instead of evicting it. It is about Deployments with one
// replica, which an eviction would stop for as long as the replacement takes to start. The zero value never does.
type Restart struct {
	// Workloads says which Deployments take part. Empty: none.
	Workloads RestartWorkloads `json:"workloads" enum:"Annotated,All" required:"true"`
	// BlockedByBudget: Deployments with more replicas take part too, as long as a PodDisruptionBudget allows no disruption.
	BlockedByBudget bool `json:"blockedByBudget"`
	// Method is how. Empty: [RolloutRestart].
	Method RestartMethod `json:"method" enum:"RolloutRestart,Surge"`
	// Annotation is the key in the Deployment's pod template that is changed. Empty: [DefaultRestartAnnotation].
	Annotation string `json:"annotation" pattern:"key"`
	// Otherwise is for a pod whose Deployment takes part and cannot make a replacement first. Empty:
	// [OtherwiseEvict].
	Otherwise RestartOtherwise `json:"otherwise" enum:"Evict,Skip"`
	// Timeout is how long the replacement may take to become available until the move is taken back. 0: the progress
	// deadline of the Deployment.
	Timeout time.Duration `json:"timeout" above:"0" max:"24h0m0s"`
	// Cooldown is how long a Deployment is not restarted again. 0: [DefaultRestartCooldown].
	Cooldown time.Duration `json:"cooldown" min:"0" max:"24h0m0s"`
	// AgainAlone lifts the Cooldown for Deployments with one replica. No file sets it: it holds for pods that have to leave
	// their nodes in any case, since they would be stopped without a replacement, or not move at all.
	AgainAlone bool `json:"-"`
}

// RestartWorkloads says which Deployments take part in [Restart].
type RestartWorkloads string

// The Deployments that take part. [RestartMark] on a Deployment or its namespace decides, the Deployment's own first.
const (
	RestartAnnotated RestartWorkloads = "Annotated" // Deployments annotated with "true", "restart" or "surge"
	RestartAll       RestartWorkloads = "All"       // all Deployments not annotated with "false"
)

// RestartMethod is how a workload makes a replacement first.
type RestartMethod string

// The methods.
const (
	RolloutRestart RestartMethod = "RolloutRestart" // an annotation of the pod template is changed, as kubectl rollout restart does
	Surge          RestartMethod = "Surge"          // one replica more until it is available; then the pod goes
)

// RestartOtherwise is the fate of a pod whose workload cannot make a replacement first.
type RestartOtherwise string

// The two things that can be done.
const (
	OtherwiseEvict RestartOtherwise = "Evict"
	OtherwiseSkip  RestartOtherwise = "Skip"
)

const (
	// RestartMark is the annotation on a Deployment or a namespace by which it takes part: "true" by the method of the
	// policy, "restart" or "surge" by that method, "false" not at all.
	RestartMark = "rehome.dev/restart"
	// DefaultRestartAnnotation is the key of kubectl, which tools that compare templates often ignore.
	DefaultRestartAnnotation = "kubectl.kubernetes.io/restartedAt"
	// DefaultRestartCooldown is that long because each restart makes a revision, and reads configuration anew.
	DefaultRestartCooldown = 10 * time.Minute
)

// Preferred is the policy for a workload that is asked to make a replacement first: it takes part unless it is marked with
// "false", as does one with several replicas whose budget allows no disruption. Other pods are evicted.
func (r Restart) Preferred() Restart {
	r.Workloads, r.BlockedByBudget, r.Otherwise = RestartAll, true, OtherwiseEvict
	r.Method = cmp.Or(r.Method, RolloutRestart)
	r.Annotation = cmp.Or(r.Annotation, DefaultRestartAnnotation)
	r.Cooldown = cmp.Or(r.Cooldown, DefaultRestartCooldown)
	return r
}

// SetDefaults fills in the defaults of a file that has the section.
func (r *Restart) SetDefaults() {
	r.Method, r.Annotation, r.Otherwise = RolloutRestart, DefaultRestartAnnotation, OtherwiseEvict
	r.Cooldown = DefaultRestartCooldown
}

// Complete makes a cooldown of 0 the default.
func (r *Restart) Complete() { r.Cooldown = cmp.Or(r.Cooldown, DefaultRestartCooldown) }
