package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The API group, version, and resources.
const (
	Group   = "rehome.dev"
	Version = "v1alpha1"

	NodeMaintenances  = "nodemaintenances"
	DrainRules        = "drainrules"
	ClusterDrainRules = "clusterdrainrules"
)

// GroupVersion returns the group and version of the kinds. GroupVersion().WithResource(NodeMaintenances) is the resource of a
// kind.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// AddToScheme registers the kinds and their lists in a scheme. It may be called again. The error is always nil.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(),
		&NodeMaintenance{}, &NodeMaintenanceList{},
		&DrainRule{}, &DrainRuleList{},
		&ClusterDrainRule{}, &ClusterDrainRuleList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
