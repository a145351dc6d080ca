package maintenance

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
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// The pods on the nodes of the maintenance of thirty nodes.
const (
	manyNodes = 30
	manyApps  = 20
	replicas  = 30
	spare     = 3 // of each app, by its budget
)

func TestRollingMaintenance(t *testing.T) {
	u := newMaintenanceScene(t, manyNodes, scene.WithLabel("pool", "old"))
	old := u.Nodes
	ready := u.addWorkloads()
	u.Cordon(old[7], true)
	before := u.states()
	dir := filetest.ShortDir(t)
	p := u.StartRun(u.idlePolicy("rate: {evictionsPerSecond: 40, burst: 40}", "circuitBreakers: {cluster: {nodes: 30%}}"), dir)
	p.WaitLeads()
	events := scene.Record(t, scene.BusIn(dir))
	o := u.watchInvariants(3)

	// Idle: the maintenance is only announced.
	u.apply(u.poolSelector("old"), "atOnce: 3", "stage: Idle", "reason: new kernel")
	u.waitStages(allIn(v1alpha1.Waiting, old...))
	u.waitStates(withChange(before, func(s *nodeState) {
		s.said = []string{"MaintenancePlanned: new kernel (maintenance " + u.Namespace + ")"}
	}, old...))

	// Drain: the budget of db delays one of the first three nodes. Then all nodes follow.
	started := time.Now()
	u.setStage(v1alpha1.Drain)
	u.isHeldUp(old[:3])
	u.Cordon(old[20], true)
	u.ChangeBudget("db", 1)
	u.doWork(manyNodes - 3)
	m := u.waitUntil("all are given back but the last three, which are drained", func(m *v1alpha1.NodeMaintenance) bool {
		return maps.Equal(inStage(m), map[v1alpha1.NodeStage]int{v1alpha1.Returned: manyNodes - 3, v1alpha1.IsDrained: 3})
	})
	t.Logf("%d nodes were drained in %v, at most %d at a time", manyNodes, time.Since(started).Round(time.Second), o.mostAtOnce())
	if want := (v1alpha1.Summary{Nodes: "30/30", Message: "spec.stage Drain is reached"}); m.Status.Summary != want {
		t.Errorf("summary %+v, want %+v", m.Status.Summary, want)
	}

	// Complete: the last three nodes are returned, too.
	u.setStage(v1alpha1.Complete)
	u.isCompleted(u.waitStages(allIn(v1alpha1.Returned, old...)), old)
	after := withChange(before, isCordoned, old[20])
	u.waitStates(after)
	u.remove()
	u.waitDeleted()
	u.waitStates(after)
	o.checkEvictions(old)
	u.alwaysReplacedFirst("single")
	checkKept(ready, t)
	for _, v := range events.Verdicts() {
		if v.Strategy != schemas.MaintenanceStrategy || v.Outcome == schemas.Failed {
			t.Errorf("pod %s: %s %s by %s: %s", v.Intent.Pod, v.Outcome, v.Reason, v.Strategy, v.Message)
		}
	}
	p.CheckNotLogged("circuit breaker open", "circuit breaker of a workload open", "level=ERROR")
}

// addWorkloads creates ten more nodes and puts pods on all of them: apps with a budget, a Deployment with one pod and a budget that
// requires it, a DaemonSet, and a StatefulSet on the first node with a budget that requires all of its pods.
func (u *maintenanceScene) addWorkloads() scene.PodHistory {
	u.T.Helper()
	single, db := u.Nodes[1], u.Nodes[0]
	u.AddNodes(10)
	u.AddDaemonSet("agent")
	u.AddDeployment("single", 1, scene.PreferNode(single))
	u.AddBudget("single", "single", 1)
	u.statefulSet("db", 2, db)
	u.AddBudget("db", "db", 2)
	var apps []string
	for i := range manyApps {
		apps = append(apps, fmt.Sprintf("app%d", i))
	}
	u.deployments(replicas, apps...)
	for _, name := range apps {
		u.AddUnavailableBudget(name, name, spare)
	}
	return u.WatchPods()
}

// alwaysReplacedFirst checks that the pod of a Deployment was never evicted, even if it had to leave several nodes.
func (u *maintenanceScene) alwaysReplacedFirst(name string) {
	u.T.Helper()
	for _, e := range u.Evictions() {
		if strings.HasPrefix(e.Pod, name+"-") {
			u.T.Errorf("pod %s was evicted", e.Pod)
		}
	}
	moves := len(u.TemplateChanges(name))
	if moves == 0 {
		u.T.Errorf("%s was not restarted, want once at least", name)
	}
	u.T.Logf("the pod of %s moved %d times", name, moves)
}

