package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Stage is how far a maintenance is to be or has come.
//
// +kubebuilder:validation:Enum=Idle;Cordon;Drain;Complete
type Stage string

// The stages of a maintenance. They are only gone through forwards.
const (
	Idle     Stage = "Idle"     // announced; nothing is touched
	Cordon   Stage = "Cordon"   // no new pods on the nodes
	Drain    Stage = "Drain"    // and those that are there move away
	Complete Stage = "Complete" // the nodes are given back as they were before
)

// NodeMaintenance says that nodes are to be worked on. It is cluster-scoped. Its name has at most 63 characters.
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

// NodeMaintenanceSpec is what is wanted.
//
// +kubebuilder:validation:XValidation:rule="has(self.plan) && has(oldSelf.plan) ? self.plan == oldSelf.plan : (!has(self.plan) || size(self.plan) == 0) && (!has(oldSelf.plan) || size(oldSelf.plan) == 0)",message="the plan cannot be changed: delete the maintenance and make another",fieldPath=".plan"
// +kubebuilder:validation:XValidation:rule="!has(self.onDeadline) || has(self.deadline)",message="onDeadline needs a deadline: set deadline, or leave onDeadline out",fieldPath=".onDeadline"
type NodeMaintenanceSpec struct {
	// Nodes says which nodes. It cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the nodes cannot be changed: delete the maintenance and make another"
	Nodes NodeSet `json:"nodes"`
	// Stage is what is wanted now. Empty: Idle. It only goes forwards; stages can be left out.
	//
	// +kubebuilder:default=Idle
	// +kubebuilder:validation:XValidation:rule="self == oldSelf || oldSelf == 'Idle' || self == 'Complete' || (oldSelf == 'Cordon' && self == 'Drain')",message="the stage only goes forwards: Idle, Cordon, Drain, Complete",messageExpression="'the stage cannot go from ' + oldSelf + ' to ' + self + ', only forwards: Idle, Cordon, Drain, Complete'"
	Stage Stage `json:"stage,omitempty"`
	// Reason says in words why; it is told on pods' events and on the nodes' conditions. At most 500 characters.
	//
	// +kubebuilder:validation:MaxLength=500
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",message="must say in words why the nodes are worked on"
	Reason string `json:"reason"`
	// Window is when the work on the nodes is planned. Left out: as soon as Stage says so. Outside of it no node is begun; one
	// that was begun is finished. A window that was over before it could begin is not taken: Accepted is False, with the
	// reason WindowPast.
	Window *Window `json:"window,omitempty"`
	// AtOnce is how many nodes at a time, a number or a share of all of them such as "10%", rounded down and at least one.
	// Left out: one.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=7
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 1000000 : self.matches('^([1-9][0-9]?|100)%$')",message="must be a number of nodes from 1 to 1000000, or a share of them from 1% to 100%"
	AtOnce *intstr.IntOrString `json:"atOnce,omitempty"`
	// Topology is the key of a node label: nodes are worked on at a time only if they share its value. Empty: any.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="must be the key of a label, such as topology.kubernetes.io/zone"
	Topology string `json:"topology,omitempty"`
	// Deadline is how long the drain of one node may take from its cordon on. Left out: as long as it takes.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?[hms])+$') && duration(self) > duration('0s')",message="must be longer than 0, in hours, minutes and seconds, such as 1h30m"
	Deadline *metav1.Duration `json:"deadline,omitempty"`
	// OnDeadline is what happens to a node whose deadline has passed. Empty: Continue. It is only there with a Deadline.
	OnDeadline OnDeadline `json:"onDeadline,omitempty"`
	// Plan is in which order the pods of a node move. Empty: all but those of DaemonSets, all at once. Pods that no step
	// selects move after the last one. DaemonSet pods move only when a step says so. It cannot be changed. No step is there
	// twice; a step that selects nothing for other reasons, since those before it take all of its pods, is found by Rehome:
	// Accepted is False, with the reason PlanContradiction.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a == b))",message="two steps are the same, and the second one would never select a pod: leave it out"
	Plan []DrainStep `json:"plan,omitempty"`
	// Gates must all be open before a node is begun, and while its pods move. No two have the same name.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Gates []Gate `json:"gates,omitempty"`
	// Force lifts guards that would refuse the maintenance. No guard is there twice.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Force []Guard `json:"force,omitempty"`
}

