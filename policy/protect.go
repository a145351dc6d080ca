package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// The annotations that a pod's owner may set. Those of the descheduler are understood, so that nothing has to be annotated anew.
const (
	// EvictAnnotation with the value false protects the pod. With any other value, the empty one included, it lifts every
	// protection of the profile but those by namespace and by NodeFit, as in the descheduler.
	EvictAnnotation = "descheduler.alpha.kubernetes.io/evict"
	// PreferNoEviction asks to move other pods first, whatever its value, or protects the pod; see [NoEvictionPolicy].
	PreferNoEviction = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
)

// The rules, as they are named in a [schemas.Protection]. Those that a policy can name have the same name there.
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
	// NodeNotUsableRule protects a pod on a node from which nothing may be moved. It is the watcher's.
	NodeNotUsableRule = "NodeNotUsable"
)

// Protects lists what forbids to move the pod at the time now, every rule that applies, always in the same order.
// Nothing: it may be moved.
//
// With nil facts it looks at the pod alone, and the rules that ask for [Facts] do not apply: that is the second look, at
// a pod that was judged by all rules before. NodeFit is asked last, and only about a pod that nothing else protects.
// Whether the pod has ended, and whether a PodDisruptionBudget allows a disruption, is not its business.
func (e Evictor) Protects(pod *corev1.Pod, now time.Time, facts Facts) []schemas.Protection {
	return e.ProtectsBut(nil, pod, now, facts)
}

// ProtectsBut is [Evictor.Protects] without the rules that are overridden. Those that are not [Overridable] hold all the same.
func (e Evictor) ProtectsBut(overridden []string, pod *corev1.Pod, now time.Time, facts Facts) []schemas.Protection {
	forced, refused := evictAnnotation(pod)
	found := physical(pod)
	if !forced {
		found = e.configured(found, pod, now, facts)
	}
	if detail := e.namespaceNotSelected(pod, facts); detail != "" {
		found = append(found, schemas.Protection{Rule: NamespaceSelectorRule, Detail: detail})
	}
	if refused {
		found = append(found, schemas.Protection{Rule: EvictAnnotationFalseRule,
			Detail: fmt.Sprintf("its annotation %s is %q", EvictAnnotation, pod.Annotations[EvictAnnotation])})
	}
	found = without(found, overridden)
	if slices.Contains(overridden, NodeFitRule) {
		return found
	}
	if detail := e.fitsNowhere(found, pod, facts); detail != "" {
		found = append(found, schemas.Protection{Rule: NodeFitRule, Detail: detail})
	}
	return found
}

// without leaves out the protections by rules that are overridden and can be.
func without(found []schemas.Protection, overridden []string) []schemas.Protection {
	if len(overridden) == 0 {
		return found
	}
	return slices.DeleteFunc(found, func(p schemas.Protection) bool {
		return slices.Contains(overridden, p.Rule) && slices.Contains(Overridable(), p.Rule)
	})
}

// evictAnnotation says whether the pod's owner wants it moved whatever the profile says, or not moved at all.
func evictAnnotation(pod *corev1.Pod) (forced, refused bool) {
	value, set := pod.Annotations[EvictAnnotation]
	refused = set && strings.EqualFold(value, "false")
	return set && !refused, refused
}

// physical are the rules that no setting and no annotation lifts, because evicting such a pod achieves nothing: the
// kubelet runs the first two kinds from its own files, and the third is on its way out.
func physical(pod *corev1.Pod) []schemas.Protection {
	var found []schemas.Protection
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		found = append(found, schemas.Protection{Rule: MirrorPods, Detail: "it mirrors a static pod"})
	}
	if source, set := pod.Annotations[sourceAnnotation]; set && source != "api" {
		found = append(found, schemas.Protection{Rule: StaticPods,
			Detail: fmt.Sprintf("the kubelet runs it from its own source %q", source)})
	}
	if pod.DeletionTimestamp != nil {
		found = append(found, schemas.Protection{Rule: TerminatingPods, Detail: "it is being deleted already"})
	}
	return found
}

// sourceAnnotation is where the kubelet notes how it came to know of a pod.
const sourceAnnotation = "kubernetes.io/config.source"

// configured appends the rules that the profile sets.
func (e Evictor) configured(
	found []schemas.Protection, pod *corev1.Pod, now time.Time, facts Facts,
) []schemas.Protection {
	rules := [...]struct {
		name   string
		detail string
	}{
		{SystemCriticalPods, e.systemCritical(pod)},
		{PriorityThresholdRule, e.priority(pod, facts)},
		{FailedBarePods, e.bare(pod)},
		{PodsWithLocalStorage, e.localStorage(pod)},
		{DaemonSetPods, e.daemonSet(pod)},
		{PodsWithPVC, e.claimsVolume(pod, facts)},
		{PodsWithoutPDB, e.notBudgeted(pod, facts)},
		{PodsWithResourceClaims, e.claimsResource(pod)},
		{LabelSelectorRule, e.notSelected(pod)},
		{MinPodAgeRule, e.tooYoung(pod, now)},
		{MinReplicasRule, e.tooFew(pod, facts)},
		{PreferNoEvictionRule, e.prefersNoEviction(pod)},
	}
	for _, r := range rules {
		if r.detail != "" {
			found = append(found, schemas.Protection{Rule: r.name, Detail: r.detail})
		}
	}
	return e.signals.protects(found, pod, now)
}

