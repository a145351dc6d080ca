package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Behaviour is what a rule wants of its pods when their node is drained.
//
// +kubebuilder:validation:Enum=Drain;Skip;WaitCompleted
type Behaviour string

// The behaviours. They are spelled in JSON as Cluster API spells those of its rules.
const (
	DrainPods     Behaviour = "Drain"         // move them
	SkipPods      Behaviour = "Skip"          // leave them; the node counts as drained with them
	WaitCompleted Behaviour = "WaitCompleted" // wait until they end by themselves
)

// LabelDrain is the label by which a pod says itself how it takes part, which counts more than every rule: drain, skip or
// wait-completed. That of Cluster API, cluster.x-k8s.io/drain, counts in the same way.
const LabelDrain = "rehome.dev/drain"

// DrainRule says how pods of its namespace take part when their node is drained.
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

// ClusterDrainRule says how pods of the namespaces that it selects take part when their node is drained. A DrainRule of the
// pod's namespace counts more.
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

// DrainRuleSpec is how pods take part. Of several rules of the same rank that select a pod the first by name counts.
type DrainRuleSpec struct {
	// Pods selects by labels. Left out: all. It is never empty.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty: leave it out to select every pod"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !has(e.values))",message="each of matchExpressions must have operator In or NotIn and values, or operator Exists or DoesNotExist without values"
	Pods *metav1.LabelSelector `json:"pods,omitempty"`
	// Behavior is what is wanted of them.
	Behavior Behaviour `json:"behavior"`
	// Order says when they move: those of a lower order first, 0 for pods without a rule; among those of the same step of
	// the plan. The next order begins on a node when the one before is gone from it. From -1000 to 1000.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Order int32 `json:"order,omitempty"`
}

// ClusterDrainRuleSpec is how pods take part, in the namespaces that it selects.
type ClusterDrainRuleSpec struct {
	DrainRuleSpec `json:",inline"`
	// Namespaces selects by the labels of the namespace. Left out: all. It is never empty.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty: leave it out to select every namespace"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !has(e.values))",message="each of matchExpressions must have operator In or NotIn and values, or operator Exists or DoesNotExist without values"
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
}
