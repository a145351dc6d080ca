package moves

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// TestChangeMovesMisplacedPods runs the scenes of strategies that look at several pods. They mostly wait, so they run in
// parallel.
func TestChangeMovesMisplacedPods(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		play func(*testing.T)
	}{
		{"surplus replicas move to a node that is uncordoned or joins, no more than an even spread needs", duplicatesSpread},
		{"as few pods as possible move into a zone that joins, and are spread within the skew", zonesAreFilled},
		{"a pod moves away from a pod with a forbidden label", neighbourIsAvoided},
		{"pods that no node is labelled for stay until one is, and move there", requiredNodeAppears},
		{"pods move to a node that they prefer when it joins, and stay there", preferredNodeJoins},
		{"a full node loses pods to one that joins until it is below the target, and no more", fullNodeIsRelieved},
		{"a node that is hardly used is emptied when another has work, and stays empty", idleNodeIsEmptied},
		{"a cordoned node that is hardly used is drained onto the others", cordonedNodeIsEmptied},
	} {
		t.Run(c.name, parallel(c.play))
	}
}

// parallel runs a scene in parallel with others.
func parallel(play func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		play(t)
	}
}

func duplicatesSpread(t *testing.T) {
	s := scene.New(t, 2)
	s.Cordon(s.Nodes[1], true)
	s.AddDeployment("api", 7)
	before := s.PodsOn(s.Nodes[0])
	follow(s, s.BalancePolicy("RemoveDuplicates", "{}"))

	s.Cordon(s.Nodes[1], false)
	first := s.CheckMoved(0, 3)
	s.WaitPlaced("api", map[string]int{s.Nodes[0]: 4, s.Nodes[1]: 3})
	if !scene.Subset(scene.UIDs(first), before) {
		t.Errorf("evicted %v, want only pods of %v", scene.UIDs(first), before)
	}

	// Seven pods on three nodes: at most three per node are needed.
	s.AddNodes(1)
	second := s.CheckMoved(3, 1)
	s.WaitPlaced("api", map[string]int{s.Nodes[0]: 3, s.Nodes[1]: 3, s.Nodes[2]: 1})
	if !scene.Subset(scene.UIDs(second), before) {
		t.Errorf("evicted %v, want one pod of %v", scene.UIDs(second), before)
	}
}

func zonesAreFilled(t *testing.T) {
	s := scene.New(t, 0)
	s.AddNodes(2, scene.WithLabel(corev1.LabelTopologyZone, "one"))
	s.AddDeployment("api", 7, spreadOverZones)
	follow(s, s.BalancePolicy("RemovePodsViolatingTopologySpreadConstraint", "{}"))

	s.AddNodes(2, scene.WithLabel(corev1.LabelTopologyZone, "two"))
	s.CheckMoved(0, 3)
	s.WaitPlacedBy("api", corev1.LabelTopologyZone, map[string]int{"one": 4, "two": 3})

	s.AddNodes(2, scene.WithLabel(corev1.LabelTopologyZone, "three"))
	s.CheckMoved(3, 2)
	s.WaitPlacedBy("api", corev1.LabelTopologyZone, map[string]int{"one": 3, "two": 2, "three": 2})
}

func neighbourIsAvoided(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("quiet", 1, scene.PreferNode(s.Nodes[0]), scene.NotBeside("noise", "loud"))
	s.AddDeployment("other", 1, scene.PreferNode(s.Nodes[0]))
	quiet, other := s.PodsOf("quiet")[0], s.PodsOf("other")[0]
	s.WaitPlaced("quiet", map[string]int{s.Nodes[0]: 1})
	s.WaitPlaced("other", map[string]int{s.Nodes[0]: 1})
	follow(s, s.DeschedulePolicy("RemovePodsViolatingInterPodAntiAffinity",
		[]string{"{name: RemovePodsViolatingInterPodAntiAffinity}"}))

	s.PatchPod(other.Name, `{"metadata":{"labels":{"noise":"loud"}}}`)
	got := s.CheckMoved(0, 1)
	s.WaitPlaced("quiet", map[string]int{s.Nodes[1]: 1})
	s.WaitPlaced("other", map[string]int{s.Nodes[0]: 1})
	if want := map[types.UID]string{quiet.UID: quiet.Name}; !reflect.DeepEqual(scene.UIDs(got), want) {
		t.Errorf("evicted %v, want %v", scene.UIDs(got), want)
	}
}

// follow runs rehome until its watcher leads, so later changes are deltas, and records its events.
func follow(s *scene.Scene, policy string) *scene.Recording {
	s.T.Helper()
	dir := filetest.ShortDir(s.T)
	s.StartRun(policy, dir).WaitLeads()
	return scene.Record(s.T, scene.BusIn(dir))
}
