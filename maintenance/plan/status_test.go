package plan

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

func TestHarmfulMaintenance(t *testing.T) {
	cluster := func(nodes, controlPlane int) option {
		return func(s *Facts) {
			s.Cluster = ClusterFacts{Nodes: nodes, ControlPlane: leaders(controlPlane), ControlPlaneReady: controlPlane}
		}
	}
	force := func(list ...v1alpha1.Guard) option {
		return spec(func(s *v1alpha1.NodeMaintenanceSpec) { s.Force = list })
	}
	over := func(s *Facts) {
		s.InWindow, s.Maintenance.Spec.Window = false, &v1alpha1.Window{End: clockAt("11:00")}
	}
	const waits, begins = "a Waiting", "a Claimed"
	const ifWanted = "; if that is what you want, add "
	for _, c := range []struct {
		name     string
		scope    Facts
		accepted string
		node     string
	}{
		{"not some nodes of many", scene(with("a", v1alpha1.Waiting)), "Accepted True Accepted: it can be carried out", begins},
		{"all nodes", scene(cluster(2, 0), with("a", v1alpha1.Waiting), with("b", v1alpha1.Waiting)),
			"Accepted False AllNodes: spec.nodes: selects all 2 nodes of the cluster" + ifWanted + "AllNodes to spec.force", waits},
		{"unless that is wanted", scene(cluster(2, 0), force(v1alpha1.AllNodes), with("a", v1alpha1.Waiting), with("b", v1alpha1.Waiting)),
			"Accepted True Accepted: it can be carried out", begins},
		{"the whole control plane", scene(cluster(5, 1), with("a", v1alpha1.Waiting, leader)),
			"Accepted False ControlPlane: spec.nodes: selects every node of the control plane (1)" + ifWanted + "ControlPlane to spec.force", waits},
		{"unless that is wanted too", scene(cluster(5, 1), force(v1alpha1.ControlPlane), with("a", v1alpha1.Waiting, leader)),
			"Accepted True Accepted: it can be carried out", begins},
		{"also among all nodes", scene(cluster(2, 1), force(v1alpha1.AllNodes), with("a", v1alpha1.Waiting, leader), with("b", v1alpha1.Waiting)),
			"Accepted False ControlPlane: spec.nodes: selects every node of the control plane (1)" + ifWanted + "ControlPlane to spec.force", waits},
		{"a part of the control plane is not", scene(cluster(5, 3), with("a", v1alpha1.Waiting, leader)), "Accepted True Accepted: it can be carried out", begins},
		{"the only node", scene(cluster(1, 1), with("a", v1alpha1.Waiting, leader)),
			"Accepted False SingleNode: spec.nodes: selects the only node of the cluster: its pods have nowhere to go" + ifWanted + "SingleNode to spec.force", waits},
		{"unless that is wanted as well", scene(cluster(1, 1), force(v1alpha1.SingleNode), with("a", v1alpha1.Waiting, leader)),
			"Accepted True Accepted: it can be carried out", begins},
		{"a window that is over", scene(over, with("a", v1alpha1.Waiting)),
			"Accepted False WindowPast: spec.window: ended at 2026-05-04T11:00:00Z before any node was started", waits},
		{"but not once a node was begun", scene(over, with("a", v1alpha1.Waiting), with("b", v1alpha1.Returned, stored(func(n *v1alpha1.NodeStatus) { n.Start = clockAt("10:30") }))),
			"Accepted True Accepted: it can be carried out", "a Waiting: the window is over"},
		{"a plan that contradicts itself", scene(plan(v1alpha1.DrainStep{}, v1alpha1.DrainStep{}), with("a", v1alpha1.Waiting)),
			"Accepted False PlanContradiction: spec.plan[1]: can never select a pod: spec.plan[0] selects all that it does; " +
				"leave it out or move it before that one", waits},
		{"a schedule that cannot be read", scene(spec(func(s *v1alpha1.NodeMaintenanceSpec) {
			s.Window = &v1alpha1.Window{Schedule: &v1alpha1.Schedule{Cron: "daily", Duration: metav1.Duration{Duration: time.Hour}}}
		}), with("a", v1alpha1.Waiting)),
			`Accepted False InvalidSchedule: spec.window.schedule.cron: "daily": has 1 fields, want 5: minute, hour, day of the month, month, ` +
				`day of the week`, waits},
		{"an empty selector", scene(spec(func(s *v1alpha1.NodeMaintenanceSpec) { s.Nodes.Selector = &metav1.LabelSelector{} }), with("a", v1alpha1.Waiting)),
			"Accepted False EmptySelector: spec.nodes.selector: is empty, which would be every node; want at least one label", waits},
		{"of too many nodes only begun ones are listed", scene(crowd(MostNodes), with("a", v1alpha1.Draining, pods(one("x")))),
			"Accepted False TooManyNodes: spec.nodes: selects more than 1000 nodes; make several maintenances, such as one for each pool of " +
				"nodes; nodes that were started before are finished", "a Draining moved=0 left=1 blocked=0 staying=0"},
		{"not as many as can be", scene(crowd(MostNodes)), "Accepted True Accepted: it can be carried out", "n-0000 Claimed"},
		{"nodes that were begun go on", scene(cluster(2, 0), with("a", v1alpha1.Draining, pods(one("x"))), with("b", v1alpha1.Waiting)),
			"Accepted False AllNodes: spec.nodes: selects all 2 nodes of the cluster" + ifWanted + "AllNodes to spec.force; " +
				"nodes that were started before are finished", "a Draining moved=0 left=1 blocked=0 staying=0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			intents, steps := Decide(c.scope)
			saidAs(t, []string{conditionsTold(steps)[0], told(intents, steps)[0]}, c.accepted, c.node)
		})
	}
}

