package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// The annotations of the descheduler that the owner of a pod may set.
const (
	// EvictAnnotation with the value false protects the pod. With any other value, including the empty one, it lifts
	// every protection of the profile except the namespace selector and NodeFit, as in the descheduler.
	EvictAnnotation = "descheduler.alpha.kubernetes.io/evict"
	// PreferNoEviction, with any value, requests that other pods move first, or protects the pod; see
	// [NoEvictionPolicy].
	PreferNoEviction = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
)

// The names of the rules in a [schemas.Protection] and in a policy.
const (
	MirrorPods               = "MirrorPods"
	StaticPods               = "StaticPods"
	TerminatingPods          = "TerminatingPods"
	SystemCriticalPods       = "SystemCriticalPods"
	PriorityThresholdRule    = "PriorityThreshold"
	FailedBarePods           = "FailedBarePods"
	PodsWithLocalStorage     = "PodsWithLocalStorage"
	DaemonSetPods            = "DaemonSetPods"
	PodsWithPVC              = "PodsWithPVC"
	PodsWithoutPDB           = "PodsWithoutPDB"
	PodsWithResourceClaims   = "PodsWithResourceClaims"
	LabelSelectorRule        = "LabelSelector"
	MinPodAgeRule            = "MinPodAge"
	MinReplicasRule          = "MinReplicas"
	PreferNoEvictionRule     = "PreferNoEviction"
	SignalRule               = "Signal"
	NamespaceSelectorRule    = "NamespaceLabelSelector"
	EvictAnnotationFalseRule = "EvictAnnotationFalse"
	NodeFitRule              = "NodeFit"
	// NodeNotUsableRule protects the pods of a node that the policy does not select, that is not ready, or that is
	// excluded. Watcher and actuator apply it.
	NodeNotUsableRule = "NodeNotUsable"
)

// Protects returns all rules that protect the pod at the time now, always in the same order, or none if it may move.
//
// With nil facts it judges the pod alone: the rules that need [Facts] do not apply, as for a maintenance. Watcher and
// actuator judge with facts. NodeFit is checked last, and only for a pod that nothing else protects. It does not check
// whether the pod has ended, or whether a PodDisruptionBudget allows a disruption.
func (e Evictor) Protects(pod *corev1.Pod, now time.Time, facts Facts) []schemas.Protection {
	return e.ProtectsBut(nil, pod, now, facts)
}

// ProtectsBut is [Evictor.Protects] without the overridden rules. Rules that are not [Overridable] always apply.
func (e Evictor) ProtectsBut(overridden []string, pod *corev1.Pod, now time.Time, facts Facts) []schemas.Protection {
	l := look{e: &e, pod: pod, now: now, facts: facts}
	value, annotated := pod.Annotations[EvictAnnotation]
	refused := annotated && strings.EqualFold(value, "false")
	l.unmovable()
	if !annotated || refused { // else the annotation lifts them
		l.priority()
		l.owner()
		l.volumes()
		l.others()
		l.age()
		l.replicas()
		if _, set := pod.Annotations[PreferNoEviction]; set && e.args.NoEvictionPolicy == Mandatory {
			l.add(PreferNoEvictionRule, "it has the annotation %s", PreferNoEviction)
		}
		l.found = e.signals.protects(l.found, pod, now)
	}
	l.namespace()
	if refused {
		l.add(EvictAnnotationFalseRule, "its annotation %s is %q", EvictAnnotation, value)
	}
	if len(overridden) > 0 {
		l.found = slices.DeleteFunc(l.found, func(p schemas.Protection) bool {
			return slices.Contains(overridden, p.Rule) && slices.Contains(Overridable(), p.Rule)
		})
	}
	if holds, to := e.NodeFit(); holds && facts != nil && len(l.found) == 0 && !slices.Contains(overridden, NodeFitRule) {
		if fits, judged, why := facts.Elsewhere(pod, to); e.Refuses(fits, judged) { // costs more than all other rules together
			l.add(NodeFitRule, "%s", why)
		}
	}
	return l.found
}

// look judges one pod once. Its methods append to found, in the order of [Evictor.Rules].
type look struct {
	e     *Evictor
	pod   *corev1.Pod
	now   time.Time
	facts Facts
	found []schemas.Protection
}

