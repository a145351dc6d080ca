package main

import (
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types below describe the fields of Kubernetes objects that strategies can rely on. Other fields of the API can be present.
// The tags have the same meaning as for event types.

// Taint is a taint as in core/v1.
type Taint struct {
	// Key is the key of the taint.
	Key string `json:"key"`
	// Value is the value of the taint. Empty means the empty string.
	Value string `json:"value,omitempty" empty:"true"`
	// Effect on pods that do not tolerate the taint: NoSchedule, PreferNoSchedule, or NoExecute.
	Effect string `json:"effect"`
	// TimeAdded is when the taint was added.
	TimeAdded time.Time `json:"timeAdded,omitzero"`
}

// Quantity is a Kubernetes quantity, such as 1500m or 16Gi.
type Quantity struct{}

const quantityPattern = `^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`

// TopologySpreadConstraint is a topology spread constraint as in core/v1.
type TopologySpreadConstraint struct {
	// MaxSkew is the largest allowed difference in pods between two domains.
	MaxSkew int `json:"maxSkew" min:"1"`
	// TopologyKey is the node label whose values are the domains.
	TopologyKey string `json:"topologyKey"`
	// WhenUnsatisfiable is DoNotSchedule or ScheduleAnyway.
	WhenUnsatisfiable string `json:"whenUnsatisfiable" empty:"true"`
	// MinDomains: if fewer domains are eligible, the smallest count is 0. Empty means 1.
	MinDomains int `json:"minDomains,omitempty" min:"-"`
}

// ObjectMeta is the metadata of an object, without managedFields.
type ObjectMeta struct {
	Name string `json:"name"`
	// Namespace is absent for nodes.
	Namespace   string            `json:"namespace,omitempty"`
	UID         string            `json:"uid,omitempty"`
	Labels      map[string]string `json:"labels,omitempty" empty:"true"`
	Annotations map[string]string `json:"annotations,omitempty" empty:"true"`
	// CreationTimestamp is when the object was created.
	CreationTimestamp *time.Time `json:"creationTimestamp,omitzero" null:"true"`
	// DeletionTimestamp is when the object will be gone. It is present if the object is being deleted.
	DeletionTimestamp *time.Time `json:"deletionTimestamp,omitzero"`
	// OwnerReferences are the owners of the object, such as the ReplicaSet of a pod.
	OwnerReferences []OwnerReference `json:"ownerReferences,omitempty"`
}

// OwnerReference is an owner of an object.
type OwnerReference struct {
	APIVersion string `json:"apiVersion" empty:"true"`
	Kind       string `json:"kind" empty:"true"`
	Name       string `json:"name" empty:"true"`
	UID        string `json:"uid" empty:"true"`
	// Controller: the owner manages the object.
	Controller bool `json:"controller,omitempty"`
}

// Condition is a condition of an object.
type Condition struct {
	// Type is the type of the condition, such as Ready.
	Type string `json:"type" empty:"true"`
	// Status is True, False, or Unknown.
	Status string `json:"status" empty:"true"`
	// Reason is the reason of the status, in one word.
	Reason string `json:"reason,omitempty" empty:"true"`
	// LastTransitionTime is when the status changed.
	LastTransitionTime *time.Time `json:"lastTransitionTime,omitempty" null:"true"`
}

// Node is a node as in core/v1, without the parts that no decision depends on.
type Node struct {
	Metadata ObjectMeta `json:"metadata"`
	Spec     NodeSpec   `json:"spec,omitzero"`
	Status   NodeStatus `json:"status,omitzero"`
}

// NodeSpec is the desired state of a node.
type NodeSpec struct {
	// Taints of the node. Empty means none.
	Taints []Taint `json:"taints,omitempty"`
	// Unschedulable: the node is cordoned.
	Unschedulable bool `json:"unschedulable,omitempty"`
}

// NodeStatus is the state of a node.
type NodeStatus struct {
	Capacity    corev1.ResourceList `json:"capacity,omitempty"`
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	Conditions  []Condition         `json:"conditions,omitempty"`
}

// Pod is a pod as in core/v1, without the parts that no decision depends on. It always has a namespace and a UID.
type Pod struct {
	Metadata ObjectMeta `json:"metadata" has:"name namespace uid"`
	Spec     PodSpec    `json:"spec,omitzero"`
	Status   PodStatus  `json:"status,omitzero"`
}

// PodSpec is the desired state of a pod.
type PodSpec struct {
	// NodeName is the node of the pod.
	NodeName string `json:"nodeName,omitempty" empty:"true"`
	// NodeSelector are labels that the node must have.
	NodeSelector map[string]string `json:"nodeSelector,omitempty" empty:"true"`
	// Affinity is the node affinity, pod affinity, and pod anti-affinity.
	Affinity map[string]any `json:"affinity,omitempty"`
	// Tolerations are the taints that the pod tolerates.
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// TopologySpreadConstraints describe how pods spread over zones or nodes.
	TopologySpreadConstraints []map[string]any `json:"topologySpreadConstraints,omitempty"`
	// Priority of the pod. Empty means 0.
	Priority          int         `json:"priority,omitempty" min:"-"`
	PriorityClassName string      `json:"priorityClassName,omitempty" empty:"true"`
	HostNetwork       bool        `json:"hostNetwork,omitempty"`
	Containers        []Container `json:"containers,omitempty" null:"true"`
	InitContainers    []Container `json:"initContainers,omitempty" null:"true"`
	// Volumes of the pod.
	Volumes                       []map[string]any    `json:"volumes,omitempty"`
	Overhead                      corev1.ResourceList `json:"overhead,omitempty"`
	TerminationGracePeriodSeconds int                 `json:"terminationGracePeriodSeconds,omitempty" min:"-"`
}

// Toleration is a toleration of a pod.
type Toleration struct {
	// Key of the taints. Empty means every key.
	Key string `json:"key,omitempty" empty:"true"`
	// Operator compares the value. Empty means Equal.
	Operator string `json:"operator,omitempty" empty:"true"`
	Value    string `json:"value,omitempty" empty:"true"`
	// Effect of the taints. Empty means every effect.
	Effect string `json:"effect,omitempty" empty:"true"`
	// TolerationSeconds is how long a NoExecute taint is tolerated. Empty means forever.
	TolerationSeconds int `json:"tolerationSeconds,omitempty" min:"-"`
}

// Container is a container of a pod.
type Container struct {
	Name string `json:"name" empty:"true"`
	// Resources of the container.
	Resources Resources `json:"resources,omitzero"`
	// Ports of the container, including host ports.
	Ports []map[string]any `json:"ports,omitempty"`
	// RestartPolicy is Always for an init container that keeps running beside the containers.
	RestartPolicy string `json:"restartPolicy,omitempty" empty:"true"`
}

// Resources are the requests and limits of a container.
type Resources struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

// PodStatus is the state of a pod.
type PodStatus struct {
	// Phase is Pending, Running, Succeeded, Failed, or Unknown.
	Phase string `json:"phase,omitempty" empty:"true"`
	// Reason of the phase, such as Evicted.
	Reason string `json:"reason,omitempty" empty:"true"`
	// StartTime is when the kubelet accepted the pod.
	StartTime time.Time `json:"startTime,omitzero"`
	// QOSClass is Guaranteed, Burstable, or BestEffort.
	QOSClass                   string            `json:"qosClass,omitempty" empty:"true"`
	Conditions                 []Condition       `json:"conditions,omitempty"`
	ContainerStatuses          []ContainerStatus `json:"containerStatuses,omitempty"`
	InitContainerStatuses      []ContainerStatus `json:"initContainerStatuses,omitempty"`
	EphemeralContainerStatuses []ContainerStatus `json:"ephemeralContainerStatuses,omitempty"`
}

// ContainerStatus is the state of a container.
type ContainerStatus struct {
	Name string `json:"name" empty:"true"`
	// RestartCount is the number of restarts.
	RestartCount int  `json:"restartCount"`
	Ready        bool `json:"ready,omitempty"`
	// State is waiting, running, or terminated, with a reason.
	State map[string]any `json:"state,omitempty"`
}

// described returns the descriptions of Kubernetes types.
func described() map[reflect.Type]reflect.Type {
	return map[reflect.Type]reflect.Type{
		reflect.TypeFor[corev1.Node]():                     reflect.TypeFor[Node](),
		reflect.TypeFor[corev1.Pod]():                      reflect.TypeFor[Pod](),
		reflect.TypeFor[corev1.Taint]():                    reflect.TypeFor[Taint](),
		reflect.TypeFor[corev1.TopologySpreadConstraint](): reflect.TypeFor[TopologySpreadConstraint](),
		reflect.TypeFor[metav1.Condition]():                reflect.TypeFor[Condition](),
		reflect.TypeFor[resource.Quantity]():               reflect.TypeFor[Quantity](),
	}
}

// words returns the values of a Kubernetes type, or nil for other types. Newer versions of Kubernetes can add more.
func words(t reflect.Type) []string {
	switch t {
	case reflect.TypeFor[corev1.ConditionStatus]():
		return []string{"True", "False", "Unknown"}
	case reflect.TypeFor[corev1.PodPhase]():
		return []string{"Pending", "Running", "Succeeded", "Failed", "Unknown"}
	}
	return nil
}
