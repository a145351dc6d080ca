package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// SystemCritical is the lowest priority of pods that the cluster itself needs, and the highest threshold: the value of
// the class system-cluster-critical. Kubernetes reserves it and all higher values.
const SystemCritical int32 = 2_000_000_000

// EvictorArgs are the arguments of DefaultEvictor: the protections of a profile. The zero value has the defaults of the
// descheduler.
type EvictorArgs struct {
	// It protects pods that it does not select.
	//
	//page:default all
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitzero"`
	// It protects pods of at least this priority.
	PriorityThreshold PriorityThreshold `json:"priorityThreshold,omitzero"`
	// It protects pods that started less than this long ago.
	MinPodAge metav1.Duration `json:"minPodAge,omitzero" min:"0"`
	// Whether a pod with the annotation `descheduler.alpha.kubernetes.io/prefer-no-eviction` moves last or is protected.
	//
	//page:default `Preferred`
	NoEvictionPolicy NoEvictionPolicy `json:"noEvictionPolicy,omitzero" enum:"Preferred,Mandatory"`
	// The enabled and disabled protections.
	PodProtections PodProtections `json:"podProtections,omitzero"`

	// Older: disables `PodsWithLocalStorage`. Not together with `podProtections`.
	EvictLocalStoragePods bool `json:"evictLocalStoragePods,omitzero"`
	// Older: disables `DaemonSetPods`.
	EvictDaemonSetPods bool `json:"evictDaemonSetPods,omitzero"`
	// Older: disables `SystemCriticalPods`.
	EvictSystemCriticalPods bool `json:"evictSystemCriticalPods,omitzero"`
	// Older: disables `FailedBarePods`.
	EvictFailedBarePods bool `json:"evictFailedBarePods,omitzero"`
	// Older: enables `PodsWithPVC`.
	IgnorePVCPods bool `json:"ignorePvcPods,omitzero"`
	// Older: enables `PodsWithoutPDB`.
	IgnorePodsWithoutPDB bool `json:"ignorePodsWithoutPDB,omitzero"`

	// It protects a pod if the scheduler would place its replacement on no other node.
	NodeFit bool `json:"nodeFit,omitzero"`
	// The nodes that `nodeFit` considers.
	//
	//page:type string, in label selector syntax
	//page:default all
	NodeSelector string `json:"nodeSelector,omitzero"`
	// It protects pods in namespaces that it does not select.
	//
	//page:default all
	NamespaceLabelSelector *metav1.LabelSelector `json:"namespaceLabelSelector,omitzero"`
	// It protects a pod whose only owner has fewer pods; 0 and 1 protect none.
	MinReplicas uint `json:"minReplicas,omitzero"`
}

// PriorityThreshold protects pods of at least this priority. The zero value protects none.
type PriorityThreshold struct {
	// It protects pods of at least this priority.
	//
	//page:default system-critical
	Value *int32 `json:"value,omitzero" max:"2000000000"`
	// The same with the value of a PriorityClass; not both. If the class does not exist, all pods are protected.
	Name string `json:"name,omitzero"`
}

// NoEvictionPolicy is the meaning of the annotation [PreferNoEviction].
type NoEvictionPolicy string

// The meanings. The empty string is Preferred.
const (
	Preferred NoEvictionPolicy = "Preferred" // such a pod is moved after others of its priority
	Mandatory NoEvictionPolicy = "Mandatory" // such a pod is protected
)

// PodProtections disables protections that are on by default, and enables others. The names are the names of the rules.
type PodProtections struct {
	// The protections to disable.
	DefaultDisabled []string `json:"defaultDisabled,omitzero" enum:"*"`
	// The protections to enable.
	ExtraEnabled []string `json:"extraEnabled,omitzero" enum:"*"`
	// The arguments of protections.
	Config ProtectionsConfig `json:"config,omitzero"`
}

// Enums returns the valid values of fields.
func (PodProtections) Enums() map[string][]string {
	return map[string][]string{
		"defaultDisabled": {PodsWithLocalStorage, DaemonSetPods, SystemCriticalPods, FailedBarePods},
		"extraEnabled":    {PodsWithPVC, PodsWithoutPDB, PodsWithResourceClaims},
	}
}

// ProtectionsConfig are the arguments of single protections.
type ProtectionsConfig struct {
	// The arguments of `PodsWithPVC`.
	PodsWithPVC PVCProtection `json:"PodsWithPVC,omitzero"`
}

