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

// Maintenance configures how pods leave the nodes of a NodeMaintenance. By default replacements come first where possible, and
// pods are protected only by the rules for unmovable pods and by the signals of other systems.
type Maintenance struct {
	// [Under maintenance](#when-nodes-are-maintained), every Deployment with one replica, and every one whose budget allows no
	// disruption, creates a replacement first, unless it opts out with the annotation. false: as `restart` says.
	Restart *bool `json:"restart"` // nil means true
	// The [protection rules](#defaultevictor) that apply to pods of nodes under maintenance. Signals always apply.
	Protect []string `json:"protect" enum:"*"`
	// The conditions and taints of nodes that start a drain.
	Start []StartSign `json:"start"`

	signals Signals
}

// StartSign is a condition or a taint of a node that starts a drain. Other programs set it. Exactly one of Condition and Taint is
// set.
type StartSign struct {
	// A drain trigger: the type of a node condition that another program sets when it wants the node empty; either this or `taint`.
	Condition string `json:"condition" pattern:"key"`
	// The status of the condition that triggers the drain.
	//
	//page:default `"True"`
	Status corev1.ConditionStatus `json:"status" enum:"True,False,Unknown"`
	// A taint that triggers the drain: `KEY`, `KEY=VALUE`, `KEY:EFFECT` or `KEY=VALUE:EFFECT`. Without a value or an effect it
	// matches every one.
	Taint string `json:"taint"`
}

// RestartAsUsual reports that a replacement comes first only if [Policy.Restart] enables it.
func (m Maintenance) RestartAsUsual() bool { return m.Restart != nil && !*m.Restart }

// Enums returns the valid values of fields. The rules that a maintenance can apply read only the pod.
func (Maintenance) Enums() map[string][]string {
	return map[string][]string{"protect": {
		SystemCriticalPods, FailedBarePods, PodsWithLocalStorage, DaemonSetPods, PodsWithPVC, PodsWithResourceClaims,
		PreferNoEvictionRule, EvictAnnotationFalseRule,
	}}
}

// Protects returns the reasons why a maintenance may not move the pod at the time now, always in the same order, or
// none if it may. A static pod and a terminating pod never move. [EvictAnnotation] lifts signals and rules as
// elsewhere. Package maintenance handles drain rules and drain labels; so the label of Cluster API does not protect a
// pod that also has [v1alpha1.LabelDrain].
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

// Started returns the first trigger in [Maintenance.Start] that the node has, or "".
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

// String returns text such as "condition NeedsReboot=True" or "taint example.com/drain:NoSchedule".
func (s StartSign) String() string {
	if s.Condition != "" {
		return fmt.Sprintf("condition %s=%s", s.Condition, cmp.Or(s.Status, corev1.ConditionTrue))
	}
	return "taint " + s.Taint
}

// splitTaint parses a taint of a file. valued is also true for an empty value after a =.
func splitTaint(text string) (key, value string, valued bool, effect string) {
	if at := strings.LastIndex(text, ":"); at >= 0 {
		text, effect = text[:at], text[at+1:]
	}
	key, value, valued = strings.Cut(text, "=")
	return key, value, valued, effect
}

// Complete removes the default of Restart.
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

// Restart lets workloads make a replacement before a pod goes, instead of evicting it. It is for Deployments with one
// replica, which an eviction would stop until the replacement has started. The zero value never does.
type Restart struct {
	// Which Deployments with one replica create a replacement before their pod leaves: the
	// [annotated ones](#replacements-that-come-first), or all that do not opt out with the annotation. Required if `restart` is
	// set; without `restart`, no Deployment does.
	Workloads RestartWorkloads `json:"workloads" enum:"Annotated,All" required:"true"`
	// Deployments with more replicas do so too, while a PodDisruptionBudget allows no disruption.
	BlockedByBudget bool `json:"blockedByBudget"`
	// How to create a replacement: change an annotation of the pod template, or add one replica until the new pod is available;
	// then the ReplicaSet removes the old one.
	Method RestartMethod `json:"method" enum:"RolloutRestart,Surge"`
	// The annotation of the pod template that a rollout restart changes.
	Annotation string `json:"annotation" pattern:"key"`
	// How to treat a pod if its Deployment takes part but cannot create a replacement first.
	Otherwise RestartOtherwise `json:"otherwise" enum:"Evict,Skip"`
	// How long a replacement may take to become available; after that, Rehome reverts the change.
	//
	//page:default the Deployment's progress deadline
	Timeout time.Duration `json:"timeout" above:"0" max:"24h0m0s"`
	// The minimum time between two restarts of a Deployment; 0 means the default.
	Cooldown time.Duration `json:"cooldown" min:"0" max:"24h0m0s"`
	// AgainAlone lifts the Cooldown for Deployments with one replica. No file sets it: it applies to pods that must
	// leave their nodes in any case. Otherwise they would be stopped without a replacement, or not move at all.
	AgainAlone bool `json:"-"`
}

// RestartWorkloads selects the Deployments that take part in [Restart].
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

// RestartOtherwise is the action for a pod whose workload cannot make a replacement first.
type RestartOtherwise string

// The two possible actions.
const (
	OtherwiseEvict RestartOtherwise = "Evict"
	OtherwiseSkip  RestartOtherwise = "Skip"
)

const (
	// RestartMark is the annotation on a Deployment or a namespace that includes it: "true" by the method of the
	// policy, "restart" or "surge" by that method, "false" not at all.
	RestartMark = "rehome.dev/restart"
	// DefaultRestartAnnotation is the key of kubectl, which tools that compare templates often ignore.
	DefaultRestartAnnotation = "kubectl.kubernetes.io/restartedAt"
	// DefaultRestartCooldown is long because each restart makes a revision and reads configuration again.
	DefaultRestartCooldown = 10 * time.Minute
)

// Preferred returns the policy for a workload that is requested to make a replacement first: it takes part unless it is
// annotated with "false", and so does one with several replicas whose budget allows no disruption. Other pods are
// evicted.
func (r Restart) Preferred() Restart {
	r.Workloads, r.BlockedByBudget, r.Otherwise = RestartAll, true, OtherwiseEvict
	r.Method = cmp.Or(r.Method, RolloutRestart)
	r.Annotation = cmp.Or(r.Annotation, DefaultRestartAnnotation)
	r.Cooldown = cmp.Or(r.Cooldown, DefaultRestartCooldown)
	return r
}

// SetDefaults sets the defaults of a file with the section.
func (r *Restart) SetDefaults() {
	r.Method, r.Annotation, r.Otherwise = RolloutRestart, DefaultRestartAnnotation, OtherwiseEvict
	r.Cooldown = DefaultRestartCooldown
}

// Complete replaces a cooldown of 0 by the default.
func (r *Restart) Complete() { r.Cooldown = cmp.Or(r.Cooldown, DefaultRestartCooldown) }
