package plan

import (
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestFirstClaimDecision(t *testing.T) {
	scope := scene(with("a", ""), with("b", v1alpha1.Waiting), func(s *Facts) { s.Maintenance.Status.Stages = nil })
	intents, got := Decide(scope)
	at := metav1.NewTime(noon())
	condition := func(name string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: name, Status: status, ObservedGeneration: 2, LastTransitionTime: at, Reason: reason, Message: message}
	}
	want := Decision{
		Name: "kernel", UID: "m1", ResourceVersion: "7", Finalizer: true, Moving: map[types.UID]bool{},
		Status: v1alpha1.NodeMaintenanceStatus{
			ObservedGeneration: 2, Stages: []v1alpha1.StageTime{{Stage: v1alpha1.Drain, Start: at}},
			Nodes: []v1alpha1.NodeStatus{
				{Name: "a", UID: "uid-a", Stage: v1alpha1.Claimed, Start: &at},
				{Name: "b", UID: "uid-b", Stage: v1alpha1.Waiting, Message: "waits for its turn: 1 at a time"},
			},
			Summary: v1alpha1.Summary{Nodes: "0/2", Message: "cordons a"},
			Conditions: []metav1.Condition{
				condition("Accepted", "True", "Accepted", "it can be carried out"),
				condition("Progressing", "True", "Working", "cordons a"),
				condition("Drained", "False", "NodesLeft", "0 of 2 nodes are drained"),
				condition("Completed", "False", "NodesLeft", "0 of 2 nodes were given back"),
			},
		},
	}
	if !reflect.DeepEqual(got, want) || intents != nil {
		t.Errorf("got  %+v\nwant %+v\nintents %+v", got, want, intents)
	}
}

func TestDecideWholeAnswer(t *testing.T) {
	scope := scene(wants(v1alpha1.Complete), with("a", v1alpha1.Returning), with("b", v1alpha1.Returned))
	scope.Maintenance.Status.Stages = append([]v1alpha1.StageTime{{Stage: v1alpha1.Drain, Start: *clockAt("10:30")}}, scope.Maintenance.Status.Stages...)
	scope.Nodes[0].Node.Status.Conditions = append(scope.Nodes[0].Node.Status.Conditions, saying(corev1.NodeMaintenanceInProgress, "kernel"))
	mark := schemas.CordonMark{Name: "kernel", UID: "m1", At: clockAt("11:30").Time}
	_, got := Decide(scope)
	want := []NodeStep{{
		Name: "a", UID: "uid-a", Action: schemas.NodeReturn, Mark: mark, Unschedulable: true, Marked: &mark,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionFalse, Reason: "AdminRequested",
			Message: "new kernel (maintenance kernel)", LastTransitionTime: metav1.NewTime(noon()),
		}},
	}}
	expect.Equal(t, "nodes", got.Nodes, want)
	_, got = Decide(scene(with("a", v1alpha1.Claimed, nodeIs(func(n *NodeFacts) { n.Node.Status.Conditions = nil }))))
	want = []NodeStep{{
		Name: "a", UID: "uid-a", Action: schemas.NodeCordon, Mark: schemas.CordonMark{Name: "kernel", UID: "m1", At: noon()},
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionTrue, Reason: "AdminRequested",
			Message: "new kernel (maintenance kernel)", LastTransitionTime: metav1.NewTime(noon()),
		}},
	}}
	expect.Equal(t, "nodes", got.Nodes, want)
}

// gate closes a gate.
func gate(n *NodeFacts) {
	n.Gates = []Gate{{Name: "a", Open: true}, {Name: "ceph", Message: "it is ill"}}
}

func uncordoned(n *NodeFacts) { n.Node.Spec.Unschedulable = false }

func deadline(action v1alpha1.OnDeadline) option {
	return spec(func(s *v1alpha1.NodeMaintenanceSpec) {
		s.Deadline, s.OnDeadline = &metav1.Duration{Duration: 20 * time.Minute}, action
	})
}

func maintained(name string) nodeOption {
	return nodeIs(func(n *NodeFacts) {
		n.Node.Annotations = map[string]string{schemas.AnnotationMaintained: name}
	})
}

func drainedAt(hm string) nodeOption {
	return stored(func(n *v1alpha1.NodeStatus) { n.DrainedAt = clockAt(hm) })
}

func before(s *v1alpha1.NodeStatus) { s.CordonedBefore = true }