// The rules. Each says what it found on the pod, or nothing when it does not apply.

func (e Evictor) systemCritical(pod *corev1.Pod) string {
	if p := pod.Spec.Priority; !e.moves(SystemCriticalPods, e.args.EvictSystemCriticalPods) && p != nil && *p >= SystemCritical {
		return fmt.Sprintf("its priority %d is system-critical: at least %d", *p, SystemCritical)
	}
	return ""
}

func (e Evictor) priority(pod *corev1.Pod, facts Facts) string {
	p, threshold := pod.Spec.Priority, e.args.PriorityThreshold.Value
	if threshold == nil {
		return e.priorityOfClass(pod, facts)
	}
	if p == nil || *p < *threshold {
		return ""
	}
	return fmt.Sprintf("its priority %d is not below the threshold %d", *p, *threshold)
}

func (e Evictor) bare(pod *corev1.Pod) string {
	switch {
	case len(pod.OwnerReferences) > 0:
		return ""
	case !e.moves(FailedBarePods, e.args.EvictFailedBarePods):
		return "it has no owner that would replace it"
	case pod.Status.Phase != corev1.PodFailed:
		return "it has no owner that would replace it, and has not failed"
	}
	return ""
}

func (e Evictor) localStorage(pod *corev1.Pod) string {
	if e.moves(PodsWithLocalStorage, e.args.EvictLocalStoragePods) {
		return ""
	}
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.HostPath != nil:
			return fmt.Sprintf("its volume %s is a hostPath", v.Name)
		case v.EmptyDir != nil:
			return fmt.Sprintf("its volume %s is an emptyDir", v.Name)
		}
	}
	return ""
}

func (e Evictor) daemonSet(pod *corev1.Pod) string {
	if e.moves(DaemonSetPods, e.args.EvictDaemonSetPods) {
		return ""
	}
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == "DaemonSet" {
			return fmt.Sprintf("it belongs to the DaemonSet %s", owner.Name)
		}
	}
	return ""
}

