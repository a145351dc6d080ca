package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Where the API server serves the kinds.
const (
	Group   = "rehome.dev"
	Version = "v1alpha1"

	NodeMaintenances  = "nodemaintenances"
	DrainRules        = "drainrules"
	ClusterDrainRules = "clusterdrainrules"
)

// GroupVersion is the group and the version of all kinds of this package. With a name of a resource it is where that is
// served: GroupVersion().WithResource(NodeMaintenances).
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// AddToScheme makes the kinds and their lists known to a scheme, so that clients can read and write them as Go types. It may
// be called again. The error is always nil; it is there because every AddToScheme has one.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(),
		&NodeMaintenance{}, &NodeMaintenanceList{},
		&DrainRule{}, &DrainRuleList{},
		&ClusterDrainRule{}, &ClusterDrainRuleList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
