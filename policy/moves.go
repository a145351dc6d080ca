package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Restart lets workloads make a replacement before a pod goes, instead of evicting it. It is about Deployments with one
// replica, which an eviction would stop for as long as the replacement takes to start. The zero value never does. [Parse]
// fills in what is empty, but for Timeout.
type Restart struct {
	// Workloads says which Deployments take part. Empty: none.
	Workloads RestartWorkloads
	// BlockedByBudget: Deployments with more replicas take part too, as long as a PodDisruptionBudget allows no disruption.
	BlockedByBudget bool
	// Method is how. Empty: [RolloutRestart].
	Method RestartMethod
	// Annotation is the key in the Deployment's pod template that is changed. Empty: [DefaultRestartAnnotation].
	Annotation string
	// Otherwise says what becomes of a pod whose Deployment takes part and cannot make a replacement first. Empty:
	// [OtherwiseEvict].
	Otherwise RestartOtherwise
	// Timeout is how long the replacement may take to become available until the move is taken back. 0: the progress
	// deadline of the Deployment.
	Timeout time.Duration
	// Cooldown is how long a Deployment is not restarted again. 0: [DefaultRestartCooldown].
	Cooldown time.Duration
	// AgainAlone lifts the Cooldown for Deployments with one replica. No file says so: it holds for pods that have to leave their
	// nodes whatever was before, since they would be stopped without a replacement, or not move at all.
	AgainAlone bool
}

// Preferred is the policy for a workload that is asked to make a replacement first: it takes part unless it is marked with
// "false", as does one with several replicas whose budget allows no disruption, and what cannot be moved so is evicted.
func (r Restart) Preferred() Restart {
	r.Workloads, r.BlockedByBudget, r.Otherwise = RestartAll, true, OtherwiseEvict
	r.Method = cmp.Or(r.Method, RolloutRestart)
	r.Annotation = cmp.Or(r.Annotation, DefaultRestartAnnotation)
	r.Cooldown = cmp.Or(r.Cooldown, DefaultRestartCooldown)
	return r
}

// RestartWorkloads says which Deployments take part in [Restart].
type RestartWorkloads string

// Which Deployments can take part. [RestartMark] on a Deployment or its namespace says so, the Deployment's own first.
const (
	RestartAnnotated RestartWorkloads = "Annotated" // those that are annotated with "true", "restart" or "surge"
	RestartAll       RestartWorkloads = "All"       // all that are not annotated with "false"
)

// RestartMethod is how a workload makes a replacement first.
type RestartMethod string

// The methods.
const (
	RolloutRestart RestartMethod = "RolloutRestart" // an annotation of the pod template is changed, as kubectl rollout restart does
	Surge          RestartMethod = "Surge"          // one replica more until it is available; then the pod goes
)

// RestartOtherwise is what is done with a pod whose workload cannot make a replacement first.
type RestartOtherwise string

// What can be done.
const (
	OtherwiseEvict RestartOtherwise = "Evict"
	OtherwiseSkip  RestartOtherwise = "Skip"
)

const (
	// RestartMark is the annotation on a Deployment or a namespace by which it takes part: "true" by the method of the
	// policy, "restart" or "surge" by that method, "false" not at all.
	RestartMark = "rehome.dev/restart"
	// DefaultRestartAnnotation is the key that kubectl uses, which tools that compare templates are often told to ignore.
	DefaultRestartAnnotation = "kubectl.kubernetes.io/restartedAt"
	// DefaultRestartCooldown is that long because each restart makes a revision, and reads configuration anew.
	DefaultRestartCooldown = 10 * time.Minute
)

// fileRestart is what a policy file says about restarts.
type fileRestart struct {
	Workloads       RestartWorkloads `json:"workloads"`
	BlockedByBudget bool             `json:"blockedByBudget,omitzero"`
	Method          RestartMethod    `json:"method,omitzero"`
	Annotation      string           `json:"annotation,omitzero"`
	Otherwise       RestartOtherwise `json:"otherwise,omitzero"`
	Timeout         *metav1.Duration `json:"timeout,omitzero"`
	Cooldown        metav1.Duration  `json:"cooldown,omitzero"`
}

func (f *fileRestart) SetDefaults() {
	f.Method, f.Annotation, f.Otherwise = RolloutRestart, DefaultRestartAnnotation, OtherwiseEvict
	f.Cooldown.Duration = DefaultRestartCooldown
}

func (f fileRestart) validate() error {
	var found Findings
	if w := f.Workloads; w != RestartAnnotated && w != RestartAll {
		found.Add("workloads", given(string(w)), missingOr(w == "", "is not known"),
			fmt.Sprintf("want %s or %s", RestartAnnotated, RestartAll))
	}
	if m := f.Method; m != RolloutRestart && m != Surge {
		found.Add("method", m, "is not known", fmt.Sprintf("want %s or %s", RolloutRestart, Surge))
	}
	if len(validation.IsQualifiedName(f.Annotation)) > 0 {
		found.Add("annotation", f.Annotation, "is not a key", "write NAME or PREFIX/NAME")
	}
	if o := f.Otherwise; o != OtherwiseEvict && o != OtherwiseSkip {
		found.Add("otherwise", o, "is not known", fmt.Sprintf("want %s or %s", OtherwiseEvict, OtherwiseSkip))
	}
	if f.Timeout != nil {
		found.Above("timeout", *f.Timeout, strict.Longest)
	}
	found.From0("cooldown", f.Cooldown)
	return found.Err()
}