// crowd adds that many waiting nodes.
func crowd(n int, options ...nodeOption) option {
	return func(s *Facts) {
		s.Cluster.Nodes = 2 * n
		for i := range n {
			with(fmt.Sprintf("n-%04d", i), v1alpha1.Waiting, options...)(s)
		}
	}
}

// unsaid removes the conditions that a maintenance has set.
func unsaid() nodeOption {
	return nodeIs(func(n *NodeFacts) { n.Node.Status.Conditions = n.Node.Status.Conditions[:1] })
}

func TestTooManyNodes(t *testing.T) {
	var takenBack, returned []string
	for i := range MostNodes + 1 {
		takenBack = append(takenBack, fmt.Sprintf("mark n-%04d -MaintenancePlanned", i))
		returned = append(returned, fmt.Sprintf("n-%04d Returned", i))
	}
	_, steps := Decide(scene(crowd(MostNodes + 1)))
	steps.Status.Nodes = nil
	saidAs(t, told(nil, steps), append(takenBack, "finalizer")...)
	_, steps = Decide(scene(wants(v1alpha1.Complete), crowd(MostNodes+1)))
	saidAs(t, told(nil, steps), append(returned, "finalizer")...)
	_, steps = Decide(scene(crowd(MostNodes+1, unsaid())))
	saidAs(t, told(nil, steps), "finalizer")
	_, steps = Decide(scene(wants(v1alpha1.Complete), now("13:00"), crowd(MostNodes+1, unsaid())))
	saidAs(t, told(nil, steps))
}

// conditionsCase is a maintenance with its expected conditions and summary.
type conditionsCase struct {
	name  string
	scope Facts
	want  []string
}

func checkConditions(t *testing.T, cases []conditionsCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, steps := Decide(c.scope)
			saidAs(t, conditionsTold(steps), c.want...)
		})
	}
}

