package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddVolumes creates n PersistentVolumes of a storage class, which may be empty. Each is for one claim and one node.
func (c *Cluster) AddVolumes(ctx context.Context, n int, class string) error {
	for i := range n {
		volume := newVolume(fmt.Sprintf("volume-%02d", i), corev1.ReadWriteOnce)
		volume.Spec.StorageClassName = class
		if _, err := c.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("add %d volumes: %w", n, err)
		}
	}
	return nil
}

// AddClaim creates a PersistentVolumeClaim and its volume, which is on no particular node. It returns the claim as a volume of a
// pod.
func (c *Cluster) AddClaim(
	ctx context.Context, namespace, name string, mode corev1.PersistentVolumeAccessMode,
) (used corev1.Volume, err error) {
	volume := newVolume(namespace+"-"+name, mode)
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
	if _, err = c.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err == nil {
		_, err = c.client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: volume.Spec.AccessModes, VolumeName: volume.Name, StorageClassName: new(""),
				Resources: corev1.VolumeResourceRequirements{Requests: volume.Spec.Capacity},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return used, fmt.Errorf("add claim %s/%s: %w", namespace, name, err)
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}, nil
}

func newVolume(name string, mode corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{mode},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
		},
	}
}
