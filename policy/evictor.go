package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/policy/strict"
)

// SystemCritical is the lowest priority of pods that the cluster itself rests on, and the highest that a threshold may
// have: that of the class system-cluster-critical, from which Kubernetes reserves all priorities upwards.
const SystemCritical int32 = 2_000_000_000

// EvictorArgs are the arguments of DefaultEvictor: what protects a pod of the profile. The zero value has the peer's
// defaults.
type EvictorArgs struct {
	LabelSelector     *metav1.LabelSelector `json:"labelSelector,omitzero"`
	PriorityThreshold PriorityThreshold     `json:"priorityThreshold,omitzero"`
	MinPodAge         metav1.Duration       `json:"minPodAge,omitzero"`
	NoEvictionPolicy  NoEvictionPolicy      `json:"noEvictionPolicy,omitzero"`
	PodProtections    PodProtections        `json:"podProtections,omitzero"`

	// The older way to say what PodProtections says. Only one of the two may be used.
	EvictLocalStoragePods   bool `json:"evictLocalStoragePods,omitzero"`
	EvictDaemonSetPods      bool `json:"evictDaemonSetPods,omitzero"`
	EvictSystemCriticalPods bool `json:"evictSystemCriticalPods,omitzero"`
	EvictFailedBarePods     bool `json:"evictFailedBarePods,omitzero"`
	IgnorePVCPods           bool `json:"ignorePvcPods,omitzero"`
	IgnorePodsWithoutPDB    bool `json:"ignorePodsWithoutPDB,omitzero"`

	// NodeFit protects a pod whose replacement would fit on no other node.
	NodeFit bool `json:"nodeFit,omitzero"`
	// NodeSelector limits those other nodes, in label selector syntax. Empty: all. It has no effect without NodeFit.
	NodeSelector string `json:"nodeSelector,omitzero"`
	// NamespaceLabelSelector protects the pods of namespaces that it does not select. nil and the empty one select all.
	NamespaceLabelSelector *metav1.LabelSelector `json:"namespaceLabelSelector,omitzero"`
	// MinReplicas protects a pod whose only owner has fewer pods. 0 and 1 protect none.
	MinReplicas uint `json:"minReplicas,omitzero"`
}

// PriorityThreshold protects pods of at least this priority. The zero value protects none.
type PriorityThreshold struct {
	Value *int32 `json:"value,omitzero"`
	// Name is that of a PriorityClass whose value is the threshold, instead of Value. If there is none, all pods are
	// protected.
	Name string `json:"name,omitzero"`
}

// NoEvictionPolicy says what the annotation [PreferNoEviction] means.
type NoEvictionPolicy string

// The meanings. The empty string is Preferred.
const (
	Preferred NoEvictionPolicy = "Preferred" // such a pod is moved after others of its priority
	Mandatory NoEvictionPolicy = "Mandatory" // such a pod is protected
)

// PodProtections switches protections that are on by default off, and others on. The names are those of the rules.
type PodProtections struct {
	DefaultDisabled []string          `json:"defaultDisabled,omitzero"`
	ExtraEnabled    []string          `json:"extraEnabled,omitzero"`
	Config          ProtectionsConfig `json:"config,omitzero"`
}

// ProtectionsConfig are the arguments of single protections.
type ProtectionsConfig struct {
	PodsWithPVC PVCProtection `json:"PodsWithPVC,omitzero"`
}

// PVCProtection limits the protection PodsWithPVC to claims of some storage classes, and to those that have none or that
// do not exist. The zero value limits nothing. It has no effect unless PodsWithPVC is among those that are switched on.
type PVCProtection struct {
	ProtectedStorageClasses []StorageClass `json:"protectedStorageClasses,omitzero"`
}

// StorageClass names a StorageClass.
type StorageClass struct {
	Name string `json:"name"`
}

// Evictor says what protects a pod of a profile. The zero value protects what the peer protects by default: mirror,
// static and terminating pods, system-critical ones, bare ones, those of DaemonSets, and those with local storage; and
// pods with one of [DefaultSignals].
type Evictor struct {
	args EvictorArgs
	// selector is args.LabelSelector; nil matches every pod.
	selector labels.Selector
	// The rest is what PodProtections or the older fields come to; false is the default.
	movesSystemCritical, movesFailedBare, movesLocalStorage, movesDaemonSets bool
	protectsPVC, protectsClaims, protectsUnbudgeted                          bool
	// classes are the storage classes that protectsPVC is limited to; nil: to none.
	classes []string
	// namespaces and targets are args.NamespaceLabelSelector and args.NodeSelector; nil matches everything.
	namespaces, targets labels.Selector
	// signals also protect.
	signals Signals
}

