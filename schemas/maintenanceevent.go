package schemas

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// MaintenanceType is the CloudEvents type of a [Maintenance].
const MaintenanceType = "dev.rehome.maintenance.v1"

// MaxMaintenanceNodes is the largest number of nodes in one maintenance event.
const MaxMaintenanceNodes = 100

var _ = define("maintenance", maintenanceExamples(), Prefix+".maintenance.NAME")

// Maintenance is a change in the status of a maintenance, published after the status was stored. Nodes has only the nodes that
// changed; the other fields are as in the status. A subscriber that processes all events of a maintenance in order, and keeps the
// newest entry of each node, has the complete status: see Whole, Forgotten, and More.
//
// Guarantees:
//
//   - The events of a maintenance are published one at a time, in the order of its statuses, after the changes of nodes in the
//     status were tried, and before any pod moves because of them.
//   - A status without changes has no event. If the process is replaced between two statuses, they may share one event with the
//     changes of both.
//   - An event can be repeated. Events with the same source and ID describe the same status, but the second one can list more
//     nodes. A process that takes over publishes each maintenance once more, with Whole, at its next evaluation. So does a
//     process that has not evaluated the maintenance for two hours.
//
// An entry of Changes is lost if the process ends between the change and the event. A maintenance that is deleted before a node
// was begun has no final event. A status that another program stored has no event.
type Maintenance struct {
	// Name is the name of the NodeMaintenance. UID distinguishes maintenances that had the same name.
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Generation is the generation of the spec, and Stage and Reason come from that spec.
	Generation int64          `json:"generation"`
	Stage      v1alpha1.Stage `json:"stage"`
	Reason     string         `json:"reason" empty:"true"`
	// Accepted is false if the maintenance is refused for the reason in Refusal.
	Accepted bool     `json:"accepted"`
	Refusal  *Refusal `json:"refusal,omitempty"`
	// Stages are the stages that have begun, in order. A maintenance that is being deleted has begun Complete, whatever Stage is.
	Stages     []v1alpha1.StageTime `json:"stages,omitempty"`
	Summary    v1alpha1.Summary     `json:"summary"`
	Conditions []metav1.Condition   `json:"conditions,omitempty"`
	// Nodes are the changed nodes by name, at most [MaxMaintenanceNodes].
	Nodes []v1alpha1.NodeStatus `json:"nodes,omitempty" listMax:"MaxMaintenanceNodes"`
	// More is the number of changed nodes that are not in Nodes. The next events have them.
	More int `json:"more,omitempty"`
	// Forgotten are the names of nodes that are no longer in the status.
	Forgotten []string `json:"forgotten,omitempty"`
	// Whole reports that Nodes, together with the next events if More is set, is the complete status. Earlier nodes are obsolete.
	Whole bool `json:"whole,omitempty"`
	// Changes are changes of nodes that the status does not show, in order.
	Changes []NodeChange `json:"changes,omitempty"`
	// DryRun reports that nothing was changed or stored.
	DryRun bool `json:"dryRun,omitempty"`
}

// Refusal is the reason why a maintenance is not accepted.
type Refusal struct {
	// Reason is a reason of the condition Accepted, such as AllNodes.
	Reason  string `json:"reason"`
	Message string `json:"message" empty:"true"`
}

// NodeChange is a change of a node.
type NodeChange struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Action is [NodeCordon] if another program had uncordoned the node, and [NodeReturn] for a
	// node that was released in another state than before its claim.
	Action  NodeAction `json:"action"`
	Message string     `json:"message" empty:"true"`
}

// EventType returns [MaintenanceType].
func (Maintenance) EventType() string { return MaintenanceType }

// About returns maintenances/NAME.
func (m Maintenance) About() string { return "maintenances/" + m.Name }

// Channel returns rehome.maintenance.NAME.
func (m Maintenance) Channel() string { return channel("maintenance", m.Name) }

// Describe returns the name, and some nodes with their stages, the changes of nodes, and the summary.
func (m Maintenance) Describe() (about, text string) {
	const shown = 3
	var parts []string
	for _, n := range m.Nodes {
		parts = append(parts, "node "+n.Name+" "+string(n.Stage))
	}
	if n := len(parts) + m.More - shown; n > 0 {
		parts = append(parts[:min(len(parts), shown)], fmt.Sprintf("%d more", n))
	}
	for _, c := range m.Changes {
		parts = append(parts, "node "+c.Name+": "+c.Message)
	}
	text = strings.Join(parts, ", ")
	if m.DryRun {
		text = strings.TrimSuffix("(dry run) "+text, " ")
	}
	if text != "" {
		text += "  "
	}
	text += m.Summary.Nodes + " nodes, " + pods(m.Summary.PodsLeft) + " left"
	if m.Summary.PodsBlocked > 0 {
		text += fmt.Sprintf(", %d blocked", m.Summary.PodsBlocked)
	}
	switch {
	case m.Refusal != nil:
		text += ": refused: " + m.Refusal.Reason + ": " + m.Refusal.Message
	case m.Summary.Message != "":
		text += ": " + m.Summary.Message
	}
	return m.Name, text
}

