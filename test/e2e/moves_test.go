package e2e

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// calm is how long a scene continues after the last expected move. A group that a pod has left is evaluated again a second later,
// and capacity and usage every second, so an unexpected move would happen within this time.
const calm = 4 * time.Second

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
		t.Run(c.name, beside(c.play))
	}
}

// beside runs a scene in parallel with others.
func beside(play func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		play(t)
	}
}

func duplicatesSpread(t *testing.T) {
	s := newScene(t, 2)
	s.cordon(s.nodes[1], true)
	s.deployment("api", 7)
	before := s.pods(s.nodes[0])
	s.follow(s.balance("RemoveDuplicates", "{}"))

	s.cordon(s.nodes[1], false)
	first := s.moved(0, 3)
	s.placed("api", map[string]int{s.nodes[0]: 4, s.nodes[1]: 3})
	if !within(uids(first), before) {
		t.Errorf("evicted %v, want only pods of %v", uids(first), before)
	}

	// Seven pods on three nodes: at most three per node are needed.
	s.addNodes(1)
	second := s.moved(3, 1)
	s.placed("api", map[string]int{s.nodes[0]: 3, s.nodes[1]: 3, s.nodes[2]: 1})
	if !within(uids(second), before) {
		t.Errorf("evicted %v, want one pod of %v", uids(second), before)
	}
}

func zonesAreFilled(t *testing.T) {
	s := newScene(t, 0)
	s.addNodes(2, labeled(corev1.LabelTopologyZone, "one"))
	s.deployment("api", 7, spreadOverZones)
	s.follow(s.balance("RemovePodsViolatingTopologySpreadConstraint", "{}"))

	s.addNodes(2, labeled(corev1.LabelTopologyZone, "two"))
	s.moved(0, 3)
	s.placedIn("api", corev1.LabelTopologyZone, map[string]int{"one": 4, "two": 3})

	s.addNodes(2, labeled(corev1.LabelTopologyZone, "three"))
	s.moved(3, 2)
	s.placedIn("api", corev1.LabelTopologyZone, map[string]int{"one": 3, "two": 2, "three": 2})
}

func neighbourIsAvoided(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("quiet", 1, preferring(s.nodes[0]), notBeside("noise", "loud"))
	s.deployment("other", 1, preferring(s.nodes[0]))
	quiet, other := s.podsOf("quiet")[0], s.podsOf("other")[0]
	s.placed("quiet", map[string]int{s.nodes[0]: 1})
	s.placed("other", map[string]int{s.nodes[0]: 1})
	s.follow(s.enable("RemovePodsViolatingInterPodAntiAffinity",
		[]string{"{name: RemovePodsViolatingInterPodAntiAffinity}"}))

	s.patchPod(other.Name, `{"metadata":{"labels":{"noise":"loud"}}}`)
	got := s.moved(0, 1)
	s.placed("quiet", map[string]int{s.nodes[1]: 1})
	s.placed("other", map[string]int{s.nodes[0]: 1})
	if want := map[types.UID]string{quiet.UID: quiet.Name}; !reflect.DeepEqual(uids(got), want) {
		t.Errorf("evicted %v, want %v", uids(got), want)
	}
}

// follow runs rehome until its watcher leads, so later changes are deltas, and records its events.
func (s *scene) follow(policy string) *recording {
	s.t.Helper()
	dir := filetest.ShortDir(s.t)
	s.rehome(policy, dir).leads()
	return record(s.t, at(dir))
}

// cordon cordons or uncordons a node.
func (s *scene) cordon(node string, unschedulable bool) {
	s.t.Helper()
	s.changeNode(node, func(n *corev1.Node) { n.Spec.Unschedulable = unschedulable })
	expect.EventuallyWithState(s.t, "the node has the taint of a cordoned node, or no longer", func() (bool, string) {
		n := s.node(node)
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
		return tainted == unschedulable, fmt.Sprint(n.Spec.Taints)
	})
}

// node returns the current state of a node.
func (s *scene) node(name string) *corev1.Node {
	s.t.Helper()
	n, err := s.client.CoreV1().Nodes().Get(s.t.Context(), name, metav1.GetOptions{})
	s.t.Must(err)
	return n
}

// label adds a label to a node.
func (s *scene) label(node, key, value string) {
	s.t.Helper()
	s.changeNode(node, labeled(key, value))
}

// moved waits until n pods were evicted, not counting the first from, and then long enough to see that there are no more. It
// returns these n pods.
func (s *scene) moved(from, n int) []eviction {
	s.t.Helper()
	s.evicted(from, n)
	<-time.After(calm)
	list := s.evictions()[from:]
	if len(list) != n {
		s.t.Errorf("%d evictions, want %d: %v", len(list), n, uids(list))
	}
	return list
}

// placed waits until n pods of a Deployment are Ready on these nodes, and none on others.
func (s *scene) placed(deployment string, want map[string]int) {
	s.t.Helper()
	s.placedIn(deployment, corev1.LabelHostname, want)
}

// placedIn does the same for the values of a node label.
func (s *scene) placedIn(deployment, label string, want map[string]int) {
	s.t.Helper()
	expect.EventuallyWithState(s.t, fmt.Sprintf("the pods of %s are Ready by %s as %v", deployment, label, want), func() (bool, string) {
		got := map[string]int{}
		for _, p := range s.podsOf(deployment) {
			if cluster.IsReady(&p) {
				got[s.node(p.Spec.NodeName).Labels[label]]++
			} else {
				got["not Ready"]++
			}
		}
		return maps.Equal(got, want), fmt.Sprint(got)
	})
}

// within reports whether all of these pods are among the others.
func within(pods, others map[types.UID]string) bool {
	for uid := range pods {
		if _, found := others[uid]; !found {
			return false
		}
	}
	return true
}
