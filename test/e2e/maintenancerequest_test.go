package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// elsewhere returns a stage with a separate control plane, without the kinds of maintenances.
func elsewhere(t *testing.T) *stage {
	t.Helper()
	c := clustertest.New(t, cluster.Options{})
	return &stage{cluster: c, client: c.Client(), rehome: theStage.rehome}
}

// held returns whether the node is cordoned, and the name of its maintenance.
func (s *scene) held(node string) string {
	n := s.node(node)
	mark := n.Annotations[schemas.AnnotationMaintenance]
	if mark != "" {
		_, mark, _ = strings.Cut(mark, `"name":"`)
		mark, _, _ = strings.Cut(mark, `"`)
	}
	return fmt.Sprintf("%v %q", n.Spec.Unschedulable, mark)
}

func TestNodeRequestsWithoutKinds(t *testing.T) {
	s := newSceneOn(t, elsewhere(t), 3)
	s.deployment("api", 4, preferring(s.nodes[0]))
	s.deployment("alone", 1, on(s.nodes[1])) // another workload, which must stay
	s.budget("keep", "api", 3)
	pods := s.pods(s.nodes[0])
	if len(pods) < 2 {
		t.Fatalf("%d pods run on the node, want some", len(pods))
	}
	lives := s.watchPods()
	dir := filetest.ShortDir(t)
	running := s.rehome(s.policy("maintenance: {restart: false}"), dir)
	running.says("leading: evaluating everything")
	running.says("does not serve the optional kinds of maintenances")
	request := func(arguments ...string) result {
		return s.run(append(arguments, "--reason", "its fan is replaced"), "REHOME_STORE_DIR="+dir)
	}

	got := request("drain", s.nodes[0], "--name", "drain", "--deadline", "5m")
	if got.code != 0 || !strings.Contains(got.stdout, "\nrequest admin/drain finished: Done: node "+s.nodes[0]+" is drained: ") {
		t.Errorf("drain: %s", got)
	}
	if left := s.pods(s.nodes[0]); len(left) > 0 {
		t.Errorf("%v are left on the node", left)
	}
	if got, want := s.held(s.nodes[0]), `true "node/`+s.nodes[0]+`"`; got != want {
		t.Errorf("drained: cordoned and marked %s, want %s", got, want)
	}
	s.evictedOnce(pods)
	s.ready("api")
	if missing := lives.missing(byItself, 4)["api"]; missing > 1 {
		t.Errorf("%d of 4 pods were not ready for a while, and the budget wants 3", missing)
	}

	got = s.run([]string{"status"}, "REHOME_STORE_DIR="+dir)
	if got.code != 0 || !strings.Contains(got.stdout, "node/"+s.nodes[0]+"   Drain    Drained   0 ") {
		t.Errorf("status: %s", got)
	}
	for _, name := range pods {
		got = s.run([]string{"explain", "pod", name, "-n", s.namespace}, "REHOME_STORE_DIR="+dir)
		if got.code != 0 || !strings.Contains(got.stdout, "maintenance/node/"+s.nodes[0]+") wants it off "+s.nodes[0]) {
			t.Errorf("explain: %s", got)
		}
		break
	}

	running.Kill() // a drained node stays drained under another leader
	s.rehome(s.policy("maintenance: {restart: false}"), dir).says("leading: evaluating everything")
	got = request("cordon", s.nodes[0], "--name", "back")
	if got.code != 1 || !strings.Contains(got.stderr, "rejected: Conflict: the stage cannot go back from Drain to Cordon") {
		t.Errorf("backwards: %s", got)
	}
	got = request("uncordon", s.nodes[0], "--name", "complete")
	if got.code != 0 || !strings.Contains(got.stdout, "\nrequest admin/complete finished: Done: node "+s.nodes[0]+" is given back\n") {
		t.Errorf("complete: %s", got)
	}
	if got, want := s.held(s.nodes[0]), `false ""`; got != want {
		t.Errorf("given back: cordoned and marked %s, want %s", got, want)
	}
	got = request("uncordon", s.nodes[0], "--name", "nothing")
	if got.code != 0 || !strings.Contains(got.stdout, "\nrequest admin/nothing finished: NothingToDo: node "+s.nodes[0]+" is not maintained\n") {
		t.Errorf("complete, with nothing left of it: %s", got)
	}
	if moved := len(s.evictions()); moved != len(pods) {
		t.Errorf("%d evictions, want those %d of the node", moved, len(pods))
	}
}