func TestNodeStages(t *testing.T) {
	unmeant := nodeIs(func(n *NodeFacts) { n.Selected = false })
	unmarked := nodeIs(func(n *NodeFacts) { n.Mark, n.Node.Spec.Unschedulable = nil, false })
	quiet := nodeIs(func(n *NodeFacts) { n.Node.Status.Conditions = n.Node.Status.Conditions[:1] })
	for _, c := range []struct {
		name  string
		scope Facts
		want  []string
	}{
		{"announced while nothing is wanted", scene(wants(v1alpha1.Idle), with("a", v1alpha1.Waiting, quiet)),
			[]string{"a Waiting", "mark a +MaintenancePlanned", "finalizer"}},
		{"not announced before it is stored", scene(wants(v1alpha1.Idle), with("a", "", quiet)), []string{"a Waiting", "finalizer"}},
		{"not touched before the finalizer is there", scene(with("a", v1alpha1.Claimed), func(s *Facts) { s.Maintenance.Finalizers = nil }),
			[]string{"a Claimed moved=0 left=0 blocked=0 staying=0", "finalizer"}},
		{"claimed, then cordoned", scene(with("a", v1alpha1.Claimed)), []string{"a Claimed moved=0 left=0 blocked=0 staying=0", "cordon a", "finalizer"}},
		{"one that is cordoned stays so", scene(with("a", v1alpha1.Waiting, nodeIs(func(n *NodeFacts) { n.Node.Spec.Unschedulable = true }))),
			[]string{"a Claimed cordoned-before", "finalizer"}},
		{"also if a user does it after the claim", scene(with("a", v1alpha1.Claimed, nodeIs(func(n *NodeFacts) { n.Node.Spec.Unschedulable = true }))),
			[]string{"a Claimed cordoned-before moved=0 left=0 blocked=0 staying=0", "cordon a cordoned-before", "finalizer"}},
		{"seen cordoned", scene(with("a", v1alpha1.Claimed, nodeIs(func(n *NodeFacts) {
			n.Mark, n.Node.Spec.Unschedulable = &schemas.CordonMark{Name: "kernel", UID: "m1", CordonedBefore: true}, true
		}))), []string{"a Cordoned cordoned-before moved=0 left=0 blocked=0 staying=0", "finalizer"}},
		{"cordoned, then drained", scene(with("a", v1alpha1.Cordoned, pods(one("x")))), []string{"a Draining moved=0 left=1 blocked=0 staying=0", "finalizer"}},
		{"only cordoned when no more is wanted", scene(wants(v1alpha1.Cordon), with("a", v1alpha1.Cordoned, pods(one("x")))),
			[]string{"a Cordoned moved=0 left=1 blocked=0 staying=0", "finalizer"}},
		{"what another tool drains then is counted", scene(wants(v1alpha1.Cordon), with("a", v1alpha1.Cordoned, pods(one("x")),
			stored(func(n *v1alpha1.NodeStatus) { n.Pods = &v1alpha1.PodCounts{Left: 3} }))),
			[]string{"a Cordoned moved=2 left=1 blocked=0 staying=0", "finalizer"}},
		{"not drained while a gate is closed", scene(with("a", v1alpha1.Cordoned, pods(one("x")), nodeIs(gate))),
			[]string{"a Cordoned moved=0 left=1 blocked=0 staying=0: gate ceph is closed: it is ill", "finalizer"}},
		{"pods stop moving when a gate closes", scene(with("a", v1alpha1.Draining, pods(one("x")), nodeIs(gate))),
			[]string{"a Draining moved=0 left=1 blocked=0 staying=0: gate ceph is closed: it is ill", "finalizer"}},
		{"pods move", scene(with("a", v1alpha1.Draining, pods(one("x"), one("y")))),
			[]string{"a Draining moved=0 left=2 blocked=0 staying=0", "move web/x from a", "move web/y from a", "finalizer"}},
		{"drained when none is left", scene(with("a", v1alpha1.Draining)), []string{"a Drained drained@now moved=0 left=0 blocked=0 staying=0", "finalizer"}},
		{"drained again when one came", scene(with("a", v1alpha1.IsDrained, drainedAt("11:45"), pods(one("x")))),
			[]string{"a Draining moved=0 left=1 blocked=0 staying=0", "finalizer"}},
		{"drained, it keeps its place", scene(with("a", v1alpha1.IsDrained, drainedAt("11:45")), with("b", v1alpha1.Waiting)),
			[]string{"a Drained moved=0 left=0 blocked=0 staying=0", "b Waiting: waits for its turn: 1 at a time", "finalizer"}},
		{"until a user reports the work done", scene(with("a", v1alpha1.IsDrained, drainedAt("11:45"), maintained("kernel")), with("b", v1alpha1.Waiting)),
			[]string{"a Returning", "b Waiting: waits for its turn: 1 at a time", "finalizer"}},
		{"of this maintenance", scene(with("a", v1alpha1.IsDrained, drainedAt("11:45"), maintained("other"))),
			[]string{"a Drained moved=0 left=0 blocked=0 staying=0", "finalizer"}},
		{"and not while it is drained", scene(with("a", v1alpha1.Draining, pods(one("x")), maintained("kernel"))),
			[]string{"a Draining moved=0 left=1 blocked=0 staying=0", "move web/x from a", "finalizer"}},
		{"given back when that is wanted", scene(wants(v1alpha1.Complete), with("a", v1alpha1.Draining, pods(one("x")))), []string{"a Returning", "finalizer"}},
		{"as it was", scene(wants(v1alpha1.Complete), with("a", v1alpha1.Returning)), []string{"a Returning", "return a", "finalizer"}},
		{"and then it is Returned, and the next one begins", scene(with("a", v1alpha1.Returning, unmarked, drainedAt("11:45")), with("b", v1alpha1.Waiting)),
			[]string{"a Returned end@now", "b Claimed", "finalizer"}},
		{"one that waits is given back untouched", scene(wants(v1alpha1.Complete), with("a", v1alpha1.Waiting)), []string{"a Returned", "finalizer"}},
		{"and its conditions are reset", scene(wants(v1alpha1.Complete), with("a", v1alpha1.Returned, nodeIs(func(n *NodeFacts) {
			n.Node.Status.Conditions = append(n.Node.Status.Conditions, saying(corev1.NodeMaintenancePlanned, "kernel"))
		}))), []string{"a Returned", "mark a -MaintenancePlanned", "finalizer"}},
		{"the finalizer does not wait for refused conditions", scene(wants(v1alpha1.Complete), with("a", v1alpha1.Returned, nodeIs(func(n *NodeFacts) {
			n.Node.Status.Conditions, n.ConditionsRefused = []corev1.NodeCondition{saying(corev1.NodeMaintenancePlanned, "kernel")}, true
		}))), []string{"a Returned", "mark a -MaintenancePlanned"}},
		{"when all is taken back the finalizer goes", scene(wants(v1alpha1.Complete), with("a", v1alpha1.Returned)), []string{"a Returned"}},
		{"but not at once", scene(wants(v1alpha1.Complete), now("11:00"), with("a", v1alpha1.Returned)), []string{"a Returned", "finalizer"}},
		{"deletion gives back", scene(with("a", v1alpha1.IsDrained), func(s *Facts) { s.Maintenance.DeletionTimestamp = clockAt("11:59") }),
			[]string{"a Returning", "finalizer"}},
		{"one that is not meant any more is given back", scene(with("a", v1alpha1.Draining, unmeant, pods(one("x")))), []string{"a Returning", "finalizer"}},
		{"and is Gone then", scene(with("a", v1alpha1.Returning, unmeant, unmarked)), []string{"a Gone end@now: it is not selected any more", "finalizer"}},
		{"one that waited is forgotten", scene(with("a", v1alpha1.Waiting, unmeant, quiet)), []string{"finalizer"}},
		{"once its conditions are reset", scene(with("a", v1alpha1.Waiting, unmeant)), []string{"a Waiting", "mark a -MaintenancePlanned", "finalizer"}},
		{"one that was claimed is not cordoned", scene(now("11:30"), with("a", v1alpha1.Claimed, unmeant)),
			[]string{"a Claimed moved=0 left=0 blocked=0 staying=0: will be released after it is certain that it was not cordoned", "finalizer"}},
		{"and given up after a minute", scene(now("11:31"), with("a", v1alpha1.Claimed, unmeant)), []string{"a Returning", "finalizer"}},
		{"one with a mark that the status does not know is claimed", scene(with("a", "", cordonedBy("kernel"), nodeIs(func(n *NodeFacts) { n.Mark.UID = "m1" }))),
			[]string{"a Claimed", "finalizer"}},
		{"one that was given back and still has the mark is given back again", scene(with("a", v1alpha1.Returned, cordonedBy("kernel"), nodeIs(func(n *NodeFacts) { n.Mark.UID = "m1" }))),
			[]string{"a Returning", "finalizer"}},
		{"one that was uncordoned is cordoned again", scene(with("a", v1alpha1.Draining, nodeIs(uncordoned), pods(one("x")), stored(before))),
			[]string{"a Draining moved=0 left=1 blocked=0 staying=0: it was uncordoned, and is cordoned again", "cordon a", "finalizer"}},
		{"and is not cordoned in the end, even if it was before", scene(with("a", v1alpha1.Draining, nodeIs(uncordoned), pods(one("x")),
			nodeIs(func(n *NodeFacts) { n.Mark.CordonedBefore = true }))), []string{
			"a Draining cordoned-before moved=0 left=1 blocked=0 staying=0: it was uncordoned, and is cordoned again", "cordon a", "finalizer",
		}},
		{"but not within a minute", scene(now("11:30"), with("a", v1alpha1.Draining, nodeIs(uncordoned), pods(one("x")))),
			[]string{"a Draining moved=0 left=1 blocked=0 staying=0: it was uncordoned, and is cordoned again", "finalizer"}},
		{"one that has lost its mark gets it again", scene(with("a", v1alpha1.IsDrained, nodeIs(func(n *NodeFacts) { n.Mark = nil }), stored(before))),
			[]string{"a Drained cordoned-before drained@now moved=0 left=0 blocked=0 staying=0: it was uncordoned, and is cordoned again", "cordon a cordoned-before", "finalizer"}},
		{"late", scene(deadline(""), with("a", v1alpha1.Draining, pods(one("x")))),
			[]string{"a Draining moved=0 left=1 blocked=0 staying=0: late: its deadline was 2026-05-04T11:50:00Z", "move web/x from a", "finalizer"}},
		{"late, and held", scene(deadline(v1alpha1.Hold), with("a", v1alpha1.Draining, pods(one("x")))),
			[]string{"a Held moved=0 left=1 blocked=0 staying=0: late: its deadline was 2026-05-04T11:50:00Z; it stays cordoned with 1 pods left", "finalizer"}},
		{"held until its pods are gone", scene(deadline(v1alpha1.Hold), with("a", v1alpha1.Held)),
			[]string{"a Drained drained@now moved=0 left=0 blocked=0 staying=0", "finalizer"}},
		{"held until a user reports the work done", scene(deadline(v1alpha1.Hold), with("a", v1alpha1.Held, maintained("kernel"), pods(one("x")))), []string{"a Returning", "finalizer"}},
		{"held until the deadline is moved", scene(with("a", v1alpha1.Held, pods(one("x")))), []string{"a Draining moved=0 left=1 blocked=0 staying=0", "finalizer"}},
		{"late, and given back", scene(deadline(v1alpha1.Release), with("a", v1alpha1.Draining, pods(one("x")))), []string{"a Returning", "finalizer"}},
		{"late behind a closed gate, and given back", scene(deadline(v1alpha1.Release), with("a", v1alpha1.Cordoned, pods(one("x")), nodeIs(gate))),
			[]string{"a Returning", "finalizer"}},
		{"drained in time it is not late", scene(deadline(v1alpha1.Release), with("a", v1alpha1.IsDrained, drainedAt("11:45"), pods(one("x")))),
			[]string{"a Draining moved=0 left=1 blocked=0 staying=0", "finalizer"}},
		{"one that was released is not begun again", scene(deadline(v1alpha1.Release), with("a", v1alpha1.Returned, stored(func(n *v1alpha1.NodeStatus) { n.Start = clockAt("11:30") }))),
			[]string{"a Returned: given back before it was drained", "finalizer"}},
		{"one that left the cluster is Gone", scene(with("a", v1alpha1.Draining), func(s *Facts) { s.Nodes = nil }),
			[]string{"a Gone: there is no node of this name", "finalizer"}},
		{"one that only waited is forgotten when it leaves", scene(with("a", v1alpha1.Waiting), func(s *Facts) { s.Nodes = nil }), []string{"finalizer"}},
		{"a recreated node is begun again", scene(with("a", v1alpha1.Draining, stored(func(n *v1alpha1.NodeStatus) { n.UID = "old" }), unmarked)),
			[]string{"a Claimed", "finalizer"}},
		{"unless it was drained before", scene(with("a", v1alpha1.IsDrained, drainedAt("11:45"), unmarked, stored(func(n *v1alpha1.NodeStatus) { n.UID = "old" }))),
			[]string{"a Returned end@now", "finalizer"}},
		{"a name without a node", scene(spec(func(s *v1alpha1.NodeMaintenanceSpec) { s.Nodes = v1alpha1.NodeSet{Names: []string{"a", "typo"}} }), with("a", v1alpha1.Waiting)),
			[]string{"a Claimed", "typo Gone: there is no node of this name", "finalizer"}},
		{"an unknown stage counts as none", scene(with("a", "Painted")), []string{"a Claimed", "finalizer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			saidAs(t, told(Decide(c.scope)), c.want...)
		})
	}
}