func TestProgressConditions(t *testing.T) {
	const accepted = "Accepted True Accepted: it can be carried out"
	nothing := func(s *Facts) { s.Nodes, s.Maintenance.Status.Nodes = nil, nil }
	checkConditions(t, []conditionsCase{
		{"no node is meant", scene(nothing), []string{
			accepted, "Progressing False NoNodes: it selects no node that exists", "Drained False NoNodes: it selects no node that exists",
			"Completed False NodesLeft: 0 of 0 nodes were given back", "0/0 left=0 blocked=0: it selects no node that exists",
		}},
		{"nothing is wanted yet", scene(wants(v1alpha1.Idle), with("a", v1alpha1.Waiting)), []string{
			accepted, "Progressing False Idle: it starts no node: spec.stage is Idle", "Drained False NodesLeft: 0 of 1 nodes are drained",
			"Completed False NodesLeft: 0 of 1 nodes were given back", "0/1 left=0 blocked=0: it starts no node: spec.stage is Idle",
		}},
		{"refused", scene(func(s *Facts) { s.Cluster.Nodes = 1 }, with("a", v1alpha1.Waiting)), []string{
			"Accepted False SingleNode: spec.nodes: selects the only node of the cluster: its pods have nowhere to go; if that is what you want, " +
				"add SingleNode to spec.force",
			"Progressing False Refused: it is not accepted: spec.nodes: selects the only node of the cluster: its pods have nowhere to go; " +
				"if that is what you want, add SingleNode to spec.force",
			"Drained False NodesLeft: 0 of 1 nodes are drained", "Completed False NodesLeft: 0 of 1 nodes were given back",
			"0/1 left=0 blocked=0: spec.nodes: selects the only node of the cluster: its pods have nowhere to go; if that is what you want, " +
				"add SingleNode to spec.force",
		}},
		{"several nodes in several stages", scene(with("a", v1alpha1.Claimed), with("b", v1alpha1.Claimed), with("c", v1alpha1.Claimed),
			with("d", v1alpha1.Claimed), with("e", v1alpha1.Draining, pods(one("x"))), with("f", v1alpha1.Returning)), []string{
			accepted, "Progressing True Working: cordons a, b, c and 1 more, drains e, gives back f", "Drained False NodesLeft: 0 of 6 nodes are drained",
			"Completed False NodesLeft: 0 of 6 nodes were given back", "0/6 left=1 blocked=0: cordons a, b, c and 1 more, drains e, gives back f",
		}},
		{"one pod is blocked, others move", scene(draining(one("x", test.Protected("R")), one("y"))), []string{
			accepted, "Progressing True Working: drains a", "Drained False NodesLeft: 0 of 1 nodes are drained",
			"Completed False NodesLeft: 0 of 1 nodes were given back", "0/1 left=2 blocked=1: cannot move web/x on a: R: for the test",
		}},
		{"all that is left is blocked", scene(draining(one("x", test.Protected("R")), one("y", test.Protected("R")))), []string{
			accepted, "Progressing False Blocked: cannot move 2 pods, such as web/x on a: R: for the test", "Drained False NodesLeft: 0 of 1 nodes are drained",
			"Completed False NodesLeft: 0 of 1 nodes were given back", "0/1 left=2 blocked=2: cannot move 2 pods, such as web/x on a: R: for the test",
		}},
		{"a gate is closed", scene(with("a", v1alpha1.Waiting, nodeIs(gate))), []string{
			accepted, "Progressing False Waiting: a: gate ceph is closed: it is ill", "Drained False NodesLeft: 0 of 1 nodes are drained",
			"Completed False NodesLeft: 0 of 1 nodes were given back", "0/1 left=0 blocked=0: a: gate ceph is closed: it is ill",
		}},
		{"a node that waits for more than its turn comes first", scene(with("a", v1alpha1.IsDrained, drainedAt("11:45")), with("b", v1alpha1.Waiting), with("c", v1alpha1.Waiting, nodeIs(gate))), []string{
			accepted, "Progressing False Waiting: c: gate ceph is closed: it is ill", "Drained False NodesLeft: 1 of 3 nodes are drained",
			"Completed False NodesLeft: 0 of 3 nodes were given back", "1/3 left=0 blocked=0: c: gate ceph is closed: it is ill",
		}},
		{"cordoned as wanted", scene(wants(v1alpha1.Cordon), with("a", v1alpha1.Cordoned, pods(one("x")))), []string{
			accepted, "Progressing False Reached: spec.stage Cordon is reached", "Drained False NodesLeft: 0 of 1 nodes are drained",
			"Completed False NodesLeft: 0 of 1 nodes were given back", "0/1 left=1 blocked=0: spec.stage Cordon is reached",
		}},
		{"cordoned, and drained next", scene(with("a", v1alpha1.Claimed, cordonedBy("kernel"), pods(one("x")),
			nodeIs(func(n *NodeFacts) { n.Mark.UID = "m1" }))), []string{
			accepted, "Progressing True Working: drains a", "Drained False NodesLeft: 0 of 1 nodes are drained",
			"Completed False NodesLeft: 0 of 1 nodes were given back", "0/1 left=1 blocked=0: drains a",
		}},
		{"draining, with no pod to move", scene(with("a", v1alpha1.Cordoned)), []string{
			accepted, "Progressing True Working: drains a", "Drained False NodesLeft: 0 of 1 nodes are drained",
			"Completed False NodesLeft: 0 of 1 nodes were given back", "0/1 left=0 blocked=0: drains a",
		}},
		{"all are drained, or were", scene(with("a", v1alpha1.IsDrained, drainedAt("11:45")), with("b", v1alpha1.Returned, drainedAt("11:40"))), []string{
			accepted, "Progressing False Reached: spec.stage Drain is reached", "Drained True AllDrained: 2 of 2 nodes are drained",
			"Completed False NodesLeft: 1 of 2 nodes were given back", "2/2 left=0 blocked=0: spec.stage Drain is reached",
		}},
		{"all were drained, and one of them is given back", scene(with("a", v1alpha1.IsDrained, drainedAt("11:45")), with("b", v1alpha1.Returning, drainedAt("11:40"))), []string{
			accepted, "Progressing True Working: gives back b", "Drained True AllDrained: 2 of 2 nodes are drained",
			"Completed False NodesLeft: 0 of 2 nodes were given back", "2/2 left=0 blocked=0: gives back b",
		}},
		{"given back, one after the other", scene(wants(v1alpha1.Complete), with("a", v1alpha1.Returned), with("b", v1alpha1.Returning)), []string{
			accepted, "Progressing True Working: gives back b", "Drained False Completed: the nodes are given back",
			"Completed False NodesLeft: 1 of 2 nodes were given back", "1/2 left=0 blocked=0: gives back b",
		}},
		{"all are given back", scene(wants(v1alpha1.Complete), with("a", v1alpha1.Returned), with("b", v1alpha1.Gone, stored(func(n *v1alpha1.NodeStatus) { n.Start = clockAt("11:30") })),
			func(s *Facts) { s.Nodes = s.Nodes[:1] }), []string{
			accepted, "Progressing False Completed: every node was given back", "Drained False Completed: the nodes are given back",
			"Completed True Completed: 1 of 1 nodes were given back", "1/1 left=0 blocked=0: every node was given back",
		}},
	})
}

