package e2e

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// The pods on the nodes of the maintenance of thirty nodes.
const (
	manyNodes = 30
	manyApps  = 20
	replicas  = 30
	spare     = 3 // of each app, by its budget
)

func TestRollingMaintenance(t *testing.T) {
	u := newUpkeep(t, manyNodes, labeled("pool", "old"))
	old := u.nodes
	ready := u.populate()
	u.cordon(old[7], true)
	before := u.states()
	dir := filetest.ShortDir(t)
	p := u.rehome(u.quiet("rate: {evictionsPerSecond: 40, burst: 40}", "circuitBreakers: {cluster: {nodes: 30%}}"), dir)
	p.leads()
	events := record(t, at(dir))
	o := u.oversee(3)

	// Idle: the maintenance is only announced.
	u.apply(u.ofPool("old"), "atOnce: 3", "stage: Idle", "reason: new kernel")
	u.untilStages(allIn(v1alpha1.Waiting, old...))
	u.untilStates(with(before, func(s *nodeState) {
		s.said = []string{"MaintenancePlanned: new kernel (maintenance " + u.namespace + ")"}
	}, old...))

	// Drain: the budget of db delays one of the first three nodes. Then all nodes follow.
	started := time.Now()
	u.wants(v1alpha1.Drain)
	u.isHeldUp(old[:3])
	u.cordon(old[20], true)
	u.changeBudget("db", 1)
	u.works(manyNodes - 3)
	m := u.until("all are given back but the last three, which are drained", func(m *v1alpha1.NodeMaintenance) bool {
		return maps.Equal(inStage(m), map[v1alpha1.NodeStage]int{v1alpha1.Returned: manyNodes - 3, v1alpha1.IsDrained: 3})
	})
	t.Logf("%d nodes were drained in %v, at most %d at a time", manyNodes, time.Since(started).Round(time.Second), o.worst())
	if want := (v1alpha1.Summary{Nodes: "30/30", Message: "spec.stage Drain is reached"}); m.Status.Summary != want {
		t.Errorf("summary %+v, want %+v", m.Status.Summary, want)
	}

	// Complete: the last three nodes are released too.
	u.wants(v1alpha1.Complete)
	u.isCompleted(u.untilStages(allIn(v1alpha1.Returned, old...)), old)
	after := with(before, isCordoned, old[20])
	u.untilStates(after)
	u.remove()
	u.gone()
	u.untilStates(after)
	o.evictedOff(old)
	u.alwaysReplacedFirst("single")
	ready.kept(t)
	for _, v := range events.verdicts() {
		if v.Strategy != schemas.MaintenanceStrategy || v.Outcome == schemas.Failed {
			t.Errorf("pod %s: %s %s by %s: %s", v.Intent.Pod, v.Outcome, v.Reason, v.Strategy, v.Message)
		}
	}
	p.saidNothingOf("circuit breaker open", "circuit breaker of a workload open", "level=ERROR")
}

// populate creates ten more nodes and puts pods on all of them: apps with a budget, a Deployment with one pod and a budget that
// requires it, a DaemonSet, and a StatefulSet on the first node with a budget that requires all of its pods.
func (u *upkeep) populate() lives {
	u.t.Helper()
	single, db := u.nodes[1], u.nodes[0]
	u.addNodes(10)
	u.daemonSet("agent")
	u.deployment("single", 1, preferring(single))
	u.budget("single", "single", 1)
	u.statefulSet("db", 2, db)
	u.budget("db", "db", 2)
	var apps []string
	for i := range manyApps {
		apps = append(apps, fmt.Sprintf("app%d", i))
	}
	u.deployments(replicas, apps...)
	for _, name := range apps {
		u.allow(name, name, spare)
	}
	return u.watchPods()
}

// alwaysReplacedFirst checks that the pod of a Deployment was never evicted, even if it had to leave several nodes.
func (u *upkeep) alwaysReplacedFirst(name string) {
	u.t.Helper()
	for _, e := range u.evictions() {
		if strings.HasPrefix(e.pod, name+"-") {
			u.t.Errorf("pod %s was evicted", e.pod)
		}
	}
	moves := len(u.templateChanges(name))
	if moves == 0 {
		u.t.Errorf("%s was not restarted, want once at least", name)
	}
	u.t.Logf("the pod of %s moved %d times", name, moves)
}

