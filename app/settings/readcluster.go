package settings

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

type listing struct {
	kind string
	list pager.ListPageFunc
}

// listings are the kinds that decisions need.
func listings(c kubernetes.Interface) []listing {
	core, storage := c.CoreV1(), c.StorageV1()
	return []listing{
		{"nodes", paged(core.Nodes().List)},
		{"pods", paged(core.Pods(metav1.NamespaceAll).List)},
		{"poddisruptionbudgets", paged(c.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List)},
		{"namespaces", paged(core.Namespaces().List)},
		{"persistentvolumeclaims", paged(core.PersistentVolumeClaims(metav1.NamespaceAll).List)},
		{"persistentvolumes", paged(core.PersistentVolumes().List)},
		{"storageclasses", paged(storage.StorageClasses().List)},
		{"csinodes", paged(storage.CSINodes().List)},
		{"csidrivers", paged(storage.CSIDrivers().List)},
		{"csistoragecapacities", paged(storage.CSIStorageCapacities(metav1.NamespaceAll).List)},
		{"volumeattachments", paged(storage.VolumeAttachments().List)},
		{"priorityclasses", paged(c.SchedulingV1().PriorityClasses().List)},
	}
}

func paged[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	}
}

// ReadCluster lists everything that decisions rest on, page by page.
func ReadCluster(ctx context.Context, c kubernetes.Interface) ([]metav1.Object, error) {
	var all []metav1.Object
	for _, l := range listings(c) {
		err := pager.New(l.list).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
			object, err := meta.Accessor(o)
			all = append(all, object)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", l.kind, err)
		}
	}
	return all, nil
}
