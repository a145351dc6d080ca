package plan

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/mutate"
)

// For any facts, a decision must move only unprotected pods among them, claim only selected nodes, and change only
// listed nodes, none of them without the finalizer. The test begins with valid facts. Then it removes some values, and
// replaces others by valid or unusual ones.
func FuzzDecide(f *testing.F) {
	var right [][]byte
	for _, s := range []Facts{
		scene(with("a", ""), with("b", v1alpha1.Claimed)),
		scene(draining(one("x"), one("agent", ofDaemon)), another("disks", "09:00", v1alpha1.Drain, "a", v1alpha1.Waiting)),
		scene(wants(v1alpha1.Complete), with("a", v1alpha1.Returning), with("b", v1alpha1.IsDrained, cordonedBy("disks"))),
		scene(deadline(v1alpha1.Hold), with("a", v1alpha1.Held, pods(one("x", ending("11:00")))), with("b", v1alpha1.Gone), with("c", v1alpha1.Returned)),
	} {
		right = append(right, expect.ToJSON(f, s))
	}
	for i := range right {
		f.Add(uint8(i), uint64(i), uint8(i*3))
	}
	f.Fuzz(func(t *testing.T, base uint8, seed uint64, changes uint8) {
		var s Facts
		changed := mutate.JSON(t, right[int(base)%len(right)], seed, int(changes%16),
			"Drain", "Complete", "Claimed", "Draining", "Returning", "Returned", "Gone", "Held")
		if json.Unmarshal(changed, &s) != nil {
			return
		}
		intents, steps := Decide(s)
		if _, err := json.Marshal(steps); err != nil {
			return // a year that JSON cannot represent
		}
		in := map[string]NodeFacts{}
		protected := map[types.UID]bool{}
		for _, n := range s.Nodes {
			in[n.Node.Name] = n
			for _, p := range n.Pods {
				protected[p.Pod.UID] = protected[p.Pod.UID] || len(p.Protected) > 0
			}
		}
		was := map[string]v1alpha1.NodeStatus{}
		for _, n := range s.Maintenance.Status.Nodes {
			was[n.Name] = n
		}
		stage := map[string]v1alpha1.NodeStage{}
		for _, n := range steps.Status.Nodes {
			stage[n.Name] = n.Stage
			if node, there := in[n.Name]; there && n.Stage == v1alpha1.Claimed && !InProgress(was[n.Name].Stage) && !node.Selected && node.Mark == nil {
				t.Errorf("%s is claimed and not meant", n.Name)
			}
		}
		for _, i := range intents {
			if free, known := protected[i.Pod.UID]; !known || free {
				t.Errorf("%s is protected, or no pod of the scope", i.Pod)
			}
		}
		if len(steps.Nodes) > 0 && len(s.Maintenance.Finalizers) == 0 {
			t.Error("nodes are touched without a finalizer")
		}
		for _, n := range steps.Nodes {
			if _, there := in[n.Name]; !there {
				t.Errorf("%s is touched and not in the scope", n.Name)
			}
		}
	})
}