// An admission policy refuses the cordon of a node for two hours. The node then has its whole deadline.
func TestDeadlineAfterRefusedCordon(t *testing.T) {
	scope := scene(deadline(v1alpha1.Release), with("a", v1alpha1.Claimed, pods(one("x")), stored(func(n *v1alpha1.NodeStatus) {
		n.Start = clockAt("10:00")
	}), nodeIs(func(n *NodeFacts) {
		n.Mark, n.Node.Spec.Unschedulable = &schemas.CordonMark{Name: "kernel", UID: "m1", At: noon()}, true
	})))
	var got []string
	for range 3 {
		intents, steps := Decide(scope)
		scope.Now, scope.Maintenance.Status = scope.Now.Add(5*time.Minute), steps.Status
		steps.Nodes, steps.Finalizer = nil, false
		got = append(got, told(intents, steps)...)
	}
	const working = " moved=0 left=1 blocked=0 staying=0"
	saidAs(t, got, "a Cordoned"+working, "a Draining"+working, "a Draining"+working, "move web/x from a")
}

func TestNodesBeginInTheirOrder(t *testing.T) {
	atOnce := func(n intstr.IntOrString) option {
		return spec(func(s *v1alpha1.NodeMaintenanceSpec) { s.AtOnce = &n })
	}
	zones := spec(func(s *v1alpha1.NodeMaintenanceSpec) { s.Topology = "zone" })
	in := func(zone string) nodeOption {
		return nodeIs(func(n *NodeFacts) { n.Node.Labels["zone"] = zone })
	}
	plane := func(all, ready int) option {
		return func(s *Facts) { s.Cluster.ControlPlane, s.Cluster.ControlPlaneReady = leaders(all), ready }
	}
	refusedCordon := nodeIs(func(n *NodeFacts) { n.CordonRefused = true })
	const turnOf1 = "Waiting: waits for its turn: 1 at a time"
	working := " moved=0 left=0 blocked=0 staying=0"
	closed := func(next string) option {
		return func(s *Facts) {
			s.InWindow, s.Maintenance.Spec.Window = false, &v1alpha1.Window{End: clockAt("11:50")}
			if next != "" {
				s.NextWindow = clockAt(next).Time
			}
		}
	}
	for _, c := range []struct {
		name  string
		scope Facts
		want  []string
	}{
		{"one, by name", scene(with("b", v1alpha1.Waiting), with("a", v1alpha1.Waiting)), []string{"a Claimed", "b " + turnOf1}},
		{"a node whose cordon is refused lets others go first", scene(with("a", v1alpha1.Claimed, refusedCordon), with("b", v1alpha1.Waiting)),
			[]string{"a " + turnOf1, "b Claimed"}},
		{"not in the first minute", scene(now("11:30"), with("a", v1alpha1.Claimed, refusedCordon), with("b", v1alpha1.Waiting)),
			[]string{"a Claimed" + working, "b " + turnOf1}},
		{"not if the others cannot begin", scene(with("a", v1alpha1.Claimed, refusedCordon), with("b", v1alpha1.Waiting, refusedCordon),
			with("c", v1alpha1.Waiting, nodeIs(gate))),
			[]string{"a Claimed" + working, "b " + turnOf1, "c Waiting: gate ceph is closed: it is ill"}},
		{"not if it is cordoned meanwhile", scene(with("a", v1alpha1.Claimed, refusedCordon, nodeIs(func(n *NodeFacts) {
			n.Node.Spec.Unschedulable, n.Mark = true, &schemas.CordonMark{Name: "kernel", UID: "m1"}
		})), with("b", v1alpha1.Waiting)), []string{"a Cordoned" + working, "b " + turnOf1}},
		{"as many as are wanted", scene(atOnce(intstr.FromInt32(2)), with("a", v1alpha1.Waiting), with("b", v1alpha1.Waiting), with("c", v1alpha1.Waiting)),
			[]string{"a Claimed", "b Claimed", "c Waiting: waits for its turn: 2 at a time"}},
		{"a share, rounded down", scene(atOnce(intstr.FromString("50%")), with("a", v1alpha1.Waiting), with("b", v1alpha1.Waiting), with("c", v1alpha1.Waiting)),
			[]string{"a Claimed", "b " + turnOf1, "c " + turnOf1}},
		{"at least one", scene(atOnce(intstr.FromString("0%")), with("a", v1alpha1.Waiting)), []string{"a Claimed"}},
		{"one for a share that cannot be read", scene(atOnce(intstr.FromString("half")), with("a", v1alpha1.Waiting), with("b", v1alpha1.Waiting)), []string{"a Claimed", "b " + turnOf1}},
		{"the first value of the topology first", scene(zones, atOnce(intstr.FromInt32(3)), with("a", v1alpha1.Waiting, in("2")), with("b", v1alpha1.Waiting, in("1")), with("c", v1alpha1.Waiting, in("1"))),
			[]string{"a Waiting: node b of another zone is in progress", "b Claimed", "c Claimed"}},
		{"then the one that is on", scene(zones, atOnce(intstr.FromInt32(3)), with("a", v1alpha1.Claimed, in("2")), with("b", v1alpha1.Waiting, in("1")), with("c", v1alpha1.Waiting, in("2"))),
			[]string{"a Claimed" + working, "b Waiting: node a of another zone is in progress", "c Claimed"}},
		{"a node without the label goes alone", scene(zones, atOnce(intstr.FromInt32(3)), with("a", v1alpha1.Waiting), with("b", v1alpha1.Waiting)),
			[]string{"a Claimed", "b Waiting: node a of another zone is in progress"}},
		{"one of the control plane at a time", scene(plane(5, 5), atOnce(intstr.FromInt32(3)), with("a", v1alpha1.Waiting, leader), with("b", v1alpha1.Waiting, leader), with("c", v1alpha1.Waiting)),
			[]string{"a Claimed", "b Waiting: node a of the control plane is in progress, which are maintained one at a time", "c Claimed"}},
		{"when the others are in service", scene(plane(3, 2), with("a", v1alpha1.Waiting, leader)),
			[]string{"a Waiting: 1 of the 2 other nodes of the control plane are not ready or are cordoned"}},
		{"by all maintenances together", scene(plane(3, 3), holding("disks", "11:00", "z", v1alpha1.Claimed), with("a", v1alpha1.Waiting, leader)),
			[]string{"a Waiting: node z of the control plane is in progress, which are maintained one at a time, by maintenance disks"}},
		{"which does not matter to others", scene(plane(3, 3), holding("disks", "11:00", "z", v1alpha1.Claimed), with("a", v1alpha1.Waiting)), []string{"a Claimed"}},
		{"one that is not ready itself may go", scene(plane(3, 2), with("a", v1alpha1.Waiting, leader, nodeIs(func(n *NodeFacts) { n.Node.Status.Conditions = nil }))),
			[]string{"a Claimed"}},
		{"not one that another tool works on", scene(with("a", v1alpha1.Waiting, nodeIs(func(n *NodeFacts) {
			n.Locks = []NodeLock{{Tool: "kured", Sign: "annotation weave.works/kured-node-lock"}}
		})), with("b", v1alpha1.Waiting)), []string{"a Waiting: kured works on it: annotation weave.works/kured-node-lock", "b Claimed"}},
		{"one that was begun goes on", scene(with("a", v1alpha1.Draining, nodeIs(func(n *NodeFacts) { n.Locks = []NodeLock{{Tool: "kured"}} }))),
			[]string{"a Drained drained@now" + working}},
		{"not while a gate is closed", scene(with("a", v1alpha1.Waiting, nodeIs(gate)), with("b", v1alpha1.Waiting)),
			[]string{"a Waiting: gate ceph is closed: it is ill", "b Claimed"}},
		{"not outside of the window", scene(closed("22:00"), with("a", v1alpha1.Waiting)),
			[]string{"a Waiting: outside of the window, which opens at 2026-05-04T22:00:00Z"}},
		{"a node begun in the window is finished", scene(closed(""), with("a", v1alpha1.Draining), with("b", v1alpha1.Waiting)),
			[]string{"a Drained drained@now" + working, "b Waiting: the window is over"}},
		{"an older maintenance first", scene(another("disks", "09:00", v1alpha1.Drain, "a", v1alpha1.Waiting), with("a", v1alpha1.Waiting), with("b", v1alpha1.Waiting)),
			[]string{"a Waiting: maintenance disks is older and works on it first", "b Claimed"}},
		{"of the same age the first by name", scene(another("disks", "10:00", v1alpha1.Cordon, "a", ""), with("a", v1alpha1.Waiting)),
			[]string{"a Waiting: maintenance disks is older and works on it first"}},
		{"not one that is refused", scene(another("disks", "09:00", v1alpha1.Drain, "a", v1alpha1.Waiting), refused, with("a", v1alpha1.Waiting)), []string{"a Claimed"}},
		{"not after the end of its window", scene(another("disks", "09:00", v1alpha1.Drain, "a", v1alpha1.Waiting), windowOver, with("a", v1alpha1.Waiting)), []string{"a Claimed"}},
		{"unless it has the node", scene(another("disks", "09:00", v1alpha1.Drain, "a", v1alpha1.Draining), refused, with("a", v1alpha1.Waiting)),
			[]string{"a Waiting: maintenance disks works on it"}},
		{"not one that is only announced", scene(another("disks", "09:00", v1alpha1.Idle, "a", v1alpha1.Waiting), with("a", v1alpha1.Waiting)), []string{"a Claimed"}},
		{"not one that is done with the node", scene(another("disks", "09:00", v1alpha1.Drain, "a", v1alpha1.Returned), with("a", v1alpha1.Waiting)), []string{"a Claimed"}},
		{"a younger one waits", scene(another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Waiting), with("a", v1alpha1.Waiting)), []string{"a Claimed"}},
		{"but keeps what it has", scene(another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Draining), with("a", v1alpha1.Waiting, cordonedBy("disks"))),
			[]string{"a Waiting: maintenance disks works on it"}},
		{"also if only its mark is known", scene(another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Waiting), with("a", v1alpha1.Waiting, cordonedBy("disks"))),
			[]string{"a Waiting: maintenance disks works on it"}},
		{"or not even its name, for a minute", scene(now("11:00"), with("a", v1alpha1.Waiting, cordonedBy("disks"))), []string{"a Waiting: maintenance disks has cordoned it"}},
		{"a stale mark waits for a minute", scene(now("11:00"), another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Waiting), recreated,
			with("a", v1alpha1.Waiting, cordonedBy("disks"))), []string{"a Waiting: maintenance disks has cordoned it"}},
		{"then a stale mark is taken over", scene(another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Waiting), recreated,
			with("a", v1alpha1.Waiting, cordonedBy("disks"))), []string{"a Claimed"}},
		{"a mark without an owner is taken over", scene(with("a", v1alpha1.Waiting, cordonedBy("disks"))), []string{"a Claimed"}},
		{"a returned node can be claimed", scene(another("disks", "09:00", v1alpha1.Complete, "a", v1alpha1.Returning), with("a", v1alpha1.Waiting, cordonedBy("disks"))), []string{"a Claimed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, steps := Decide(c.scope)
			steps.Nodes, steps.Finalizer = nil, false
			saidAs(t, told(nil, steps), c.want...)
		})
	}
}

