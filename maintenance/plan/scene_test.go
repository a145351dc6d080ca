package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

// noon returns the time of the decisions.
func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// clockAt returns a time of that day.
func clockAt(t string) *metav1.Time {
	at, err := time.Parse(time.RFC3339, "2026-05-04T"+t+":00Z")
	if err != nil {
		panic(err)
	}
	return &metav1.Time{Time: at}
}

type option = func(*Facts)

// scene returns the maintenance kernel of the nodes with the label pool=web, in a cluster with nine other nodes. It was
// created at ten, has its finalizer, and wants Drain since eleven. The options apply in order.
func scene(options ...option) Facts {
	s := Facts{
		Now: noon(),
		Maintenance: v1alpha1.NodeMaintenance{
			ObjectMeta: metav1.ObjectMeta{
				Name: "kernel", UID: "m1", ResourceVersion: "7", Generation: 2, CreationTimestamp: *clockAt("10:00"),
				Finalizers: []string{schemas.MaintenanceFinalizer},
			},
			Spec: v1alpha1.NodeMaintenanceSpec{
				Nodes: v1alpha1.NodeSet{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "web"}}},
				Stage: v1alpha1.Drain, Reason: "new kernel",
			},
			Status: v1alpha1.NodeMaintenanceStatus{Stages: []v1alpha1.StageTime{{Stage: v1alpha1.Drain, Start: *clockAt("11:00")}}},
		},
		Cluster: ClusterFacts{Nodes: 9}, InWindow: true,
	}
	for _, o := range options {
		o(&s)
	}
	return s
}

// wants sets the desired stage.
func wants(stage v1alpha1.Stage) option {
	return func(s *Facts) {
		s.Maintenance.Spec.Stage = stage
		s.Maintenance.Status.Stages = []v1alpha1.StageTime{{Stage: stage, Start: *clockAt("11:00")}}
	}
}

type nodeOption = func(*NodeFacts, *v1alpha1.NodeStatus)

// with adds a selected, ready node with that stored stage. A node in progress is cordoned and marked, with its
// conditions.
func with(name string, stage v1alpha1.NodeStage, options ...nodeOption) option {
	return func(s *Facts) {
		n := NodeFacts{Selected: true, Node: corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}}
		st := v1alpha1.NodeStatus{Name: name, UID: n.Node.UID, Stage: stage}
		if InProgress(stage) {
			st.Start = clockAt("11:30")
		}
		if InProgress(stage) && stage != v1alpha1.Claimed {
			n.Mark = &schemas.CordonMark{Name: "kernel", UID: "m1", At: clockAt("11:30").Time}
			n.Node.Spec.Unschedulable = true
		}
		for _, c := range stageConditions(stage) {
			n.Node.Status.Conditions = append(n.Node.Status.Conditions, saying(c, "kernel"))
		}
		for _, o := range options {
			o(&n, &st)
		}
		s.Nodes = append(s.Nodes, n)
		if st.Stage != "" {
			s.Maintenance.Status.Nodes = append(s.Maintenance.Status.Nodes, st)
		}
	}
}

// saying returns a condition that a maintenance has set.
func saying(name corev1.NodeConditionType, by string) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: name, Status: corev1.ConditionTrue, Reason: "AdminRequested", Message: "new kernel (maintenance " + by + ")",
	}
}

// pods puts pods on the node.
func pods(list ...PodFacts) nodeOption {
	return func(n *NodeFacts, _ *v1alpha1.NodeStatus) {
		for _, p := range list {
			p.Pod.Spec.NodeName = n.Node.Name
			n.Pods = append(n.Pods, p)
		}
	}
}

// one returns the pod web/NAME, created the day before.
func one(name string, options ...test.PodOption) PodFacts {
	p := test.Pod(name, append([]test.PodOption{test.Aged(24 * time.Hour)}, options...)...)
	return PodFacts{ScopedPod: p}
}

// nodeIs changes the node.
func nodeIs(change func(n *NodeFacts)) nodeOption {
	return func(n *NodeFacts, _ *v1alpha1.NodeStatus) { change(n) }
}

// stored changes the stored status of the node.
func stored(change func(n *v1alpha1.NodeStatus)) nodeOption {
	return func(_ *NodeFacts, n *v1alpha1.NodeStatus) { change(n) }
}

// cordonedBy marks the node for another maintenance.
func cordonedBy(name string) nodeOption {
	return func(n *NodeFacts, _ *v1alpha1.NodeStatus) {
		n.Mark, n.Node.Spec.Unschedulable = &schemas.CordonMark{Name: name, UID: types.UID("of-" + name), At: clockAt("11:00").Time}, true
	}
}