func (l *look) add(rule, format string, values ...any) {
	l.found = append(l.found, schemas.Protection{Rule: rule, Detail: fmt.Sprintf(format, values...)})
}

// unmovable applies the rules that no setting and no annotation lifts, because evicting such a pod achieves nothing:
// the kubelet runs the first two kinds from its own files, and the third is already terminating.
func (l *look) unmovable() {
	if _, mirror := l.pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		l.add(MirrorPods, "it mirrors a static pod")
	}
	const source = "kubernetes.io/config.source" // the source of the pod for the kubelet
	if from, set := l.pod.Annotations[source]; set && from != "api" {
		l.add(StaticPods, "the kubelet runs it from its own source %q", from)
	}
	if l.pod.DeletionTimestamp != nil {
		l.add(TerminatingPods, "it is being deleted already")
	}
}

func (l *look) priority() {
	p := l.pod.Spec.Priority
	if p != nil && *p >= SystemCritical && !l.e.moves(SystemCriticalPods, l.e.args.EvictSystemCriticalPods) {
		l.add(SystemCriticalPods, "its priority %d is system-critical: at least %d", *p, SystemCritical)
	}
	switch t := l.e.args.PriorityThreshold; {
	case t.Value != nil && p != nil && *p >= *t.Value:
		l.add(PriorityThresholdRule, "its priority %d is not below the threshold %d", *p, *t.Value)
	case t.Value == nil && t.Name != "" && l.facts != nil:
		threshold, found := l.facts.Priority(t.Name)
		if !found { // the threshold is unknown
			l.add(PriorityThresholdRule, "the PriorityClass %s, which is the threshold, does not exist", t.Name)
		} else if p != nil && *p >= threshold {
			l.add(PriorityThresholdRule, "its priority %d is not below the threshold %d of the PriorityClass %s",
				*p, threshold, t.Name)
		}
	}
}

func (l *look) owner() {
	if len(l.pod.OwnerReferences) == 0 {
		if !l.e.moves(FailedBarePods, l.e.args.EvictFailedBarePods) {
			l.add(FailedBarePods, "it has no owner that would replace it")
		} else if l.pod.Status.Phase != corev1.PodFailed {
			l.add(FailedBarePods, "it has no owner that would replace it, and has not failed")
		}
	}
}

func (l *look) volumes() {
	volumes := l.pod.Spec.Volumes
	local := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.HostPath != nil || v.EmptyDir != nil })
	if local >= 0 && !l.e.moves(PodsWithLocalStorage, l.e.args.EvictLocalStoragePods) {
		kind := "a hostPath"
		if volumes[local].EmptyDir != nil {
			kind = "an emptyDir"
		}
		l.add(PodsWithLocalStorage, "its volume %s is %s", volumes[local].Name, kind)
	}
	daemon := slices.IndexFunc(l.pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
	if daemon >= 0 && !l.e.moves(DaemonSetPods, l.e.args.EvictDaemonSetPods) {
		l.add(DaemonSetPods, "it belongs to the DaemonSet %s", l.pod.OwnerReferences[daemon].Name)
	}
	if !l.e.protects(PodsWithPVC, l.e.args.IgnorePVCPods) {
		return
	}
	for _, v := range volumes {
		if v.PersistentVolumeClaim != nil && l.claim(v.Name, v.PersistentVolumeClaim.ClaimName) {
			return
		}
	}
}

// claim judges one claim, and reports whether it protects the pod. A claim with an unknown class may be protected.
func (l *look) claim(volume, claim string) bool {
	before, classes := len(l.found), l.e.classes()
	if len(classes) == 0 {
		l.add(PodsWithPVC, "its volume %s is the claim %s", volume, claim)
	} else if l.facts != nil {
		switch class, found := l.facts.StorageClass(l.pod.Namespace, claim); {
		case !found:
			l.add(PodsWithPVC, "its volume %s is the claim %s, which does not exist", volume, claim)
		case class == "":
			l.add(PodsWithPVC, "its volume %s is the claim %s, which has no storage class", volume, claim)
		case slices.Contains(classes, StorageClass{class}):
			l.add(PodsWithPVC, "its volume %s is the claim %s of the storage class %s", volume, claim, class)
		}
	}
	return len(l.found) > before
}