// NewEvictor makes the Evictor of args. The error is that of [EvictorArgs.Validate].
func NewEvictor(args EvictorArgs) (Evictor, error) {
	if err := args.Validate(); err != nil {
		return Evictor{}, err
	}
	e := Evictor{
		args:                args,
		movesSystemCritical: args.EvictSystemCriticalPods,
		movesFailedBare:     args.EvictFailedBarePods,
		movesLocalStorage:   args.EvictLocalStoragePods,
		movesDaemonSets:     args.EvictDaemonSetPods,
		protectsPVC:         args.IgnorePVCPods,
		protectsUnbudgeted:  args.IgnorePodsWithoutPDB,
	}
	if args.LabelSelector != nil {
		e.selector = Selects(args.LabelSelector)
	}
	if s := Selects(args.NamespaceLabelSelector); !s.Empty() {
		e.namespaces = s
	}
	if s, err := labels.Parse(args.NodeSelector); err == nil && !s.Empty() {
		e.targets = s
	}
	e.apply(args.PodProtections)
	return e, nil
}

// apply switches protections off and on.
func (e *Evictor) apply(p PodProtections) {
	for _, rule := range p.DefaultDisabled {
		switch rule {
		case SystemCriticalPods:
			e.movesSystemCritical = true
		case FailedBarePods:
			e.movesFailedBare = true
		case PodsWithLocalStorage:
			e.movesLocalStorage = true
		case DaemonSetPods:
			e.movesDaemonSets = true
		}
	}
	for _, rule := range p.ExtraEnabled {
		switch rule {
		case PodsWithPVC:
			e.protectsPVC = true
			for _, class := range p.Config.PodsWithPVC.ProtectedStorageClasses {
				e.classes = append(e.classes, class.Name)
			}
		case PodsWithoutPDB:
			e.protectsUnbudgeted = true
		case PodsWithResourceClaims:
			e.protectsClaims = true
		}
	}
}

// Lapses is the first moment after now at which something that protects the pod ends by the passing of time alone:
// minPodAge, or a signal that is a length of time. Zero: nothing does, or the pod has not started.
func (e Evictor) Lapses(pod *corev1.Pod, now time.Time) time.Time {
	if pod.Status.StartTime == nil {
		return time.Time{}
	}
	started := pod.Status.StartTime.Time
	first := e.signals.lapses(pod, now)
	if old := started.Add(e.args.MinPodAge.Duration); old.After(now) && (first.IsZero() || old.Before(first)) {
		return old
	}
	return first
}

// Args are the arguments that e was made of.
func (e Evictor) Args() EvictorArgs { return e.args }

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
			found.Add(at, rule, "is not a protection", strict.Suggest(rule, allowed))
		case slices.Contains(rules[:i], rule):
			found.Add(at, rule, "is given twice", "keep one")
		}
	}
	return found.Err()
}

// Rule is a protection for people to read.
type Rule struct {
	// Name is the rule, and Words describe the pod that it protects.
	Name, Words string
	// On: it holds. Usual: it holds by default.
	On, Usual bool
}

// Rules lists every rule in the order of [Evictor.Protects]. Each describes the pod that it protects.
func (e Evictor) Rules() []Rule {
	bare := "has no owner that would replace it"
	if e.movesFailedBare {
		bare += ", and has not failed"
	}
	rules := []Rule{
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
	rules = append(rules, e.signals.Rules(Protect)...)
	return append(rules, e.namespacesInWords(), Rule{
		EvictAnnotationFalseRule, fmt.Sprintf("has the annotation %s with the value \"false\"", EvictAnnotation), true, true,
	}, e.roomInWords())
}

// Rules lists the signals with that effect. Each describes the pod or the node that has it.
func (s Signals) Rules(effect SignalEffect) []Rule {
	var table signalTable
	var rules []Rule
	for _, r := range s.all(&table) {
		if r.Effect == effect {
			rules = append(rules, Rule{SignalRule, r.inWords(), true, false})
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

func (e Evictor) thresholdInWords() Rule {
	r := Rule{Name: PriorityThresholdRule}
	if least := e.args.PriorityThreshold.Value; least != nil {
		r.Words, r.On = fmt.Sprintf("has a priority of %d or more", *least), true
	}
	if name := e.args.PriorityThreshold.Name; name != "" {
		r.Words = fmt.Sprintf("has the priority of the PriorityClass %s or more; any pod, if there is no such class", name)
		r.On = true
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

func (e Evictor) namespacesInWords() Rule {
	r := Rule{Name: NamespaceSelectorRule}
	if e.namespaces != nil {
		r.Words, r.On = fmt.Sprintf("is in a namespace with labels that do not match %q", e.namespaces), true
	}
	return r
}

func (e Evictor) roomInWords() Rule {
	r := Rule{Name: NodeFitRule, Words: "would find no room on another node that is ready", On: e.args.NodeFit}
	if e.targets != nil {
		r.Words += fmt.Sprintf(" and has labels that match %q", e.targets)
	}
	return r
}

func (e Evictor) selectorInWords() Rule {
	r := Rule{Name: LabelSelectorRule}
	if e.selector != nil && !e.selector.Empty() {
		r.Words, r.On = fmt.Sprintf("has labels that do not match %q", e.selector), true
	}
	return r
}