func (e Evictor) claimsVolume(pod *corev1.Pod, facts Facts) string {
	switch {
	case !e.protects(PodsWithPVC, e.args.IgnorePVCPods):
		return ""
	case len(e.classes()) > 0:
		return e.claimsProtectedClass(pod, facts)
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return fmt.Sprintf("its volume %s is the claim %s", v.Name, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return ""
}

func (e Evictor) claimsResource(pod *corev1.Pod) string {
	if !e.protects(PodsWithResourceClaims, false) || len(pod.Spec.ResourceClaims) == 0 {
		return ""
	}
	return fmt.Sprintf("it has the resource claim %s", pod.Spec.ResourceClaims[0].Name)
}

func (e Evictor) notSelected(pod *corev1.Pod) string {
	if e.selector == nil || e.selector.Matches(labels.Set(pod.Labels)) {
		return ""
	}
	return fmt.Sprintf("its labels do not match %s", e.selector)
}

func (e Evictor) tooYoung(pod *corev1.Pod, now time.Time) string {
	least := e.args.MinPodAge.Duration
	switch started := pod.Status.StartTime; {
	case least <= 0:
		return ""
	case started == nil:
		return "it has not started"
	case now.Sub(started.Time) < least:
		return fmt.Sprintf("it started at %s, less than %s ago", started.UTC().Format(time.RFC3339), least)
	}
	return ""
}

func (e Evictor) prefersNoEviction(pod *corev1.Pod) string {
	if _, set := pod.Annotations[PreferNoEviction]; set && e.args.NoEvictionPolicy == Mandatory {
		return "it has the annotation " + PreferNoEviction
	}
	return ""
}

// Facts answers what some protections need to know beyond the pod: look-ups in what is known of the cluster at the moment
// of the question. Two questions may be answered from different moments. An implementation answers any number of
// goroutines at once, changes nothing that it is given, and may know less than there is, but says nothing that it does
// not know.
type Facts interface {
	// Replicas counts the pods that have an owner reference with that UID, of any phase.
	Replicas(owner types.UID) int
	// Budgeted says whether a PodDisruptionBudget of the pod's namespace selects the pod.
	Budgeted(pod *corev1.Pod) bool
	// StorageClass is the class that a PersistentVolumeClaim names; empty if it names none. found is false if there is no
	// such claim.
	StorageClass(namespace, claim string) (class string, found bool)
	// Priority is the value of a PriorityClass, and whether there is one of that name.
	Priority(class string) (value int32, found bool)
	// NamespaceLabels are the labels of a namespace, and whether there is one of that name.
	NamespaceLabels(name string) (of labels.Set, found bool)
	// Elsewhere says whether the scheduler would place the pod's replacement on a ready node that nodes selects, other
	// than the one that the pod runs on. nil selects all. why says in words what keeps it away; it is empty if it fits.
	Elsewhere(pod *corev1.Pod, nodes labels.Selector) (fits bool, why string)
}

// Needs are the kinds of facts that an [Evictor] asks for. The zero value is none: pods are judged alone.
type Needs struct {
	Replicas, Budgets, StorageClasses, PriorityClasses, Namespaces, Room bool
}

// Needs says which facts can change what [Evictor.Protects] answers.
func (e Evictor) Needs() Needs {
	return Needs{
		Replicas:        e.args.MinReplicas > 1,
		Budgets:         e.protects(PodsWithoutPDB, e.args.IgnorePodsWithoutPDB),
		StorageClasses:  len(e.classes()) > 0,
		PriorityClasses: e.args.PriorityThreshold.Name != "",
		Namespaces:      e.namespaces != nil,
		Room:            e.args.NodeFit,
	}
}

// The rules that need to know more than the pod. Each says what it found, or nothing when it does not apply. Without
// facts none of them applies.

// priorityOfClass is for a threshold that is the name of a class. One that does not exist protects every pod: where the
// threshold is meant to be is not known.
func (e Evictor) priorityOfClass(pod *corev1.Pod, facts Facts) string {
	name := e.args.PriorityThreshold.Name
	if name == "" || facts == nil {
		return ""
	}
	threshold, found := facts.Priority(name)
	switch p := pod.Spec.Priority; {
	case !found:
		return fmt.Sprintf("the PriorityClass %s, which is the threshold, does not exist", name)
	case p == nil || *p < threshold:
		return ""
	default:
		return fmt.Sprintf("its priority %d is not below the threshold %d, that of the PriorityClass %s", *p, threshold, name)
	}
}

// claimsProtectedClass is for claims of some storage classes only. A claim of which the class is not known might be one.
func (e Evictor) claimsProtectedClass(pod *corev1.Pod, facts Facts) string {
	if facts == nil {
		return ""
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := v.PersistentVolumeClaim.ClaimName
		class, found := facts.StorageClass(pod.Namespace, claim)
		switch {
		case !found:
			return fmt.Sprintf("its volume %s is the claim %s, which does not exist", v.Name, claim)
		case class == "":
			return fmt.Sprintf("its volume %s is the claim %s, which has no storage class", v.Name, claim)
		case slices.Contains(e.classes(), StorageClass{class}):
			return fmt.Sprintf("its volume %s is the claim %s of the storage class %s", v.Name, claim, class)
		}
	}
	return ""
}

func (e Evictor) notBudgeted(pod *corev1.Pod, facts Facts) string {
	if !e.protects(PodsWithoutPDB, e.args.IgnorePodsWithoutPDB) || facts == nil || facts.Budgeted(pod) {
		return ""
	}
	return "no PodDisruptionBudget selects it"
}

// tooFew asks for the pods of the only owner. A pod with several owners, or none, is not one of a number.
func (e Evictor) tooFew(pod *corev1.Pod, facts Facts) string {
	least := e.args.MinReplicas
	if least <= 1 || facts == nil || len(pod.OwnerReferences) != 1 {
		return ""
	}
	owner := pod.OwnerReferences[0]
	n := facts.Replicas(owner.UID)
	if n < 0 || uint(n) >= least {
		return ""
	}
	return fmt.Sprintf("the %s %s has %d of the %d pods that it must have", owner.Kind, owner.Name, n, least)
}

func (e Evictor) namespaceNotSelected(pod *corev1.Pod, facts Facts) string {
	if e.namespaces == nil || facts == nil {
		return ""
	}
	of, found := facts.NamespaceLabels(pod.Namespace)
	switch {
	case !found:
		return fmt.Sprintf("its namespace %s is not known", pod.Namespace)
	case !e.namespaces.Matches(of):
		return fmt.Sprintf("the labels of its namespace %s do not match %s", pod.Namespace, e.namespaces)
	}
	return ""
}

// fitsNowhere costs more than all other rules together, so it is asked of a pod that nothing else protects.
func (e Evictor) fitsNowhere(found []schemas.Protection, pod *corev1.Pod, facts Facts) string {
	if !e.args.NodeFit || facts == nil || len(found) > 0 {
		return ""
	}
	if fits, why := facts.Elsewhere(pod, e.targets); !fits {
		return why
	}
	return ""
}