// A pool has grown beyond the limit after some of its nodes were begun, or before.
func TestTooManyNodesConditions(t *testing.T) {
	const refused = "spec.nodes: selects more than 1000 nodes; make several maintenances, such as one for each pool of nodes"
	const finishes = refused + "; nodes that were started before are finished"
	pool := func(stage v1alpha1.NodeStage) []option {
		options := []option{with("a", v1alpha1.Returned, drainedAt("11:40"), stored(func(n *v1alpha1.NodeStatus) { n.Start = clockAt("11:30") }))}
		if stage != "" {
			options = append(options, with("b", stage, drainedAt("11:45")))
		}
		return append(options, crowd(MostNodes, unsaid()))
	}
	checkConditions(t, []conditionsCase{
		{"all begun nodes are drained", scene(pool(v1alpha1.IsDrained)...), []string{
			"Accepted False TooManyNodes: " + finishes, "Progressing False Refused: it is not accepted: " + refused,
			"Drained False NodesLeft: 2 of 1000+ nodes are drained", "Completed False NodesLeft: 1 of 1000+ nodes were given back",
			"2/1000+ left=0 blocked=0: " + finishes,
		}},
		{"all begun nodes are returned", scene(pool("")...), []string{
			"Accepted False TooManyNodes: " + refused, "Progressing False Refused: it is not accepted: " + refused,
			"Drained False NodesLeft: 1 of 1000+ nodes are drained", "Completed False NodesLeft: 1 of 1000+ nodes were given back",
			"1/1000+ left=0 blocked=0: " + refused,
		}},
		{"no node was begun", scene(crowd(MostNodes+1, unsaid())), []string{
			"Accepted False TooManyNodes: " + refused, "Progressing False Refused: it is not accepted: " + refused,
			"Drained False NodesLeft: 0 of 1000+ nodes are drained", "Completed False NodesLeft: 0 of 1000+ nodes were given back",
			"0/1000+ left=0 blocked=0: " + refused,
		}},
		{"completed", scene(wants(v1alpha1.Complete), with("a", v1alpha1.Returned, drainedAt("11:40")), crowd(MostNodes, unsaid())), []string{
			"Accepted False TooManyNodes: " + refused, "Progressing False Completed: every node was given back",
			"Drained False Completed: the nodes are given back", "Completed True Completed: 1 of 1 nodes were given back",
			"1/1 left=0 blocked=0: " + refused,
		}},
	})
}

