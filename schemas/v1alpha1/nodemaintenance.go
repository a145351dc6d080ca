package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Stage is a stage of a maintenance.
//
// +kubebuilder:validation:Enum=Idle;Cordon;Drain;Complete
type Stage string

// The stages of a maintenance, in order. A maintenance never goes back to an earlier stage.
const (
	Idle     Stage = "Idle"     // announced only
	Cordon   Stage = "Cordon"   // the nodes are unschedulable
	Drain    Stage = "Drain"    // and their pods move away
	Complete Stage = "Complete" // the nodes are released, as they were before
)

// NodeMaintenance cordons, drains, and releases nodes for maintenance. It is cluster-scoped. Its name has at most 63 characters.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nm,categories=rehome
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters"
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.spec.stage`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.summary.nodes`
// +kubebuilder:printcolumn:name="Pods left",type=integer,JSONPath=`.status.summary.podsLeft`
// +kubebuilder:printcolumn:name="Blocked",type=integer,JSONPath=`.status.summary.podsBlocked`
// +kubebuilder:printcolumn:name="Drained",type=string,JSONPath=`.status.conditions[?(@.type=="Drained")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.summary.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeMaintenance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NodeMaintenanceSpec   `json:"spec"`
	Status NodeMaintenanceStatus `json:"status,omitzero"`
}

// NodeMaintenanceList is a list of maintenances.
//
// +kubebuilder:object:root=true
type NodeMaintenanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeMaintenance `json:"items"`
}

// NodeMaintenanceSpec is the desired state of a maintenance.
//
// +kubebuilder:validation:XValidation:rule="has(self.plan) && has(oldSelf.plan) ? self.plan == oldSelf.plan : (!has(self.plan) || size(self.plan) == 0) && (!has(oldSelf.plan) || size(oldSelf.plan) == 0)",message="the plan cannot be changed: delete the maintenance and make another",fieldPath=".plan"
// +kubebuilder:validation:XValidation:rule="!has(self.onDeadline) || has(self.deadline)",message="onDeadline needs a deadline: set deadline, or leave onDeadline out",fieldPath=".onDeadline"
type NodeMaintenanceSpec struct {
	// Nodes selects the nodes. It is immutable.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the nodes cannot be changed: delete the maintenance and make another"
	Nodes NodeSet `json:"nodes"`
	// Stage is the desired stage, by default Idle. It only moves forward, and may skip stages.
	//
	// +kubebuilder:default=Idle
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || oldSelf == 'Idle' || self == 'Complete' || (oldSelf == 'Cordon' && self == 'Drain')",message="the stage only goes forwards: Idle, Cordon, Drain, Complete",messageExpression="'the stage cannot go from ' + oldSelf + ' to ' + self + ', only forwards: Idle, Cordon, Drain, Complete'"
	Stage Stage `json:"stage,omitempty"`
	// Reason explains why the nodes need maintenance. Events of pods and conditions of nodes show it. At most 500 characters.
	//
	// +kubebuilder:validation:MaxLength=500
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="must say in words why the nodes are worked on"
	Reason string `json:"reason"`
	// Window limits when Rehome begins with a node. Without it, Rehome begins as soon as Stage allows. A node that was begun is
	// finished outside of the window too. If the window ends before any node can begin, Accepted is False with the reason
	// WindowPast.
	Window *Window `json:"window,omitempty"`
	// AtOnce is the largest number of nodes in maintenance at the same time, by default 1. It is a number, or a share of the
	// nodes such as "10%", which is rounded down to at least one.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=7
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^([1-9][0-9]?|100)%$')",message="must be a number of nodes from 1 to 1000000, or a share of them from 1% to 100%"
	AtOnce *intstr.IntOrString `json:"atOnce,omitempty"`
	// Topology is the key of a node label. Nodes are in maintenance at the same time only if they share its value. Empty means no
	// such limit.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="must be the key of a label, such as topology.kubernetes.io/zone"
	Topology string `json:"topology,omitempty"`
	// Deadline is the longest time for the drain of one node, counted from its cordon. Without it there is no limit.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?[hms])+$') && duration(self) > duration('0s')",message="must be longer than 0, in hours, minutes and seconds, such as 1h30m"
	Deadline *metav1.Duration `json:"deadline,omitempty"`
	// OnDeadline is what happens to a node after its deadline, by default Continue. It requires Deadline.
	OnDeadline OnDeadline `json:"onDeadline,omitempty"`
	// Plan sets the order in which the pods of a node move. Pods that no step selects move after the last step. DaemonSet pods
	// move only if a step selects them. Without a plan, all pods except DaemonSet pods move together. It is immutable, and its
	// steps are unique. If an earlier step selects all pods of a later one, Accepted is False with the reason PlanContradiction.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a == b))",message="two steps are the same, and the second one would never select a pod: leave it out"
	Plan []DrainStep `json:"plan,omitempty"`
	// Gates must all be open before Rehome begins with a node, and while its pods move. Their names are unique.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Gates []Gate `json:"gates,omitempty"`
	// Force disables guards that would refuse the maintenance.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Force []Guard `json:"force,omitempty"`
}

