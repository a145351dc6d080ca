package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/filetest"
)

// controlPlane makes a node a member of the control plane.
func controlPlane(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }

func TestRefusedMaintenance(t *testing.T) {
	u := newUpkeep(t, 2, controlPlane, inPool("control"))
	u.addNodes(3, inPool("work"))
	u.deployment("api", 5)
	u.rehome(u.quiet(), filetest.ShortDir(t)).leads()
	untouched := u.untouchedUntilTheEnd()
	past := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	const refused = "it is not accepted: "

	for _, c := range []struct {
		name     string
		spec     []string
		accepted string // the error; empty for none
		progress string
		nodes    []string
	}{
		{"NoNodes", []string{u.ofPool("none")}, "", "False NoNodes: it selects no node that exists", nil},
		{"AllNodes", []string{fmt.Sprintf("nodes: {selector: {matchLabels: {scene: %s}}}", u.namespace)},
			"spec.nodes: selects all 5 nodes of the cluster; if that is what you want, add AllNodes to spec.force", "", u.nodes},
		{"ControlPlane", []string{u.ofPool("control")},
			"spec.nodes: selects every node of the control plane (2); if that is what you want, add ControlPlane to spec.force", "",
			u.nodes[:2]},
		{"WindowPast", []string{u.ofPool("work"), "window: {end: " + past.Format(time.RFC3339) + "}"},
			"spec.window: is over since " + past.Format(time.RFC3339) + ", and no node was begun", "", u.nodes[2:]},
		{"PlanContradiction", []string{u.ofPool("work"), "plan: [{priority: 10}, {priority: 5}]"},
			"spec.plan[1]: can never select a pod: spec.plan[0] selects all that it does; leave it out or move it before that one", "",
			u.nodes[2:]},
	} {
		t.Run(c.name, func(t *testing.T) {
			part := *u.scene
			part.t.TB = t // a failure is one of this part
			u := &upkeep{&part, u.kinds}
			u.apply(append(c.spec, "stage: Drain", "reason: new kernel")...)
			want := map[string]string{
				v1alpha1.Accepted: "True Accepted: it can be carried out", v1alpha1.Progressing: c.progress,
				v1alpha1.Drained:   fmt.Sprintf("False NodesLeft: 0 of %d nodes are drained", len(c.nodes)),
				v1alpha1.Completed: fmt.Sprintf("False NodesLeft: 0 of %d nodes were given back", len(c.nodes)),
			}
			if c.accepted != "" {
				want[v1alpha1.Accepted] = "False " + c.name + ": " + c.accepted
				want[v1alpha1.Progressing] = "False Refused: " + refused + c.accepted
			} else {
				want[v1alpha1.Drained] = "False NoNodes: it selects no node that exists"
			}
			m := u.until("it says why", func(m *v1alpha1.NodeMaintenance) bool { return maps.Equal(conditionsOf(m), want) })
			if got := stages(m); !maps.Equal(got, allIn(v1alpha1.Waiting, c.nodes...)) {
				t.Errorf("the nodes are %v, want all of %v waiting", got, c.nodes)
			}
			if len(m.Finalizers) > 0 {
				t.Errorf("it has the finalizers %v, want none", m.Finalizers)
			}
			u.remove()
			u.gone()
		})
	}
	untouched()
}

// untouchedUntilTheEnd watches the nodes of the scene. It returns a function that checks that none has changed.
func (u *upkeep) untouchedUntilTheEnd() func() {
	u.t.Helper()
	before := u.states()
	w, err := u.client.CoreV1().Nodes().Watch(u.t.Context(), metav1.ListOptions{LabelSelector: "scene=" + u.namespace})
	u.t.Must(err)
	var following sync.WaitGroup
	following.Go(func() {
		for e := range w.ResultChan() {
			n, is := e.Object.(*corev1.Node)
			if !is {
				continue // the watch ended
			}
			said := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return plan.SetByMaintenance(c, "") })
			if _, marked := n.Annotations[schemas.AnnotationMaintenance]; marked || said || n.Spec.Unschedulable {
				u.t.Errorf("node %s was touched: %+v", n.Name, u.state(n))
			}
		}
	})
	end := sync.OnceFunc(func() {
		w.Stop()
		following.Wait()
	})
	u.t.Cleanup(end)
	return func() {
		u.t.Helper()
		<-time.After(calm)
		end()
		u.untilStates(before)
		for _, n := range u.nodes {
			if changes := len(u.touched(n)); changes > 0 {
				u.t.Errorf("node %s was changed %d times", n, changes)
			}
		}
		if list := u.evictions(); len(list) > 0 {
			u.t.Errorf("evicted %v, want none", uids(list))
		}
	}
}

func TestForcedSingleNodeMaintenance(t *testing.T) {
	u := newUpkeep(t, 1, inPool("old"))
	u.statefulSet("db", 1, u.nodes[0])
	u.budget("db", "db", 1)
	u.pod("bare", u.nodes[0], nil)
	before, states := u.pods(u.nodes[0]), u.states()
	policy := u.quiet()
	p := u.rehome(policy, filetest.ShortDir(t))
	p.leads()
	u.apply(u.ofPool("old"), "stage: Drain", "reason: new kernel")
	const why = "spec.nodes: selects the only node of the cluster: its pods have nowhere to go; if that is what you want, " +
		"add SingleNode to spec.force"
	u.until("it is refused", func(m *v1alpha1.NodeMaintenance) bool {
		return conditionsOf(m)[v1alpha1.Accepted] == "False SingleNode: "+why
	})
	<-time.After(calm)
	if got := u.states(); len(u.touched(u.nodes[0])) > 0 || got[u.nodes[0]].said != nil {
		t.Errorf("the node was touched: %+v", got)
	}

	u.change(`{"force":["SingleNode"]}`)
	u.until("the budget holds up the drain", func(m *v1alpha1.NodeMaintenance) bool { return m.Status.Summary.PodsBlocked == 1 })
	filetest.Write(t, policy, strings.Replace(u.text(policy), "maxPodLifeTimeSeconds: 86400", "maxPodLifeTimeSeconds: 86000", 1))
	p.reloads("applied", "1")
	u.changeBudget("db", 0)
	u.untilStages(allIn(v1alpha1.IsDrained, u.nodes...))
	u.evictedOnce(before)
	u.wants(v1alpha1.Complete)
	u.untilStages(allIn(v1alpha1.Returned, u.nodes...))
	u.untilStates(states)
	u.running("app=db", 1)
}