// checkKept checks that the number of ready pods was never below the budgets.
func checkKept(l scene.PodHistory, t *testing.T) {
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
func (u *maintenanceScene) isHeldUp(nodes []string) {
	u.T.Helper()
	var want []v1alpha1.NodeStatus
	for _, n := range nodes {
		before := int32(len(u.PodsOn(n)))
		want = append(want, v1alpha1.NodeStatus{
			Name: n, UID: u.Node(n).UID, Stage: v1alpha1.IsDrained, Pods: &v1alpha1.PodCounts{Moved: before - 1, Staying: 1},
		})
	}
	held := v1alpha1.BlockedPod{
		Namespace: u.Namespace, Name: "db-0", Reason: string(schemas.ReasonDisruptionBudget),
		By:      "poddisruptionbudget/" + u.Namespace + "/db",
		Message: "poddisruptionbudget " + u.Namespace + "/db: 2 of 2 healthy pods needed",
	}
	other := held
	other.Name = "db-1"
	want[0].Stage, want[0].Blocked = v1alpha1.Draining, []v1alpha1.BlockedPod{held, other}
	want[0].Pods = &v1alpha1.PodCounts{Moved: want[0].Pods.Moved - 2, Left: 2, Blocked: 2, Staying: 1}

	m := u.waitUntil("the first node is held up and two are drained", func(m *v1alpha1.NodeMaintenance) bool {
		return inStage(m)[v1alpha1.IsDrained] == 2 && m.Status.Summary.PodsLeft == 2 && m.Status.Summary.PodsBlocked == 2
	})
	if got := withoutTimes(m.Status.Nodes[:3]); !reflect.DeepEqual(got, want) {
		u.T.Errorf("the status says\n%s\nwant\n%s", expect.Indented(got), expect.Indented(want))
	}
	why := fmt.Sprintf("cannot move 2 pods, such as %s/db-0 on %s: %s", u.Namespace, nodes[0], held.Message)
	if want := (v1alpha1.Summary{Nodes: "2/30", PodsLeft: 2, PodsBlocked: 2, Message: why}); m.Status.Summary != want {
		u.T.Errorf("summary %+v\nwant %+v", m.Status.Summary, want)
	}
	if got, want := conditionsOf(m)[v1alpha1.Progressing], "False Blocked: "+why; got != want {
		u.T.Errorf("Progressing is %s\nwant %s", got, want)
	}
	for i, n := range nodes {
		left, err := u.movable(n)
		u.T.Must(err)
		if want := [][]string{{"db-0", "db-1"}, nil, nil}[i]; !reflect.DeepEqual(left, want) {
			u.T.Errorf("on %s are %v, want %v", n, left, want)
		}
	}
}

// isCompleted checks the status after all nodes are returned.
func (u *maintenanceScene) isCompleted(m *v1alpha1.NodeMaintenance, nodes []string) {
	u.T.Helper()
	var want []v1alpha1.NodeStatus
	for i, n := range nodes {
		want = append(want, v1alpha1.NodeStatus{
			Name: n, UID: u.Node(n).UID, Stage: v1alpha1.Returned, CordonedBefore: i == 7 || i == 20,
		})
	}
	for _, n := range m.Status.Nodes {
		if n.Start == nil || n.DrainedAt == nil || n.End == nil || n.DrainedAt.Before(n.Start) || n.End.Before(n.DrainedAt) {
			u.T.Errorf("node %s began %v, was drained %v and given back %v", n.Name, n.Start, n.DrainedAt, n.End)
		}
	}
	if got := withoutTimes(m.Status.Nodes); !reflect.DeepEqual(got, want) {
		u.T.Errorf("the status says\n%s\nwant\n%s", expect.Indented(got), expect.Indented(want))
	}
	got, said := conditionsOf(m), map[string]string{
		v1alpha1.Accepted:    "True Accepted: it can be carried out",
		v1alpha1.Progressing: "False Completed: every node was given back",
		v1alpha1.Drained:     "False Completed: the nodes are given back",
		v1alpha1.Completed:   "True Completed: 30 of 30 nodes were given back",
	}
	if !maps.Equal(got, said) {
		u.T.Errorf("conditions %q\nwant %q", got, said)
	}
}