// PVCProtection limits the protection PodsWithPVC to claims of some storage classes, claims without a class, and claims
// that do not exist. The zero value limits nothing. It has no effect unless PodsWithPVC is enabled.
type PVCProtection struct {
	// The storage classes that `PodsWithPVC` protects.
	ProtectedStorageClasses []StorageClass `json:"protectedStorageClasses,omitzero"`
}

// StorageClass names a StorageClass.
type StorageClass struct {
	// A storage class that `PodsWithPVC` protects. Without the list it protects claims of all classes.
	//
	//page:default all
	Name string `json:"name" required:"name a StorageClass"`
}

// Evictor decides which rules of a profile protect a pod. The zero value has the default protections of the
// descheduler: mirror, static, and terminating pods, system-critical and bare pods, and pods of DaemonSets or with
// local storage; and pods with a default signal.
type Evictor struct {
	args EvictorArgs
	// The compiled selectors of args. nil matches everything. targets is nil without NodeFit.
	selector, namespaces, targets labels.Selector
	signals                       Signals
	// mustFit means that NodeFit applies to a strategy that moves a pod only if its replacement fits elsewhere.
	mustFit bool
}

// NewEvictor returns the Evictor for args. It validates them.
func NewEvictor(args EvictorArgs) (Evictor, error) {
	var found Findings
	found.Join("", args.Validate())
	found.Join("priorityThreshold", args.PriorityThreshold.Validate())
	if err := found.Err(); err != nil {
		return Evictor{}, err
	}
	e := Evictor{args: args}
	if args.LabelSelector != nil {
		e.selector = Selects(args.LabelSelector)
	}
	if s := Selects(args.NamespaceLabelSelector); !s.Empty() {
		e.namespaces = s
	}
	if s, err := labels.Parse(args.NodeSelector); err == nil && !s.Empty() && args.NodeFit {
		e.targets = s
	}
	return e, nil
}

// Args returns the arguments of NewEvictor.
func (e Evictor) Args() EvictorArgs { return e.args }

// WithFit returns e for a strategy that moves a pod only if its replacement fits on another node: NodeFit applies
// without nodeFit, except for pods that cannot be judged.
func (e Evictor) WithFit() Evictor {
	e.mustFit = true
	return e
}

// NodeFit reports whether NodeFit applies, and which nodes count.
func (e Evictor) NodeFit() (holds bool, to Targets) {
	return e.args.NodeFit || e.mustFit, Targets{Nodes: e.targets, Signals: e.signals}
}

// Refuses reports whether NodeFit protects a pod whose replacement fits nowhere else, or that cannot be judged.
func (e Evictor) Refuses(fits, judged bool) bool {
	return !fits && (e.args.NodeFit || e.mustFit && judged)
}

// moves reports whether a default protection is disabled.
func (e Evictor) moves(rule string, older bool) bool {
	return older || slices.Contains(e.args.PodProtections.DefaultDisabled, rule)
}

// protects reports whether an additional protection is enabled.
func (e Evictor) protects(rule string, older bool) bool {
	return older || slices.Contains(e.args.PodProtections.ExtraEnabled, rule)
}

// classes returns the storage classes that the protection PodsWithPVC is limited to, or none if it is not limited.
func (e Evictor) classes() []StorageClass {
	if !slices.Contains(e.args.PodProtections.ExtraEnabled, PodsWithPVC) {
		return nil
	}
	return e.args.PodProtections.Config.PodsWithPVC.ProtectedStorageClasses
}

// Lapses returns the first moment after now at which a protection of the pod expires: minPodAge, or a signal with a
// duration. It is zero if none expires, or the pod has not started.
func (e Evictor) Lapses(pod *corev1.Pod, now time.Time) time.Time {
	if pod.Status.StartTime == nil {
		return time.Time{}
	}
	first := e.signals.lapses(pod, now)
	if old := pod.Status.StartTime.Add(e.args.MinPodAge.Duration); old.After(now) && (first.IsZero() || old.Before(first)) {
		return old
	}
	return first
}

// Validate checks the values; each error is a *[FieldError].
func (a EvictorArgs) Validate() error {
	var found Findings
	found.Join("labelSelector", ValidateSelector(a.LabelSelector))
	found.Join("namespaceLabelSelector", ValidateSelector(a.NamespaceLabelSelector))
	found.Join("", validateNodeSelector(a.NodeSelector))
	older := ""
	switch {
	case a.EvictLocalStoragePods:
		older = "evictLocalStoragePods"
	case a.EvictDaemonSetPods:
		older = "evictDaemonSetPods"
	case a.EvictSystemCriticalPods:
		older = "evictSystemCriticalPods"
	case a.EvictFailedBarePods:
		older = "evictFailedBarePods"
	case a.IgnorePVCPods:
		older = "ignorePvcPods"
	case a.IgnorePodsWithoutPDB:
		older = "ignorePodsWithoutPDB"
	}
	if older != "" && len(a.PodProtections.DefaultDisabled)+len(a.PodProtections.ExtraEnabled) > 0 {
		found.Add(older, true, "cannot be used together with podProtections", "say it in podProtections")
	}
	return found.Err()
}

