package requests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// separateControlPlane returns another control plane, without the kinds of maintenances.
func separateControlPlane(t *testing.T) *scene.ControlPlane {
	t.Helper()
	c := clustertest.New(t, cluster.Options{})
	return &scene.ControlPlane{Cluster: c, Client: c.Client(), Binary: expect.Value(t, program.Build)}
}

// cordonState returns whether the node is cordoned, and the name of its maintenance.
func cordonState(s *scene.Scene, node string) string {
	n := s.Node(node)
	mark := n.Annotations[schemas.AnnotationMaintenance]
	if mark != "" {
		_, mark, _ = strings.Cut(mark, `"name":"`)
		mark, _, _ = strings.Cut(mark, `"`)
	}
	return fmt.Sprintf("%v %q", n.Spec.Unschedulable, mark)
}

func TestNodeRequestsWithoutKinds(t *testing.T) {
	s := scene.NewOn(t, separateControlPlane(t), 3)
	s.AddDeployment("api", 4, scene.PreferNode(s.Nodes[0]))
	s.AddDeployment("alone", 1, scene.OnNode(s.Nodes[1])) // another workload, which must stay
	s.AddBudget("keep", "api", 3)
	pods := s.PodsOn(s.Nodes[0])
	if len(pods) < 2 {
		t.Fatalf("%d pods run on the node, want some", len(pods))
	}
	history := s.WatchPods()
	dir := filetest.ShortDir(t)
	running := s.StartRun(s.Policy("maintenance: {restart: false}"), dir)
	running.WaitLog("leading: evaluating everything")
	running.WaitLog("does not serve the optional kinds of maintenances")
	request := func(arguments ...string) scene.Result {
		return s.Run(append(arguments, "--reason", "its fan is replaced"), "REHOME_STORE_DIR="+dir)
	}

	got := request("drain", s.Nodes[0], "--name", "drain", "--deadline", "5m")
	if got.Code != 0 || !strings.Contains(got.Stdout, "\nrequest admin/drain finished: Done: node "+s.Nodes[0]+" is drained: ") {
		t.Errorf("drain: %s", got)
	}
	if left := s.PodsOn(s.Nodes[0]); len(left) > 0 {
		t.Errorf("%v are left on the node", left)
	}
	if got, want := cordonState(s, s.Nodes[0]), `true "node/`+s.Nodes[0]+`"`; got != want {
		t.Errorf("drained: cordoned and marked %s, want %s", got, want)
	}
	s.CheckEvictedOnce(pods)
	s.WaitReady("api")
	if missing := history.MostMissing(scene.ByDeployment, 4)["api"]; missing > 1 {
		t.Errorf("%d of 4 pods were not ready for a while, and the budget wants 3", missing)
	}

	got = s.Run([]string{"status"}, "REHOME_STORE_DIR="+dir)
	if got.Code != 0 || !strings.Contains(got.Stdout, "node/"+s.Nodes[0]+"   Drain    Drained   0 ") {
		t.Errorf("status: %s", got)
	}
	for _, name := range pods {
		got = s.Run([]string{"explain", "pod", name, "-n", s.Namespace}, "REHOME_STORE_DIR="+dir)
		if got.Code != 0 || !strings.Contains(got.Stdout, "maintenance/node/"+s.Nodes[0]+") wants it off "+s.Nodes[0]) {
			t.Errorf("explain: %s", got)
		}
		break
	}

	running.Kill() // a drained node stays drained under another leader
	s.StartRun(s.Policy("maintenance: {restart: false}"), dir).WaitLog("leading: evaluating everything")
	got = request("cordon", s.Nodes[0], "--name", "back")
	if got.Code != 1 || !strings.Contains(got.Stderr, "rejected: Conflict: the stage cannot go back from Drain to Cordon") {
		t.Errorf("backwards: %s", got)
	}
	got = request("uncordon", s.Nodes[0], "--name", "complete")
	if got.Code != 0 || !strings.Contains(got.Stdout, "\nrequest admin/complete finished: Done: node "+s.Nodes[0]+" is given back\n") {
		t.Errorf("complete: %s", got)
	}
	if got, want := cordonState(s, s.Nodes[0]), `false ""`; got != want {
		t.Errorf("given back: cordoned and marked %s, want %s", got, want)
	}
	got = request("uncordon", s.Nodes[0], "--name", "nothing")
	if got.Code != 0 || !strings.Contains(got.Stdout, "\nrequest admin/nothing finished: NothingToDo: node "+s.Nodes[0]+" is not maintained\n") {
		t.Errorf("complete, with nothing left of it: %s", got)
	}
	if moved := len(s.Evictions()); moved != len(pods) {
		t.Errorf("%d evictions, want those %d of the node", moved, len(pods))
	}
}