// NodeSet is nodes. Exactly one field is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) != has(self.selector)",message="must have either names or selector, and not both"
type NodeSet struct {
	// Names lists them, each once, at least one and at most 1000. A name that no node has is waited for, with the reason
	// NoNodes when there is none of them.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="must list at least one node"
	Names []string `json:"names,omitempty"`
	// Selector finds them by their labels. It is never empty. A node that joins later is one of them. What it finds is decided
	// by Rehome: nothing is waited for (Progressing is False, with the reason NoNodes), and all nodes, the whole control plane
	// or the only node are not taken unless Force says so (Accepted is False, with the name of the Guard as the reason). A key or
	// a value that no label can have is found by Rehome, too: Accepted is False, with the reason InvalidSelector.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty, which would select every node: set matchLabels, matchExpressions or both"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && !has(e.values))",message="each of matchExpressions must have operator In or NotIn and values, or operator Exists or DoesNotExist without values"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Window is when nodes may be begun: from Start to End, and if there is a Schedule only within its times. At least one of them
// is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.start) || has(self.end) || has(self.schedule)",message="must have start, end or schedule: leave window out to begin at any time"
// +kubebuilder:validation:XValidation:rule="!has(self.start) || !has(self.end) || self.start < self.end",message="end must be after start",fieldPath=".end"
type Window struct {
	// Start is when it opens. Left out: it is open already.
	Start *metav1.Time `json:"start,omitempty"`
	// End is when it closes, after Start. Left out: never.
	End *metav1.Time `json:"end,omitempty"`
	// Schedule repeats.
	Schedule *Schedule `json:"schedule,omitempty"`
}

// Schedule is times that repeat.
type Schedule struct {
	// Cron is when each begins, in the five fields of cron: minute, hour, day of the month, month and day of the week, as
	// numbers or English names of three letters, with * , - and /. A number beyond its field, and a time that never comes, such
	// as the 30th of February, are found by Rehome: Accepted is False, with the reason InvalidSchedule.
	//
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^ *[0-9*,/-]+( +[0-9*,/-]+){2}( +([0-9*,/-]|[A-Za-z]{3})+){2} *$')",message="must have the five fields of cron, minute hour day month weekday, such as 0 22 * * 6"
	Cron string `json:"cron"`
	// Duration is how long each lasts.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,6}([.][0-9]{1,9})?[hms])+$') && duration(self) > duration('0s')",message="must be longer than 0, in hours, minutes and seconds, such as 1h30m"
	Duration metav1.Duration `json:"duration"`
	// TimeZone is the IANA name of the time zone in which Cron is meant. Empty: UTC. A name that nobody knows is found by
	// Rehome: Accepted is False, with the reason InvalidTimeZone.
	//
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self != 'Local'",message="must be the IANA name of a time zone, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// OnDeadline is what happens to a node whose deadline has passed.
//
// +kubebuilder:validation:Enum=Continue;Hold;Release
type OnDeadline string

// What can happen after a deadline.
const (
	Continue OnDeadline = "Continue" // go on, and say that it is late
	Hold     OnDeadline = "Hold"     // move no more pods off the node, leave it cordoned, and say so
	Release  OnDeadline = "Release"  // give the node back as it was before, and say so
)

// PodType tells pods by who runs them.
//
// +kubebuilder:validation:Enum=Default;DaemonSet
type PodType string

// The types of pods. Mirror pods of static pods belong to none of them: they never move.
const (
	DefaultPods   PodType = "Default"
	DaemonSetPods PodType = "DaemonSet"
)

// DrainStep is a step of a plan. A pod belongs to the first step that selects it. A step begins on a node when the pods of
// the steps before it are gone from that node. A selector that Kubernetes does not understand is found by Rehome: Accepted of
// the maintenance is False, with the reason InvalidSelector.
type DrainStep struct {
	// Pods selects by labels. Left out: all. It is never empty.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty: leave it out to select every pod"
	Pods *metav1.LabelSelector `json:"pods,omitempty"`
	// Namespaces selects by the labels of the namespace. Left out: all. It is never empty.
	//
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) || has(self.matchExpressions)) && (!has(self.matchLabels) || size(self.matchLabels) > 0) && (!has(self.matchExpressions) || size(self.matchExpressions) > 0)",message="must not be empty: leave it out to select every namespace"
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	// Priority selects pods of that priority or a lower one. Left out: any.
	Priority *int32 `json:"priority,omitempty"`
	// Type selects by who runs the pods. Empty: Default.
	//
	// +kubebuilder:default=Default
	Type PodType `json:"type,omitempty"`
}

// Gate is something that has to be true outside of the maintenance. Exactly one of Condition, Annotation and Query is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.condition), has(self.annotation), has(self.query)].exists_one(set, set)",message="must have exactly one of condition, annotation and query"
type Gate struct {
	// Name is for people.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Condition is one of the node that has to have a status.
	Condition *ConditionGate `json:"condition,omitempty"`
	// Annotation is one of the node that has to have a value.
	Annotation *AnnotationGate `json:"annotation,omitempty"`
	// Query is asked of the Prometheus of the policy. The gate is open when the answer has at least one sample and all of
	// them are 1 or more; $node in it stands for the name of the node.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Query string `json:"query,omitempty"`
}