func TestYoungerMaintenanceYieldsControlPlane(t *testing.T) {
	claimed := with("a", v1alpha1.Claimed, leader)
	cordoned := with("a", v1alpha1.Claimed, leader, nodeIs(func(n *NodeFacts) {
		n.Mark, n.Node.Spec.Unschedulable = &schemas.CordonMark{Name: "kernel", UID: "m1", At: clockAt("11:30").Time}, true
	}))
	const beside = "node z of the control plane is in progress, which are maintained one at a time, by maintenance disks"
	const nothing = " moved=0 left=0 blocked=0 staying=0"
	plane := func(ready int) option {
		return func(s *Facts) { s.Cluster.ControlPlane, s.Cluster.ControlPlaneReady = leaders(3), ready }
	}
	for _, c := range []struct {
		name  string
		scope Facts
		want  []string
	}{
		{"alone", scene(plane(3), claimed), []string{"a Claimed" + nothing, "cordon a", "finalizer"}},
		{"the older one waits for the younger one to give up", scene(plane(3), holding("disks", "11:00", "z", v1alpha1.Claimed), claimed),
			[]string{"a Claimed" + nothing + ": " + beside, "finalizer"}},
		{"the younger one gives up", scene(plane(3), holding("disks", "09:00", "z", v1alpha1.Claimed), claimed),
			[]string{"a Waiting: " + beside, "finalizer"}},
		{"when it is certain that it has not cordoned", scene(plane(3), now("11:30"), holding("disks", "09:00", "z", v1alpha1.Claimed), claimed),
			[]string{"a Claimed" + nothing + ": " + beside, "finalizer"}},
		{"the older one gives up what the younger one has", scene(plane(3), holding("disks", "11:00", "z", v1alpha1.Cordoned), claimed),
			[]string{"a Waiting: " + beside, "finalizer"}},
		{"one that has cordoned goes on", scene(plane(3), holding("disks", "09:00", "z", v1alpha1.Claimed), cordoned),
			[]string{"a Cordoned" + nothing, "finalizer"}},
		{"one is given up, too, when another one has failed meanwhile", scene(plane(2), claimed),
			[]string{"a Waiting: 1 of the 2 other nodes of the control plane are not ready or are cordoned", "finalizer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			intents, steps := Decide(c.scope)
			for i := range steps.Nodes {
				steps.Nodes[i].Conditions = nil
			}
			steps.Nodes = slices.DeleteFunc(steps.Nodes, func(n NodeStep) bool { return n.Action == schemas.NodeMark })
			saidAs(t, told(intents, steps), c.want...)
		})
	}
}