// Validate checks the values; each error is a *[FieldError].
func (t PriorityThreshold) Validate() error {
	var found Findings
	if t.Value != nil && t.Name != "" {
		found.Add("", nil, "has both a value and a name", "keep one")
	}
	return found.Err()
}

// Rule describes a protection to users.
type Rule struct {
	// Name is the rule, and Words describe the protected pods.
	Name, Words string
	// On means that it applies, Usual that it applies by default.
	On, Usual bool
}

// Rules returns every rule in the order of [Evictor.Protects].
func (e Evictor) Rules() []Rule {
	bare := "has no owner that would replace it"
	if e.moves(FailedBarePods, e.args.EvictFailedBarePods) {
		bare += ", and has not failed"
	}
	threshold := ""
	if least := e.args.PriorityThreshold.Value; least != nil {
		threshold = fmt.Sprintf("has a priority of %d or more", *least)
	} else if name := e.args.PriorityThreshold.Name; name != "" {
		threshold = fmt.Sprintf("has the priority of the PriorityClass %s or more; any pod, if there is no such class", name)
	}
	claim := "has a volume that is a PersistentVolumeClaim"
	if classes := e.classes(); len(classes) > 0 {
		var names []string
		for _, c := range classes {
			names = append(names, c.Name)
		}
		claim += fmt.Sprintf(" of the storage class %s, of none, or one that does not exist", strings.Join(names, " or "))
	}
	room := "would find no room on another node that is ready"
	if e.targets != nil {
		room += fmt.Sprintf(" and has labels that match %q", e.targets)
	}
	on, usual := func(rule, words string, on bool) Rule { return Rule{rule, words, on, false} },
		func(rule, words string, on bool) Rule { return Rule{rule, words, on, true} }
	a := &e.args
	rules := []Rule{
		usual(MirrorPods, "mirrors a pod that the kubelet runs from its own files", true),
		usual(StaticPods, "is run by the kubelet from its own files", true),
		usual(TerminatingPods, "is being deleted already", true),
		usual(SystemCriticalPods, fmt.Sprintf("has a priority of %d or more", SystemCritical),
			!e.moves(SystemCriticalPods, a.EvictSystemCriticalPods)),
		on(PriorityThresholdRule, threshold, threshold != ""),
		usual(FailedBarePods, bare, true),
		usual(PodsWithLocalStorage, "has a volume of the kind hostPath or emptyDir",
			!e.moves(PodsWithLocalStorage, a.EvictLocalStoragePods)),
		usual(DaemonSetPods, "belongs to a DaemonSet", !e.moves(DaemonSetPods, a.EvictDaemonSetPods)),
		on(PodsWithPVC, claim, e.protects(PodsWithPVC, a.IgnorePVCPods)),
		on(PodsWithoutPDB, "is selected by no PodDisruptionBudget", e.protects(PodsWithoutPDB, a.IgnorePodsWithoutPDB)),
		on(PodsWithResourceClaims, "has a resource claim", e.protects(PodsWithResourceClaims, false)),
		on(LabelSelectorRule, fmt.Sprintf("has labels that do not match %q", e.selector), e.selector != nil && !e.selector.Empty()),
		on(MinPodAgeRule, fmt.Sprintf("has not started, or less than %s ago", a.MinPodAge.Duration), a.MinPodAge.Duration > 0),
		on(MinReplicasRule, fmt.Sprintf("has exactly one owner, and that owner fewer than %d pods", a.MinReplicas), a.MinReplicas > 1),
		on(PreferNoEvictionRule, "has the annotation "+PreferNoEviction, a.NoEvictionPolicy == Mandatory),
	}
	rules = append(rules, e.signals.Rules(Protect)...)
	return append(rules,
		on(NamespaceSelectorRule, fmt.Sprintf("is in a namespace with labels that do not match %q", e.namespaces), e.namespaces != nil),
		usual(EvictAnnotationFalseRule, fmt.Sprintf("has the annotation %s with the value \"false\"", EvictAnnotation), true),
		on(NodeFitRule, room, a.NodeFit))
}