// The maintenance waits for named nodes that do not exist yet, but not for nodes that have left the cluster.
func TestMissingNodeConditions(t *testing.T) {
	const accepted = "Accepted True Accepted: it can be carried out"
	named := func(names ...string) option {
		return spec(func(s *v1alpha1.NodeMaintenanceSpec) { s.Nodes = v1alpha1.NodeSet{Names: names} })
	}
	left := func(was v1alpha1.NodeStatus) option {
		was.Name, was.UID = "b", "old"
		return func(s *Facts) { s.Maintenance.Status.Nodes = append(s.Maintenance.Status.Nodes, was) }
	}
	drained := []string{
		accepted, "Progressing False Reached: spec.stage Drain is reached", "Drained True AllDrained: 1 of 1 nodes are drained",
		"Completed False NodesLeft: 0 of 1 nodes were given back", "1/1 left=0 blocked=0: spec.stage Drain is reached",
	}
	checkConditions(t, []conditionsCase{
		{"never there", scene(named("a", "b"), with("a", v1alpha1.IsDrained, drainedAt("11:45"))), []string{
			accepted, "Progressing False Waiting: b: there is no node of this name", "Drained False NodesLeft: 1 of 2 nodes are drained",
			"Completed False NodesLeft: 0 of 2 nodes were given back", "1/2 left=0 blocked=0: b: there is no node of this name",
		}},
		{"none is there", scene(named("a", "b")), []string{
			accepted, "Progressing False NoNodes: it selects no node that exists", "Drained False NoNodes: it selects no node that exists",
			"Completed False NodesLeft: 0 of 2 nodes were given back", "0/2 left=0 blocked=0: it selects no node that exists",
		}},
		{"left after it was begun", scene(named("a", "b"), with("a", v1alpha1.IsDrained, drainedAt("11:45")),
			left(v1alpha1.NodeStatus{Stage: v1alpha1.Draining, Start: clockAt("11:30")})), drained},
		{"left before its turn", scene(named("a", "b"), with("a", v1alpha1.IsDrained, drainedAt("11:45")),
			left(v1alpha1.NodeStatus{Stage: v1alpha1.Waiting})), drained},
		{"completed", scene(wants(v1alpha1.Complete), named("a", "b"), with("a", v1alpha1.Returned, drainedAt("11:45"))), []string{
			accepted, "Progressing False Completed: every node was given back", "Drained False Completed: the nodes are given back",
			"Completed True Completed: 1 of 1 nodes were given back", "1/1 left=0 blocked=0: every node was given back",
		}},
	})
}

func TestConditionTransitionTime(t *testing.T) {
	scope := scene(with("a", v1alpha1.IsDrained, drainedAt("11:45")))
	scope.Maintenance.Status.Conditions = []metav1.Condition{
		{Type: "Accepted", Status: "True", LastTransitionTime: *clockAt("11:01")}, {Type: "Drained", Status: "False", LastTransitionTime: *clockAt("11:02")},
	}
	_, steps := Decide(scope)
	got := map[string]string{}
	for _, c := range steps.Status.Conditions {
		got[c.Type] = c.LastTransitionTime.UTC().Format("15:04")
	}
	if got["Accepted"] != "11:01" || got["Drained"] != "12:00" {
		t.Errorf("got %v, want Accepted since 11:01 and Drained since 12:00", got)
	}
}

func TestStageNeverGoesBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		scope Facts
		want  []v1alpha1.Stage
	}{
		{"none is Idle", scene(wants("")), []v1alpha1.Stage{"", v1alpha1.Idle}},
		{"a new one is begun", scene(wants(v1alpha1.Cordon), spec(func(s *v1alpha1.NodeMaintenanceSpec) { s.Stage = v1alpha1.Drain })), []v1alpha1.Stage{v1alpha1.Cordon, v1alpha1.Drain}},
		{"never backwards", scene(wants(v1alpha1.Complete), spec(func(s *v1alpha1.NodeMaintenanceSpec) { s.Stage = v1alpha1.Drain })), []v1alpha1.Stage{v1alpha1.Complete}},
		{"deletion completes", scene(func(s *Facts) { s.Maintenance.DeletionTimestamp = clockAt("11:59") }), []v1alpha1.Stage{v1alpha1.Drain, v1alpha1.Complete}},
		{"a refused maintenance begins none", scene(plan(v1alpha1.DrainStep{}, v1alpha1.DrainStep{}), func(s *Facts) { s.Maintenance.Status.Stages = nil }), nil},
	} {
		_, steps := Decide(c.scope)
		var got []v1alpha1.Stage
		for _, s := range steps.Status.Stages {
			got = append(got, s.Stage)
		}
		expect.Equal(t, c.name, got, c.want)
	}
}
