package schemas

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// MaintenanceType is the CloudEvents type of a [Maintenance].
const MaintenanceType = "dev.rehome.maintenance.v1"

// MaxMaintenanceNodes is how many nodes one event of a maintenance tells of at most.
const MaxMaintenanceNodes = 100

// Maintenance says what is new about a node maintenance, after its status was stored. Everything but Nodes is as in the status
// that was stored; of the nodes there are those about which anything has changed. Who reads all events of a maintenance in
// their order, and keeps the last of each node, has its whole status: see Whole, Forgotten and More.
//
// What is promised:
//
//   - The events of one maintenance are published one after the other, in the order in which the statuses were stored, each
//     after what the status wanted of nodes was done, or tried, and before any pod moves for it.
//   - A status that says nothing new has no event. Two statuses that were stored shortly one after the other can have one
//     event if the process was replaced in between; then it has all that both said in the end.
//   - An event can come again. The same source and id is about the same status; the second one can list more nodes than the
//     first. A process that takes over tells of each maintenance once more, with Whole, when it is evaluated next; so does
//     one that has not evaluated it for two hours.
//
// What is not: a change in Changes is lost when the process ends between the change and the event. A maintenance that is
// deleted before a node was begun has no last event. What was stored by somebody else than Rehome has none.
type Maintenance struct {
	// Name is that of the NodeMaintenance, and UID tells those apart that had the name one after the other.
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Generation is that of the spec that this is about, and Stage and Reason are of that spec.
	Generation int64          `json:"generation"`
	Stage      v1alpha1.Stage `json:"stage"`
	Reason     string         `json:"reason"`
	// Accepted: nothing speaks against it. If not, Refusal says why.
	Accepted bool     `json:"accepted"`
	Refusal  *Refusal `json:"refusal,omitempty"`
	// Stages are those that were begun, in order. A maintenance that is being deleted has begun Complete, whatever Stage says.
	Stages     []v1alpha1.StageTime `json:"stages,omitempty"`
	Summary    v1alpha1.Summary     `json:"summary"`
	Conditions []metav1.Condition   `json:"conditions,omitempty"`
	// Nodes are those about which anything has changed, by name, at most [MaxMaintenanceNodes].
	Nodes []v1alpha1.NodeStatus `json:"nodes,omitempty"`
	// More is how many other nodes have changed with the same status. The events that follow tell of them.
	More int `json:"more,omitempty"`
	// Forgotten are the names of nodes that the status has no more.
	Forgotten []string `json:"forgotten,omitempty"`
	// Whole: Nodes, with those of the events that follow because of More, are all that the status has. What was known of other
	// nodes does not count any more.
	Whole bool `json:"whole,omitempty"`
	// Changes are what was done to nodes and no status tells, by the order in which it was done.
	Changes []NodeChange `json:"changes,omitempty"`
	// DryRun: this is what would have been stored; nothing was changed.
	DryRun bool `json:"dryRun,omitempty"`
}

// Refusal is why a maintenance is not accepted.
type Refusal struct {
	// Reason is one of those of the condition Accepted, such as AllNodes.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// NodeChange is what was done to a node.
type NodeChange struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Action is [NodeCordon] for a node that was cordoned once more, since somebody had uncordoned it, and [NodeReturn] for one
	// that was given back otherwise than it was claimed.
	Action  NodeAction `json:"action"`
	Message string     `json:"message"`
}

// EventType returns [MaintenanceType].
func (Maintenance) EventType() string { return MaintenanceType }

// About is maintenances/NAME.
func (m Maintenance) About() string { return "maintenances/" + m.Name }

// Channel is rehome.maintenance.NAME.
func (m Maintenance) Channel() string { return channel("maintenance", m.Name) }
