package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/schemas"
)

// The annotations that a pod's owner may set. Those of the peer are understood, so that nothing has to be annotated anew.
const (
	// EvictAnnotation with the value false protects the pod. With any other value, the empty one included, it lifts every
	// protection of the profile but those by namespace and by NodeFit, as in the peer.
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
	if p := pod.Spec.Priority; !e.movesSystemCritical && p != nil && *p >= SystemCritical {
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
	case !e.movesFailedBare:
		return "it has no owner that would replace it"
	case pod.Status.Phase != corev1.PodFailed:
		return "it has no owner that would replace it, and has not failed"
	}
	return ""
}

func (e Evictor) localStorage(pod *corev1.Pod) string {
	if e.movesLocalStorage {
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
	if e.movesDaemonSets {
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
	case !e.protectsPVC:
		return ""
	case len(e.classes) > 0:
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
	if !e.protectsClaims || len(pod.Spec.ResourceClaims) == 0 {
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
