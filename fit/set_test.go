package fit_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/rehome-dev/rehome/fit"
)

// set gives any object to a cluster.
func set(c *fit.Cluster, o any) {
	switch o := o.(type) {
	case *corev1.Node:
		c.SetNode(o)
	case *corev1.Pod:
		c.SetPod(o)
	case *corev1.Namespace:
		c.SetNamespace(o)
	case *corev1.PersistentVolumeClaim:
		c.SetClaim(o)
	case *corev1.PersistentVolume:
		c.SetVolume(o)
	case *storagev1.StorageClass:
		c.SetStorageClass(o)
	case *storagev1.CSINode:
		c.SetCSINode(o)
	case *storagev1.CSIDriver:
		c.SetCSIDriver(o)
	case *storagev1.CSIStorageCapacity:
		c.SetCapacity(o)
	case *storagev1.VolumeAttachment:
		c.SetAttachment(o)
	default:
		panic(fmt.Sprintf("no place for a %T", o))
	}
}
