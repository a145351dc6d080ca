package cluster

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The annotations that say where a claim or a volume is, which class it has, and which class is the default. They are
// those that package fit reads.
func storageAnnotations() []string {
	return []string{
		"pv.kubernetes.io/bind-completed", "volume.kubernetes.io/selected-node", corev1.BetaStorageClassAnnotation,
		"storageclass.kubernetes.io/is-default-class",
	}
}

// pruneOther prunes the other kinds. It keeps the fields that decide whether a pod fits on a node, and the fields that rules of
// the policy read.
func pruneOther(object any) {
	switch o := object.(type) {
	case *corev1.Namespace:
		*o = corev1.Namespace{TypeMeta: o.TypeMeta, ObjectMeta: bare(o.ObjectMeta)}
	case *schedulingv1.PriorityClass:
		*o = schedulingv1.PriorityClass{TypeMeta: o.TypeMeta, ObjectMeta: bare(o.ObjectMeta), Value: o.Value}
	case *corev1.PersistentVolumeClaim:
		o.ObjectMeta = bare(o.ObjectMeta)
		o.Labels = nil
		o.Status = corev1.PersistentVolumeClaimStatus{Phase: o.Status.Phase}
	case *corev1.PersistentVolume:
		pruneVolume(o)
	case *storagev1.StorageClass:
		*o = storagev1.StorageClass{
			TypeMeta: o.TypeMeta, ObjectMeta: bare(o.ObjectMeta), Provisioner: o.Provisioner,
			VolumeBindingMode: o.VolumeBindingMode, AllowedTopologies: o.AllowedTopologies,
		}
	case *storagev1.CSINode:
		o.ObjectMeta = bare(o.ObjectMeta)
		for i := range o.Spec.Drivers {
			d := o.Spec.Drivers[i]
			o.Spec.Drivers[i] = storagev1.CSINodeDriver{Name: d.Name, Allocatable: d.Allocatable}
		}
	case *storagev1.CSIDriver:
		*o = storagev1.CSIDriver{
			TypeMeta: o.TypeMeta, ObjectMeta: bare(o.ObjectMeta),
			Spec: storagev1.CSIDriverSpec{StorageCapacity: o.Spec.StorageCapacity},
		}
	case *storagev1.CSIStorageCapacity:
		o.ObjectMeta = bare(o.ObjectMeta)
	case *storagev1.VolumeAttachment:
		*o = storagev1.VolumeAttachment{
			TypeMeta: o.TypeMeta, ObjectMeta: bare(o.ObjectMeta), Spec: storagev1.VolumeAttachmentSpec{
				Attacher: o.Spec.Attacher, NodeName: o.Spec.NodeName,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: o.Spec.Source.PersistentVolumeName},
			},
		}
	}
}

// pruneVolume keeps of the many kinds of volumes only what the one is attached by that counts towards a limit.
func pruneVolume(v *corev1.PersistentVolume) {
	s := v.Spec
	v.ObjectMeta = bare(v.ObjectMeta)
	v.Spec = corev1.PersistentVolumeSpec{
		Capacity: s.Capacity, AccessModes: s.AccessModes, StorageClassName: s.StorageClassName, VolumeMode: s.VolumeMode,
		NodeAffinity: s.NodeAffinity, VolumeAttributesClassName: s.VolumeAttributesClassName,
	}
	if r := s.ClaimRef; r != nil {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: r.Namespace, Name: r.Name, UID: r.UID}
	}
	if s.CSI != nil {
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: s.CSI.Driver, VolumeHandle: s.CSI.VolumeHandle}
	}
	v.Status = corev1.PersistentVolumeStatus{Phase: v.Status.Phase}
}

// bare keeps what tells an object apart, its age, its owners and its labels, and the annotations about storage.
func bare(m metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, OwnerReferences: m.OwnerReferences,
	}
	for _, key := range storageAnnotations() {
		if value, set := m.Annotations[key]; set {
			if kept.Annotations == nil {
				kept.Annotations = map[string]string{}
			}
			kept.Annotations[key] = value
		}
	}
	return kept
}