func TestNodeHandover(t *testing.T) {
	working := " moved=0 left=0 blocked=0 staying=0"
	for _, c := range []struct {
		name  string
		scope Facts
		want  []string
	}{
		{"the mark is written again", scene(another("disks", "09:00", v1alpha1.Complete, "a", v1alpha1.Returning), with("a", v1alpha1.Claimed, cordonedBy("disks"))),
			[]string{"a Claimed" + working, "cordon a", "finalizer"}},
		{"and its previous state is kept", scene(another("disks", "09:00", v1alpha1.Complete, "a", v1alpha1.Returning),
			with("a", v1alpha1.Claimed, cordonedBy("disks"), nodeIs(func(n *NodeFacts) { n.Mark.CordonedBefore = true }))),
			[]string{"a Claimed cordoned-before" + working, "cordon a cordoned-before", "finalizer"}},
		{"unless a user has uncordoned it since", scene(another("disks", "09:00", v1alpha1.Complete, "a", v1alpha1.Returning),
			with("a", v1alpha1.Claimed, cordonedBy("disks"), nodeIs(func(n *NodeFacts) { n.Mark.CordonedBefore = true }), nodeIs(uncordoned))),
			[]string{"a Claimed" + working, "cordon a", "finalizer"}},
		{"the first one waits for that", scene(wants(v1alpha1.Complete), another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Claimed), with("a", v1alpha1.Returning)),
			[]string{"a Returning: maintenance disks takes it over", "finalizer"}},
		{"and is done when the mark is the other one's", scene(wants(v1alpha1.Complete), another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Claimed), with("a", v1alpha1.Returning, cordonedBy("disks"))),
			[]string{"a Returned end@now: given back before it was drained"}},
		{"an unknown mark is not replaced for a minute", scene(now("11:00"), with("a", v1alpha1.Claimed, cordonedBy("disks"))),
			[]string{"a Claimed" + working, "finalizer"}},
		{"of two claims the older one counts", scene(now("11:30"), another("disks", "09:00", v1alpha1.Drain, "a", v1alpha1.Claimed), with("a", v1alpha1.Claimed)),
			[]string{"a Claimed" + working + ": maintenance disks has claimed it, too, and is older", "finalizer"}},
		{"the younger one gives up after a minute", scene(now("11:31"), another("disks", "09:00", v1alpha1.Drain, "a", v1alpha1.Claimed), with("a", v1alpha1.Claimed)),
			[]string{"a Waiting: maintenance disks works on it", "finalizer"}},
		{"or when it sees the mark", scene(another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Claimed), with("a", v1alpha1.Claimed, cordonedBy("disks"))),
			[]string{"a Waiting: maintenance disks works on it", "finalizer"}},
		{"a stale mark of its name is ignored", scene(another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Claimed), recreated,
			with("a", v1alpha1.Claimed, cordonedBy("disks"))), []string{"a Claimed" + working, "cordon a", "finalizer"}},
		{"the holder sets the conditions", scene(another("disks", "11:00", v1alpha1.Drain, "a", v1alpha1.Waiting), with("a", v1alpha1.Cordoned, nodeIs(func(n *NodeFacts) {
			n.Node.Status.Conditions = []corev1.NodeCondition{saying(corev1.NodeMaintenanceInProgress, "disks"), saying(corev1.NodeMaintenancePlanned, "disks")}
		})), wants(v1alpha1.Cordon)), []string{"a Cordoned" + working, "mark a -MaintenancePlanned +MaintenanceInProgress", "finalizer"}},
		{"one that waits behind another says nothing", scene(another("disks", "09:00", v1alpha1.Drain, "a", v1alpha1.Waiting), with("a", v1alpha1.Waiting, nodeIs(func(n *NodeFacts) {
			n.Node.Status.Conditions = []corev1.NodeCondition{saying(corev1.NodeMaintenancePlanned, "disks")}
		}))), []string{"a Waiting: maintenance disks is older and works on it first", "finalizer"}},
		{"conditions of other programs are not changed", scene(wants(v1alpha1.Cordon), with("a", v1alpha1.Cordoned, nodeIs(func(n *NodeFacts) {
			n.Node.Status.Conditions = []corev1.NodeCondition{
				{Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionTrue, Reason: "AdminRequested", Message: "by hand"},
				{Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Reason: "DrainCompleted", Message: "by hand"},
			}
		}))), []string{"a Cordoned" + working, "finalizer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			saidAs(t, told(Decide(c.scope)), c.want...)
		})
	}
}