// another adds another maintenance that selects a node, and its stage of the node.
func another(name, made string, stage v1alpha1.Stage, node string, how v1alpha1.NodeStage) option {
	return func(s *Facts) {
		m := v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("of-" + name), CreationTimestamp: *clockAt(made),
		}}
		m.Spec.Stage, m.Spec.Nodes.Names = stage, []string{node}
		m.Status.Nodes = []v1alpha1.NodeStatus{{Name: node, Stage: how}}
		s.Others = append(s.Others, m)
	}
}

// recreated replaces the other maintenances by new ones with the same names.
func recreated(s *Facts) {
	for i := range s.Others {
		s.Others[i].UID = "new"
	}
}

// refused marks the other maintenances as not accepted.
func refused(s *Facts) {
	for i := range s.Others {
		s.Others[i].Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionFalse}}
	}
}

// windowOver ends the windows of the other maintenances.
func windowOver(s *Facts) {
	for i := range s.Others {
		s.Others[i].Spec.Window = &v1alpha1.Window{End: clockAt("11:00")}
	}
}

// holding adds another maintenance that holds a control plane node, which this maintenance does not select.
func holding(name, made, node string, how v1alpha1.NodeStage) option {
	return func(s *Facts) {
		another(name, made, v1alpha1.Drain, node, how)(s)
		s.Cluster.ControlPlane[node] = true
	}
}

// leaders returns the names of that many control plane nodes.
func leaders(count int) map[string]bool {
	names := map[string]bool{}
	for i := range count {
		names[string(rune('z'-i))] = true
	}
	return names
}

// leader makes a node a control plane node.
func leader(n *NodeFacts, _ *v1alpha1.NodeStatus) {
	n.Node.Labels["node-role.kubernetes.io/control-plane"] = ""
}

// spec changes the spec.
func spec(change func(*v1alpha1.NodeMaintenanceSpec)) option {
	return func(s *Facts) { change(&s.Maintenance.Spec) }
}

func now(hm string) option { return func(s *Facts) { s.Now = clockAt(hm).Time } }

// told returns everything in a decision except the conditions, line by line.
func told(intents []schemas.Intent, steps Decision) []string {
	var lines []string
	for _, n := range steps.Status.Nodes {
		line := n.Name + " " + string(n.Stage)
		if n.CordonedBefore {
			line += " cordoned-before"
		}
		for what, at := range map[string]*metav1.Time{" drained@": n.DrainedAt, " end@": n.End} {
			if at != nil && at.Equal(clockAt("12:00")) {
				line += what + "now"
			}
		}
		if p := n.Pods; p != nil {
			line += fmt.Sprintf(" moved=%d left=%d blocked=%d staying=%d", p.Moved, p.Left, p.Blocked, p.Staying)
		}
		if n.Message != "" {
			line += ": " + n.Message
		}
		lines = append(lines, line)
		for _, b := range n.Blocked {
			lines = append(lines, fmt.Sprintf("  %s/%s %s by %q since %s: %s", b.Namespace, b.Name, b.Reason, b.By, b.Since.UTC().Format("15:04"), b.Message))
		}
		if n.More > 0 {
			lines = append(lines, fmt.Sprintf("  and %d more", n.More))
		}
	}
	for _, s := range steps.Nodes {
		line := string(s.Action) + " " + s.Name
		if s.Action == schemas.NodeCordon && s.Mark.CordonedBefore {
			line += " cordoned-before"
		}
		for _, c := range s.Conditions {
			line += map[corev1.ConditionStatus]string{"True": " +", "False": " -"}[c.Status] + string(c.Type)
		}
		lines = append(lines, line)
	}
	for _, i := range intents {
		lines = append(lines, "move "+i.Pod.String()+" from "+i.Node)
	}
	if steps.Finalizer {
		lines = append(lines, "finalizer")
	}
	return lines
}

// conditionsTold returns the conditions and the summary of a decision, line by line.
func conditionsTold(steps Decision) []string {
	var lines []string
	for _, c := range steps.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	s := steps.Status.Summary
	return append(lines, fmt.Sprintf("%s left=%d blocked=%d: %s", s.Nodes, s.PodsLeft, s.PodsBlocked, s.Message))
}

// saidAs compares lines.
func saidAs(t *testing.T, got []string, want ...string) {
	t.Helper()
	expect.Equal(t, "decisions", strings.Join(got, "\n"), strings.Join(want, "\n"))
}