func pods(n int32) string {
	switch n {
	case 0:
		return "no pod"
	case 1:
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

//nolint:funlen // a table
func maintenanceExamples() map[string]Maintenance {
	at := func(hour, minute, second int) metav1.Time {
		return metav1.Date(2026, 11, 21, hour, minute, second, 0, time.UTC)
	}
	conditions := func(generation int64, at metav1.Time, accepted metav1.ConditionStatus, words ...string) (all []metav1.Condition) {
		status := []metav1.ConditionStatus{accepted, accepted, metav1.ConditionFalse, metav1.ConditionFalse}
		for i, kind := range []string{v1alpha1.Accepted, v1alpha1.Progressing, v1alpha1.Drained, v1alpha1.Completed} {
			all = append(all, metav1.Condition{
				Type: kind, Status: status[i], ObservedGeneration: generation, LastTransitionTime: at,
				Reason: words[2*i], Message: words[2*i+1],
			})
		}
		return all
	}
	began, blocked := at(22, 0, 5), at(22, 1, 12)
	const (
		budget = "PodDisruptionBudget cart allows no disruption: 2 of 2 pods have to stay available"
		every  = "spec.nodes: means all 3 nodes of the cluster; if that is what you want, add AllNodes to spec.force"
	)
	return map[string]Maintenance{
		"maintenance": {
			Name: "kernel", UID: "0d4c6f1e-8b52-4e37-9a6f-51c2d7e8b904", Generation: 2, Stage: v1alpha1.Drain,
			Reason: "kernel 6.12.9 on all web nodes", Accepted: true,
			Stages: []v1alpha1.StageTime{{Stage: v1alpha1.Idle, Start: at(18, 30, 0)}, {Stage: v1alpha1.Drain, Start: at(21, 10, 0)}},
			Summary: v1alpha1.Summary{
				Nodes: "0/2", PodsLeft: 2, PodsBlocked: 1, Message: "cannot move shop/cart-0 on worker-3: " + budget,
			},
			Conditions: conditions(2, began, metav1.ConditionTrue, "Accepted", "nothing speaks against it", "Working", "drains worker-3",
				"NodesLeft", "0 of 2 nodes are drained", "NodesLeft", "0 of 2 nodes were given back"),
			Nodes: []v1alpha1.NodeStatus{{
				Name: "worker-3", UID: "2f9d6c84-0b1e-47a3-95d8-c7e4a6f0b123", Stage: v1alpha1.Draining, Start: &began,
				Pods: &v1alpha1.PodCounts{Moved: 5, Left: 2, Blocked: 1, Staying: 1},
				Blocked: []v1alpha1.BlockedPod{{
					Namespace: "shop", Name: "cart-0", Reason: string(ReasonDisruptionBudget), By: "poddisruptionbudget/shop/cart",
					Message: budget, Since: &blocked,
				}},
			}},
		},
		"maintenance-refused": {
			Name: "firmware", UID: "b6e0d3f7-2a94-4c18-8d5b-7f3e1c9a6042", Generation: 1, Stage: v1alpha1.Cordon,
			Reason: "new firmware of the network cards", Refusal: &Refusal{Reason: string(v1alpha1.AllNodes), Message: every},
			Summary: v1alpha1.Summary{Nodes: "0/3", Message: every},
			Conditions: conditions(1, at(22, 11, 48), metav1.ConditionFalse, string(v1alpha1.AllNodes), every,
				"Refused", "it is not accepted: "+every, "NodesLeft", "0 of 3 nodes are drained",
				"NodesLeft", "0 of 3 nodes were given back"),
			Nodes: []v1alpha1.NodeStatus{
				{Name: "worker-1", UID: "5d1f8b36-9c40-4e7a-b2d3-60a7f4c8e915", Stage: v1alpha1.Waiting},
				{Name: "worker-2", UID: "c82a5e07-41d6-4b93-9f0c-e5d7b1a3f648", Stage: v1alpha1.Waiting},
				{Name: "worker-3", UID: "2f9d6c84-0b1e-47a3-95d8-c7e4a6f0b123", Stage: v1alpha1.Waiting},
			},
			Whole: true,
		},
	}
}
