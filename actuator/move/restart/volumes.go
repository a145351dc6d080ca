package restart

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// sharesVolumes refuses a pod with a volume that its replacement, on another node, would wait for while the pod waits
// for the replacement.
func sharesVolumes(c candidate) *move.Refusal {
	const reason = schemas.ReasonRestartVolume
	for i, name := range claimNames(c.Pod) {
		claim := c.Claims[i]
		if claim == nil {
			return not(c, reason, "there is no PersistentVolumeClaim %s", name)
		}
		if mode, alone := singleNode(claim); alone {
			return not(c, reason, "the PersistentVolumeClaim %s is %s: two pods on two nodes cannot use it", name, mode)
		}
	}
	for _, v := range c.Pod.Spec.Volumes {
		if kind, alone := singleDisk(v); alone {
			return not(c, reason, "the volume %s is of type %s: two pods on two nodes cannot use it", v.Name, kind)
		}
	}
	return nil
}

// singleNode says whether only one node at a time can use a claim, and the access mode that causes it.
func singleNode(claim *corev1.PersistentVolumeClaim) (corev1.PersistentVolumeAccessMode, bool) {
	modes := claim.Status.AccessModes // those of the volume
	if len(modes) == 0 {
		modes = claim.Spec.AccessModes
	}
	if slices.Contains(modes, corev1.ReadWriteMany) {
		return "", false
	}
	for _, mode := range modes {
		if mode == corev1.ReadWriteOnce || mode == corev1.ReadWriteOncePod {
			return mode, true
		}
	}
	return "", false
}

// singleDisk says whether a volume without a claim is a disk that one node at a time writes to.
func singleDisk(v corev1.Volume) (kind string, is bool) {
	switch {
	case v.AWSElasticBlockStore != nil:
		return "awsElasticBlockStore", !v.AWSElasticBlockStore.ReadOnly
	case v.GCEPersistentDisk != nil:
		return "gcePersistentDisk", !v.GCEPersistentDisk.ReadOnly
	case v.AzureDisk != nil:
		return "azureDisk", v.AzureDisk.ReadOnly == nil || !*v.AzureDisk.ReadOnly
	case v.Cinder != nil:
		return "cinder", !v.Cinder.ReadOnly
	case v.ISCSI != nil:
		return "iscsi", !v.ISCSI.ReadOnly
	case v.RBD != nil:
		return "rbd", !v.RBD.ReadOnly
	case v.FC != nil:
		return "fc", !v.FC.ReadOnly
	}
	return "", false
}

// claimNames lists the claims that the pod's volumes name. Ephemeral claims, one for each pod, are not among them.
func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}
