package restart

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// sharesVolumes finds a volume that the replacement on another node would wait for, while the pod waits for the
// replacement.
func sharesVolumes(c candidate) string {
	for i, name := range claimNames(c.Pod) {
		claim := c.Claims[i]
		if claim == nil {
			return "there is no PersistentVolumeClaim " + name
		}
		if mode, alone := singleNode(claim); alone {
			return fmt.Sprintf("the PersistentVolumeClaim %s is %s: two pods on two nodes cannot use it", name, mode)
		}
	}
	for _, v := range c.Pod.Spec.Volumes {
		if isDisk(v) {
			return "the volume " + v.Name + " is a disk: two pods on two nodes cannot use it"
		}
	}
	return ""
}

// isDisk reports whether a volume is a disk without a claim, which only one node at a time can write to.
func isDisk(v corev1.Volume) bool {
	return v.AWSElasticBlockStore != nil || v.GCEPersistentDisk != nil || v.AzureDisk != nil || v.Cinder != nil || v.ISCSI != nil ||
		v.RBD != nil || v.FC != nil
}

// singleNode reports whether only one node at a time can use a claim, and the responsible access mode.
func singleNode(claim *corev1.PersistentVolumeClaim) (corev1.PersistentVolumeAccessMode, bool) {
	modes := claim.Status.AccessModes // the access modes of the volume
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

// claimNames returns the claims that the pod's volumes name. It omits ephemeral claims, one for each pod.
func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}
