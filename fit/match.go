package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// match is the existing volume that a waiting claim gets on a node: the one that is reserved for it, or else the
// smallest that suits, the first by name of several; nil if there is none. Those that are taken are left out.
func (s *storage) match(claim *corev1.PersistentVolumeClaim, h *host, taken map[string]bool) *volume {
	selector := labels.Everything()
	if claim.Spec.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(claim.Spec.Selector); err != nil {
			return nil
		}
	}
	var best *volume
	for name, v := range s.ofClass[classOf(claim)] {
		if taken[name] || !isLargeEnough(v, claim) || !isSameKind(v, claim) || v.DeletionTimestamp != nil {
			continue
		}
		switch {
		case isReserved(v, claim):
			if !v.usableOn(h.node.Labels) {
				return nil
			}
			return v
		case v.Spec.ClaimRef != nil, v.Status.Phase != corev1.VolumeAvailable, !selector.Matches(labels.Set(v.Labels)),
			!hasModes(v, claim), !v.usableOn(h.node.Labels):
			continue
		}
		if best == nil || isBefore(v, best) {
			best = v
		}
	}
	return best
}

// isLargeEnough says whether a volume has what a claim asks for.
func isLargeEnough(v *volume, claim *corev1.PersistentVolumeClaim) bool {
	has, want := v.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return has.Cmp(want) >= 0
}

// isSameKind says whether both are file systems or both are blocks, with the same attributes class.
func isSameKind(v *volume, claim *corev1.PersistentVolumeClaim) bool {
	return orDefault(v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) ==
		orDefault(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) &&
		orDefault(v.Spec.VolumeAttributesClassName, "") == orDefault(claim.Spec.VolumeAttributesClassName, "")
}

func orDefault[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// isReserved says whether a volume is meant for a claim.
func isReserved(v *volume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == claim.Name && ref.Namespace == claim.Namespace &&
		(ref.UID == "" || ref.UID == claim.UID)
}

// hasModes says whether a volume has all access modes that a claim asks for.
func hasModes(v *volume, claim *corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(claim.Spec.AccessModes, func(mode corev1.PersistentVolumeAccessMode) bool {
		return !slices.Contains(v.Spec.AccessModes, mode)
	})
}

// isBefore orders volumes by size, then by name.
func isBefore(v, other *volume) bool {
	x, y := v.Spec.Capacity[corev1.ResourceStorage], other.Spec.Capacity[corev1.ResourceStorage]
	if order := x.Cmp(y); order != 0 {
		return order < 0
	}
	return v.Name < other.Name
}
