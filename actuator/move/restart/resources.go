package restart

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
)

// sharesVolumes finds a volume that the replacement, on another node, would wait for while the pod waits for the replacement.
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
		if kind, alone := singleDisk(v); alone {
			return fmt.Sprintf("the volume %s is of type %s: two pods on two nodes cannot use it", v.Name, kind)
		}
	}
	return ""
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

// exceedsQuota finds a quota of the namespace that does not admit one more pod like this one. A quota for priority classes or other
// objects is not looked at: when it forbids the replacement, the Deployment has the condition ReplicaFailure, and the move is
// taken back.
func exceedsQuota(c candidate) string {
	more := usageOf(c.Pod)
	for _, q := range c.Quotas {
		outside := func(s corev1.ResourceQuotaScope) bool { return !inScope(s, c.Pod) }
		if q.Spec.ScopeSelector != nil || slices.ContainsFunc(q.Spec.Scopes, outside) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			needed, counts := more[name]
			used, hard := q.Status.Used[name], q.Status.Hard[name]
			total := used.DeepCopy()
			if total.Add(needed); counts && total.Cmp(hard) > 0 {
				return fmt.Sprintf("resourcequota %s has no room for one more: %s, %s of %s are used",
					q.Name, name, used.String(), hard.String())
			}
		}
	}
	return ""
}

// inScope says whether the pod is in the scope of a quota. It is in none that is unknown here.
func inScope(s corev1.ResourceQuotaScope, pod *corev1.Pod) bool {
	switch s {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return pod.Status.QOSClass != corev1.PodQOSBestEffort
	}
	return false
}

// usageOf is the usage of one more pod like this one, by the names that quotas use.
func usageOf(pod *corev1.Pod) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	out := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	for name, quantity := range podresources.PodRequests(pod, podresources.PodResourcesOptions{}) {
		out["requests."+name] = quantity
		if !strings.Contains(string(name), "/") { // native resources have a short name too
			out[name] = quantity
		}
	}
	for name, quantity := range podresources.PodLimits(pod, podresources.PodResourcesOptions{}) {
		out["limits."+name] = quantity
	}
	return out
}