func (l *look) others() {
	if l.e.protects(PodsWithoutPDB, l.e.args.IgnorePodsWithoutPDB) && l.facts != nil && !l.facts.Budgeted(l.pod) {
		l.add(PodsWithoutPDB, "no PodDisruptionBudget selects it")
	}
	if claims := l.pod.Spec.ResourceClaims; len(claims) > 0 && l.e.protects(PodsWithResourceClaims, false) {
		l.add(PodsWithResourceClaims, "it has the resource claim %s", claims[0].Name)
	}
	if l.e.selector != nil && !l.e.selector.Matches(labels.Set(l.pod.Labels)) {
		l.add(LabelSelectorRule, "its labels do not match %s", l.e.selector)
	}
}

func (l *look) age() {
	if least := l.e.args.MinPodAge.Duration; least > 0 {
		if started := l.pod.Status.StartTime; started == nil {
			l.add(MinPodAgeRule, "it has not started")
		} else if l.now.Sub(started.Time) < least {
			l.add(MinPodAgeRule, "it started at %s, less than %s ago", started.UTC().Format(time.RFC3339), least)
		}
	}
}

func (l *look) replicas() {
	least := l.e.args.MinReplicas
	if least > 1 && l.facts != nil && len(l.pod.OwnerReferences) == 1 { // a pod with several owners does not count
		owner := l.pod.OwnerReferences[0]
		if n := l.facts.Replicas(owner.UID); n >= 0 && uint(n) < least {
			l.add(MinReplicasRule, "the %s %s has %d of the %d pods that it must have", owner.Kind, owner.Name, n, least)
		}
	}
}

func (l *look) namespace() {
	if l.e.namespaces == nil || l.facts == nil {
		return
	}
	switch of, found := l.facts.NamespaceLabels(l.pod.Namespace); {
	case !found:
		l.add(NamespaceSelectorRule, "its namespace %s is not known", l.pod.Namespace)
	case !l.e.namespaces.Matches(of):
		l.add(NamespaceSelectorRule, "the labels of its namespace %s do not match %s", l.pod.Namespace, l.e.namespaces)
	}
}

// Facts answers questions of some protections about the environment of a pod, from caches: two answers may be from
// different moments. Implementations are safe for concurrent use.
type Facts interface {
	// Replicas returns the number of pods with an owner reference with that UID, in any phase.
	Replicas(owner types.UID) int
	// Budgeted reports whether a PodDisruptionBudget of the pod's namespace selects the pod.
	Budgeted(pod *corev1.Pod) bool
	// StorageClass returns the class of a PersistentVolumeClaim, or "" if it names none. found is false if there is no
	// such claim.
	StorageClass(namespace, claim string) (class string, found bool)
	// Priority returns the value of a PriorityClass, and whether it exists.
	Priority(class string) (value int32, found bool)
	// NamespaceLabels returns the labels of a namespace, and whether it exists.
	NamespaceLabels(name string) (of labels.Set, found bool)
	// Elsewhere reports whether the scheduler could place the pod's replacement on one of the targets other than its
	// current node. why is the reason in words if it could not. judged is false if the pod cannot be judged.
	Elsewhere(pod *corev1.Pod, to Targets) (fits, judged bool, why string)
}

// Targets are the nodes that can take the replacement of a pod: the ready nodes that Nodes selects, except those that a
// maintenance or a signal closes, see [Signals.ClosesNode].
type Targets struct {
	Nodes   labels.Selector // nil selects all
	Signals Signals
}

// Needs are the kinds of facts that an [Evictor] reads. The zero value is none: pods are judged alone.
type Needs struct {
	Replicas, Budgets, StorageClasses, PriorityClasses, Namespaces, Room bool
}

// Needs returns the facts that can change the result of [Evictor.Protects].
func (e Evictor) Needs() Needs {
	return Needs{
		Replicas:        e.args.MinReplicas > 1,
		Budgets:         e.protects(PodsWithoutPDB, e.args.IgnorePodsWithoutPDB),
		StorageClasses:  len(e.classes()) > 0,
		PriorityClasses: e.args.PriorityThreshold.Name != "",
		Namespaces:      e.namespaces != nil,
		Room:            e.args.NodeFit || e.mustFit,
	}
}