// restart is what the file says, with defaults filled in. Without the section it is off.
func (f *fileRestart) restart() Restart {
	if f == nil {
		return Restart{}
	}
	r := Restart{
		Workloads: f.Workloads, BlockedByBudget: f.BlockedByBudget, Method: f.Method, Annotation: f.Annotation,
		Otherwise: f.Otherwise, Cooldown: f.Cooldown.Duration,
	}
	if f.Timeout != nil {
		r.Timeout = f.Timeout.Duration
	}
	if r.Cooldown == 0 {
		r.Cooldown = DefaultRestartCooldown
	}
	return r
}

// written is what differs from the defaults, as it stands in a file. nil: restarts are off.
func (r Restart) written() *fileRestart {
	if r == (Restart{}) {
		return nil
	}
	f := fileRestart{Workloads: r.Workloads, BlockedByBudget: r.BlockedByBudget}
	if r.Method != RolloutRestart {
		f.Method = r.Method
	}
	if r.Annotation != DefaultRestartAnnotation {
		f.Annotation = r.Annotation
	}
	if r.Otherwise != OtherwiseEvict {
		f.Otherwise = r.Otherwise
	}
	if r.Timeout != 0 {
		f.Timeout = &metav1.Duration{Duration: r.Timeout}
	}
	if r.Cooldown != DefaultRestartCooldown {
		f.Cooldown.Duration = r.Cooldown
	}
	return &f
}

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

// fileMaintenance is what a policy file says about maintenances.
type fileMaintenance struct {
	Restart *bool       `json:"restart,omitzero"`
	Protect []string    `json:"protect,omitzero"`
	Start   []fileStart `json:"start,omitzero"`
}

type fileStart struct {
	Condition string                 `json:"condition,omitzero"`
	Status    corev1.ConditionStatus `json:"status,omitzero"`
	Taint     string                 `json:"taint,omitzero"`
}

func (f fileMaintenance) validate() error {
	var found Findings
	for i, rule := range f.Protect {
		at := "protect" + Item(i)
		switch {
		case !slices.Contains(MaintenanceRules(), rule):
			found.Add(at, rule, "is not a rule that can hold for pods of maintenances",
				fmt.Sprintf("want one of %v", MaintenanceRules()))
		case slices.Contains(f.Protect[:i], rule):
			found.Add(at, rule, "is given twice", "keep one")
		}
	}
	for i, s := range f.Start {
		found.Join("start"+Item(i), s.validate())
	}
	return found.Err()
}

func (f fileStart) validate() error {
	var found Findings
	statuses := []string{string(corev1.ConditionTrue), string(corev1.ConditionFalse), string(corev1.ConditionUnknown)}
	switch {
	case f.Condition == "" && f.Taint == "":
		found.Add("condition", nil, "is missing", "write condition, or taint")
	case f.Condition != "" && f.Taint != "":
		found.Add("taint", f.Taint, "cannot be used together with condition", "write two entries")
	case f.Taint != "":
		found.Join("taint", validateTaint(f.Taint))
		if f.Status != "" {
			found.Add("status", f.Status, "goes only with condition", "")
		}
	case len(validation.IsQualifiedName(f.Condition)) > 0:
		found.Add("condition", f.Condition, "is not the type of a condition", "write NAME or PREFIX/NAME")
	}
	if f.Condition != "" && f.Status != "" && !slices.Contains(statuses, string(f.Status)) {
		found.Add("status", f.Status, "is not known", `want "True", "False" or Unknown`)
	}
	return found.Err()
}

func validateTaint(text string) error {
	s := readTaint(text)
	effects := []string{
		string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute),
	}
	wrong := len(validation.IsQualifiedName(s.Key)) > 0 || len(validation.IsValidLabelValue(s.Value)) > 0 ||
		strings.Contains(text, ":") && !slices.Contains(effects, string(s.Effect))
	if !wrong {
		return nil
	}
	return &FieldError{Value: text, Reason: "is not a taint",
		Right: "write KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT with the effect " + strict.Either(effects)}
}

// maintenance is what the file says, with defaults filled in.
func (f *fileMaintenance) maintenance(signals Signals) Maintenance {
	m := Maintenance{signals: signals}
	if f == nil {
		return m
	}
	m.RestartAsUsual = f.Restart != nil && !*f.Restart
	m.Protect = f.Protect
	for _, s := range f.Start {
		sign := StartSign{Condition: s.Condition, Status: s.Status}
		if s.Condition == "" {
			sign.Taint = readTaint(s.Taint)
		} else if s.Status == "" {
			sign.Status = corev1.ConditionTrue
		}
		m.Start = append(m.Start, sign)
	}
	return m
}

// written is what differs from the defaults, as it stands in a file. nil: nothing does.
func (m Maintenance) written() *fileMaintenance {
	if !m.RestartAsUsual && len(m.Protect) == 0 && len(m.Start) == 0 {
		return nil
	}
	f := fileMaintenance{Protect: m.Protect}
	if m.RestartAsUsual {
		f.Restart = new(bool)
	}
	for _, s := range m.Start {
		w := fileStart{Condition: s.Condition, Status: s.Status, Taint: s.Taint.String()}
		if s.Status == corev1.ConditionTrue {
			w.Status = ""
		}
		f.Start = append(f.Start, w)
	}
	return &f
}
