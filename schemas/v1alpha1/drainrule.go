package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Behaviour is what happens to a pod when its node is drained.
//
// +kubebuilder:validation:Enum=Drain;Skip;WaitCompleted
type Behaviour string

// The behaviours, spelled in JSON as in Cluster API.
const (
	DrainPods     Behaviour = "Drain"         // move the pods
	SkipPods      Behaviour = "Skip"          // leave the pods; the node counts as drained with them
	WaitCompleted Behaviour = "WaitCompleted" // wait until the pods have ended
)

// LabelDrain is the pod label that overrides every rule: drain, skip, or wait-completed. The label of Cluster API,
// cluster.x-k8s.io/drain, has the same effect.
const LabelDrain = "rehome.dev/drain"

// DrainRule sets what happens to pods of its namespace when their node is drained.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=dr,categories=rehome
// +kubebuilder:printcolumn:name="Behavior",type=string,JSONPath=`.spec.behavior`
// +kubebuilder:printcolumn:name="Order",type=integer,JSONPath=`.spec.order`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DrainRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DrainRuleSpec `json:"spec"`
}

// DrainRuleList is a list of rules.
//
// +kubebuilder:object:root=true
type DrainRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DrainRule `json:"items"`
}

// ClusterDrainRule sets what happens to pods of selected namespaces when their node is drained. A DrainRule in the namespace of
// the pod takes precedence.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cdr,categories=rehome
// +kubebuilder:printcolumn:name="Behavior",type=string,JSONPath=`.spec.behavior`
// +kubebuilder:printcolumn:name="Order",type=integer,JSONPath=`.spec.order`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterDrainRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterDrainRuleSpec `json:"spec"`
}

// ClusterDrainRuleList is a list of rules.
//
// +kubebuilder:object:root=true
type ClusterDrainRuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterDrainRule `json:"items"`
}

// DrainRuleSpec selects pods and their behavior. If several rules of the same kind select a pod, the first by name applies.
type DrainRuleSpec struct {
	// Pods selects pods by their labels. Without it, the rule selects all. It must not be empty.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty: leave it out to select every pod"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !has(e.values))",message="each of matchExpressions must have operator In or NotIn and values, or operator Exists or DoesNotExist without values"
	Pods *metav1.LabelSelector `json:"pods,omitempty"`
	// Behavior is what happens to the pods.
	Behavior Behaviour `json:"behavior"`
	// Order sets the order of moves within a step of the plan, from -1000 to 1000. Lower orders move first. Pods without a rule
	// have order 0. The next order begins on a node when the pods of the previous one have left it.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Order int32 `json:"order,omitempty"`
}

// ClusterDrainRuleSpec selects pods by namespace too.
type ClusterDrainRuleSpec struct {
	DrainRuleSpec `json:",inline"`
	// Namespaces selects pods by the labels of their namespace. Without it, the rule selects all. It must not be empty.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty: leave it out to select every namespace"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !has(e.values))",message="each of matchExpressions must have operator In or NotIn and values, or operator Exists or DoesNotExist without values"
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
}