// ConditionGate is open when the node has the condition with the status.
type ConditionGate struct {
	// Type is that of the condition, such as StorageRebalanced.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`
	// Status is the one that opens the gate.
	//
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status metav1.ConditionStatus `json:"status"`
}

// AnnotationGate is open when the node has the annotation with the value.
type AnnotationGate struct {
	// Key is that of the annotation.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="must be the key of an annotation, such as example.com/disks-moved"
	Key string `json:"key"`
	// Value is the one that opens the gate.
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
	AllNodes     Guard = "AllNodes"     // every node of the cluster is meant
	ControlPlane Guard = "ControlPlane" // every node of the control plane is meant
	SingleNode   Guard = "SingleNode"   // there is only one node: its pods have nowhere to go
)

// NodeMaintenanceStatus is how far it is.
type NodeMaintenanceStatus struct {
	// ObservedGeneration is that of the spec that the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Stages are the stages that were begun, in order.
	//
	// +listType=atomic
	Stages []StageTime `json:"stages,omitempty"`
	// Nodes are those that are meant, by name.
	//
	// +listType=map
	// +listMapKey=name
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// Summary is the numbers that kubectl get shows.
	Summary Summary `json:"summary,omitzero"`
	// Conditions are Accepted, Progressing, Drained and Completed.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The types of the conditions of a maintenance.
const (
	Accepted    = "Accepted"    // False: refused; nothing is touched; the reason is one of the Refusals
	Progressing = "Progressing" // False: nothing is to be done, or something has to happen first that the message names
	Drained     = "Drained"     // every node is drained as the rules want
	Completed   = "Completed"   // every node was given back
)

// StageTime is when a stage began.
type StageTime struct {
	Stage Stage       `json:"stage"`
	Start metav1.Time `json:"start"`
}

// NodeStage is how far one node is.
type NodeStage string

// The stages of a node. Claimed to Drained count as worked on at a time.
const (
	Waiting   NodeStage = "Waiting"   // for its turn, its window or a gate
	Claimed   NodeStage = "Claimed"   // about to be cordoned
	Cordoned  NodeStage = "Cordoned"  // takes no new pods
	Draining  NodeStage = "Draining"  // its pods move
	IsDrained NodeStage = "Drained"   // none is left that is to move
	Held      NodeStage = "Held"      // its deadline has passed, and it is left as it is
	Returning NodeStage = "Returning" // about to be given back
	Returned  NodeStage = "Returned"  // as it was before
	Gone      NodeStage = "Gone"      // it left the cluster, or is not meant any more
)

// NodeStatus is how far one node is.
type NodeStatus struct {
	Name  string    `json:"name"`
	UID   types.UID `json:"uid,omitempty"`
	Stage NodeStage `json:"stage"`
	// Start is when it was claimed, and End when it was given back.
	Start *metav1.Time `json:"start,omitempty"`
	End   *metav1.Time `json:"end,omitempty"`
	// DrainedAt is when it was drained first.
	DrainedAt *metav1.Time `json:"drainedAt,omitempty"`
	// CordonedBefore: it was cordoned when it was claimed, and stays so.
	CordonedBefore bool `json:"cordonedBefore,omitempty"`
	// Pods counts its pods while it is worked on.
	Pods *PodCounts `json:"pods,omitempty"`
	// Blocked are pods that are to move and cannot, by name, and More is how many others: at most twenty of a node are named, and
	// at most a thousand of a maintenance.
	//
	// +listType=atomic
	Blocked []BlockedPod `json:"blocked,omitempty"`
	More    int32        `json:"more,omitempty"`
	// Message says what it waits for.
	Message string `json:"message,omitempty"`
}

// PodCounts counts the pods of a node.
type PodCounts struct {
	// Moved have left since it was claimed.
	Moved int32 `json:"moved"`
	// Left are to move or wait to end, Blocked of which cannot now.
	Left    int32 `json:"left"`
	Blocked int32 `json:"blocked"`
	// Staying are not to move: mirror pods, those of DaemonSets, of rules that skip them, and those that tolerate everything.
	Staying int32 `json:"staying"`
}

// BlockedPod is a pod that is to move and cannot now.
type BlockedPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason is the code of a verdict, such as DisruptionBudget, or one of the Blocks.
	Reason string `json:"reason"`
	// By names what holds it, such as poddisruptionbudget/shop/cart.
	By string `json:"by,omitempty"`
	// Message says it in words.
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// Summary is the numbers that kubectl get shows.
type Summary struct {
	// Nodes is how many are done of how many, such as 3/30: drained until Complete is wanted, then given back.
	Nodes       string `json:"nodes,omitempty"`
	PodsLeft    int32  `json:"podsLeft"`
	PodsBlocked int32  `json:"podsBlocked"`
	// Message is what holds it up most, or what it does now.
	Message string `json:"message,omitempty"`
}