// NodeSet selects nodes, by names or by a selector.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) != has(self.selector)",message="must have either names or selector, and not both"
type NodeSet struct {
	// Names lists 1 to 1000 nodes. Rehome waits for nodes that do not exist, and Drained is False until then. If none exists,
	// Progressing is False with the reason NoNodes.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="must list at least one node"
	Names []string `json:"names,omitempty"`
	// Selector selects nodes by their labels, including nodes that join later. It must not be empty. If it selects no node,
	// Progressing is False with the reason NoNodes. If it selects all nodes, the whole control plane, or the only node, Accepted
	// is False with the name of the Guard as the reason, unless Force disables that guard. If a key or a value is not valid in a
	// label, Accepted is False with the reason InvalidSelector.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty, which would select every node: set matchLabels, matchExpressions or both"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !has(e.values))",message="each of matchExpressions must have operator In or NotIn and values, or operator Exists or DoesNotExist without values"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Window limits when Rehome begins with nodes: between Start and End, and only during Schedule if it is set. At least one
// field is required.
//
// +kubebuilder:validation:XValidation:rule="has(self.start) || has(self.end) || has(self.schedule)",message="must have start, end or schedule: leave window out to begin at any time"
// +kubebuilder:validation:XValidation:rule="!has(self.start) || !has(self.end) || self.start < self.end",message="end must be after start",fieldPath=".end"
type Window struct {
	// Start is the beginning of the window. Without it the window is open from now on.
	Start *metav1.Time `json:"start,omitempty"`
	// End is the end of the window, after Start. Without it the window never ends.
	End *metav1.Time `json:"end,omitempty"`
	// Schedule opens the window repeatedly.
	Schedule *Schedule `json:"schedule,omitempty"`
}

// Schedule is a repeating period of time.
type Schedule struct {
	// Cron is the start of each period, in the five fields of cron: minute, hour, day of month, month, and day of week. Fields
	// are numbers or English names of three letters, with * , - and /. If a number is out of range or the time never occurs, such
	// as February 30, Accepted is False with the reason InvalidSchedule.
	//
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^ *[0-9*,/-]+( +[0-9*,/-]+){2}( +([0-9*,/-]|[A-Za-z]{3})+){2} *$')",message="must have the five fields of cron, minute hour day month weekday, such as 0 22 * * 6"
	Cron string `json:"cron"`
	// Duration is the length of each period.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?[hms])+$') && duration(self) > duration('0s')",message="must be longer than 0, in hours, minutes and seconds, such as 1h30m"
	Duration metav1.Duration `json:"duration"`
	// TimeZone is the IANA name of the time zone of Cron, by default UTC. If the name is unknown, Accepted is False with the
	// reason InvalidTimeZone.
	//
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self != 'Local'",message="must be the IANA name of a time zone, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// OnDeadline is what happens to a node after its deadline.
//
// +kubebuilder:validation:Enum=Continue;Hold;Release
type OnDeadline string

// Values of OnDeadline.
const (
	Continue OnDeadline = "Continue" // continue, and report the delay
	Hold     OnDeadline = "Hold"     // stop, leave the node cordoned, and report it
	Release  OnDeadline = "Release"  // release the node as it was before, and report it
)

// PodType distinguishes DaemonSet pods from other pods.
//
// +kubebuilder:validation:Enum=Default;DaemonSet
type PodType string

// The types of pods. Mirror pods of static pods have neither type and never move.
const (
	DefaultPods   PodType = "Default"
	DaemonSetPods PodType = "DaemonSet"
)

// DrainStep is a step of a plan. A pod belongs to the first step that selects it. A step begins on a node when the pods of the
// previous steps have left it. If a selector is invalid, Accepted of the maintenance is False with the reason InvalidSelector.
type DrainStep struct {
	// Pods selects pods by their labels. Without it, the step selects all. It must not be empty.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty: leave it out to select every pod"
	Pods *metav1.LabelSelector `json:"pods,omitempty"`
	// Namespaces selects pods by the labels of their namespace. Without it, the step selects all. It must not be empty.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty: leave it out to select every namespace"
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	// Priority selects pods with this priority or a lower one. Without it, the step selects any priority.
	Priority *int32 `json:"priority,omitempty"`
	// Type selects DaemonSet pods or all other pods, by default Default.
	//
	// +kubebuilder:default=Default
	Type PodType `json:"type,omitempty"`
}

// Gate is a requirement outside of the maintenance. It has exactly one of Condition, Annotation, and Query.
//
// +kubebuilder:validation:XValidation:rule="[has(self.condition), has(self.annotation), has(self.query)].exists_one(set, set)",message="must have exactly one of condition, annotation and query"
type Gate struct {
	// Name identifies the gate in messages.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Condition requires a status of a condition of the node.
	Condition *ConditionGate `json:"condition,omitempty"`
	// Annotation requires a value of an annotation of the node.
	Annotation *AnnotationGate `json:"annotation,omitempty"`
	// Query is a query to the Prometheus server of the policy. The gate is open if the result has at least one sample and every
	// sample is 1 or more. $node in the query is replaced by the name of the node.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query,omitempty"`
}

// ConditionGate is open when the node has the condition with the status.
type ConditionGate struct {
	// Type is the type of the condition, such as StorageRebalanced.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// Status is the required status.
	//
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status metav1.ConditionStatus `json:"status"`
}

// AnnotationGate is open when the node has the annotation with the value.
type AnnotationGate struct {
	// Key is the key of the annotation.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="must be the key of an annotation, such as example.com/disks-moved"
	Key string `json:"key"`
	// Value is the required value.
	//
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

// Guard refuses a maintenance that would hurt the cluster.
//
// +kubebuilder:validation:Enum=AllNodes;ControlPlane;SingleNode
type Guard string

// The guards.
const (
	AllNodes     Guard = "AllNodes"     // the maintenance selects every node
	ControlPlane Guard = "ControlPlane" // it selects every node of the control plane
	SingleNode   Guard = "SingleNode"   // the cluster has one node, so its pods have nowhere to go
)

// NodeMaintenanceStatus is the observed state of a maintenance.
type NodeMaintenanceStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Stages are the stages that have begun, in order.
	//
	// +listType=atomic
	Stages []StageTime `json:"stages,omitempty"`
	// Nodes are the selected nodes.
	//
	// +listType=map
	// +listMapKey=name
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// Summary has the columns of kubectl get.
	Summary Summary `json:"summary,omitzero"`
	// Conditions are Accepted, Progressing, Drained, and Completed.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The condition types of a maintenance.
const (
	Accepted    = "Accepted"    // False: refused, for one of the reasons in the Refusals
	Progressing = "Progressing" // False: nothing to do, or the message names what it waits for
	Drained     = "Drained"     // every node is drained according to the rules
	Completed   = "Completed"   // every node is released
)

// StageTime is the start of a stage.
type StageTime struct {
	Stage Stage       `json:"stage"`
	Start metav1.Time `json:"start"`
}

// NodeStage is the progress of one node.
type NodeStage string

// The stages of a node. Nodes from Claimed to Returning count against AtOnce.
const (
	Waiting   NodeStage = "Waiting"   // for its turn, its window or a gate
	Claimed   NodeStage = "Claimed"   // before the cordon
	Cordoned  NodeStage = "Cordoned"  // unschedulable
	Draining  NodeStage = "Draining"  // its pods move
	IsDrained NodeStage = "Drained"   // no pod is left to move
	Held      NodeStage = "Held"      // stopped after its deadline
	Returning NodeStage = "Returning" // before the release
	Returned  NodeStage = "Returned"  // released
	Gone      NodeStage = "Gone"      // left the cluster, or no longer selected
)

// NodeStatus is the status of one node.
type NodeStatus struct {
	Name  string    `json:"name"`
	UID   types.UID `json:"uid,omitempty"`
	Stage NodeStage `json:"stage"`
	// Start is the time of the cordon, or of the claim while the node is Claimed. End is the time of the release.
	Start *metav1.Time `json:"start,omitempty"`
	End   *metav1.Time `json:"end,omitempty"`
	// DrainedAt is when the node was drained for the first time.
	DrainedAt *metav1.Time `json:"drainedAt,omitempty"`
	// CordonedBefore reports that the node was cordoned before the claim. It stays cordoned afterwards.
	CordonedBefore bool `json:"cordonedBefore,omitempty"`
	// Pods counts the pods of a node in maintenance.
	Pods *PodCounts `json:"pods,omitempty"`
	// Blocked lists pods that have to move and cannot, at most 20 per node and 1000 per maintenance. More is the number of
	// pods that are not listed.
	//
	// +listType=atomic
	Blocked []BlockedPod `json:"blocked,omitempty"`
	More    int32        `json:"more,omitempty"`
	// Message describes what the node waits for.
	Message string `json:"message,omitempty"`
}

// PodCounts counts the pods of a node.
type PodCounts struct {
	// Moved is the number of pods that have left since the claim.
	Moved int32 `json:"moved"`
	// Left is the number of pods that have to move or to end. Blocked is how many of them cannot do so now.
	Left    int32 `json:"left"`
	Blocked int32 `json:"blocked"`
	// Staying is the number of pods that do not move: mirror pods, DaemonSet pods, pods that a rule skips, and pods that tolerate
	// every taint.
	Staying int32 `json:"staying"`
}

// BlockedPod is a pod that has to move and cannot now.
type BlockedPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason is a reason code of verdicts, such as DisruptionBudget, or one of the Blocks.
	Reason string `json:"reason"`
	// By names the blocking object, such as poddisruptionbudget/shop/cart.
	By string `json:"by,omitempty"`
	// Message describes the reason.
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// Summary has the columns of kubectl get.
type Summary struct {
	// Nodes is the number of finished nodes and of all nodes, such as 3/30, or 3/1000+ if they are too many. Nodes are finished
	// when they are drained, or with the stage Complete when they are released.
	Nodes       string `json:"nodes,omitempty"`
	PodsLeft    int32  `json:"podsLeft"`
	PodsBlocked int32  `json:"podsBlocked"`
	// Message is the main reason for a delay, or the current activity.
	Message string `json:"message,omitempty"`
}