// kept checks that the number of ready pods was never below the budgets.
func (l lives) kept(t *testing.T) {
	t.Helper()
	least := map[string]int{"single": 1, "db": 1}
	for i := range manyApps {
		least[fmt.Sprintf("app%d", i)] = replicas - spare
	}
	got := l.Least(func(p *corev1.Pod) string { return p.Labels["app"] })
	for name, want := range least {
		if got[name] < want {
			t.Errorf("%s had %d pods ready at the worst moment, want %d", name, got[name], want)
		}
	}
}

// isHeldUp waits until the budget of db delays the first of the first three nodes and the others are drained, and compares the
// status with the nodes.
func (u *upkeep) isHeldUp(nodes []string) {
	u.t.Helper()
	var want []v1alpha1.NodeStatus
	for _, n := range nodes {
		before := int32(len(u.pods(n)))
		want = append(want, v1alpha1.NodeStatus{
			Name: n, UID: u.node(n).UID, Stage: v1alpha1.IsDrained, Pods: &v1alpha1.PodCounts{Moved: before - 1, Staying: 1},
		})
	}
	held := v1alpha1.BlockedPod{
		Namespace: u.namespace, Name: "db-0", Reason: string(schemas.ReasonDisruptionBudget),
		By:      "poddisruptionbudget/" + u.namespace + "/db",
		Message: "poddisruptionbudget " + u.namespace + "/db: 2 of 2 healthy pods needed",
	}
	other := held
	other.Name = "db-1"
	want[0].Stage, want[0].Blocked = v1alpha1.Draining, []v1alpha1.BlockedPod{held, other}
	want[0].Pods = &v1alpha1.PodCounts{Moved: want[0].Pods.Moved - 2, Left: 2, Blocked: 2, Staying: 1}

	m := u.until("the first node is held up and two are drained", func(m *v1alpha1.NodeMaintenance) bool {
		return inStage(m)[v1alpha1.IsDrained] == 2 && m.Status.Summary.PodsLeft == 2 && m.Status.Summary.PodsBlocked == 2
	})
	if got := untimed(m.Status.Nodes[:3]); !reflect.DeepEqual(got, want) {
		u.t.Errorf("the status says\n%s\nwant\n%s", expect.Indented(got), expect.Indented(want))
	}
	why := fmt.Sprintf("cannot move 2 pods, such as %s/db-0 on %s: %s", u.namespace, nodes[0], held.Message)
	if want := (v1alpha1.Summary{Nodes: "2/30", PodsLeft: 2, PodsBlocked: 2, Message: why}); m.Status.Summary != want {
		u.t.Errorf("summary %+v\nwant %+v", m.Status.Summary, want)
	}
	if got, want := conditionsOf(m)[v1alpha1.Progressing], "False Blocked: "+why; got != want {
		u.t.Errorf("Progressing is %s\nwant %s", got, want)
	}
	for i, n := range nodes {
		left, err := u.movable(n)
		u.t.Must(err)
		if want := [][]string{{"db-0", "db-1"}, nil, nil}[i]; !reflect.DeepEqual(left, want) {
			u.t.Errorf("on %s are %v, want %v", n, left, want)
		}
	}
}

// isCompleted checks the status after all nodes are released.
func (u *upkeep) isCompleted(m *v1alpha1.NodeMaintenance, nodes []string) {
	u.t.Helper()
	var want []v1alpha1.NodeStatus
	for i, n := range nodes {
		want = append(want, v1alpha1.NodeStatus{
			Name: n, UID: u.node(n).UID, Stage: v1alpha1.Returned, CordonedBefore: i == 7 || i == 20,
		})
	}
	for _, n := range m.Status.Nodes {
		if n.Start == nil || n.DrainedAt == nil || n.End == nil || n.DrainedAt.Before(n.Start) || n.End.Before(n.DrainedAt) {
			u.t.Errorf("node %s began %v, was drained %v and given back %v", n.Name, n.Start, n.DrainedAt, n.End)
		}
	}
	if got := untimed(m.Status.Nodes); !reflect.DeepEqual(got, want) {
		u.t.Errorf("the status says\n%s\nwant\n%s", expect.Indented(got), expect.Indented(want))
	}
	got, said := conditionsOf(m), map[string]string{
		v1alpha1.Accepted:    "True Accepted: it can be carried out",
		v1alpha1.Progressing: "False Completed: every node was given back",
		v1alpha1.Drained:     "False Completed: the nodes are given back",
		v1alpha1.Completed:   "True Completed: 30 of 30 nodes were given back",
	}
	if !maps.Equal(got, said) {
		u.t.Errorf("conditions %q\nwant %q", got, said)
	}
}
