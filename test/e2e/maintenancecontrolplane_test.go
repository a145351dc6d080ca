package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// controlPlane makes a node a member of the control plane.
func controlPlane(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }

func TestSerialControlPlaneMaintenance(t *testing.T) {
	u := newUpkeep(t, 3, controlPlane)
	controlling := u.nodes
	u.addNodes(2)
	states := u.states()
	u.rehome(u.quiet(), filetest.ShortDir(t)).leads()
	o := u.oversee(1)
	left := map[string]*upkeep{} // by node; each node has its own maintenance
	for _, n := range controlling {
		part := *u.scene
		part.namespace += "-" + n
		left[n] = &upkeep{&part, u.kinds}
		left[n].apply("nodes: {names: ["+n+"]}", "stage: Drain", "reason: new kernel")
	}
	for end := time.Now().Add(5 * expect.Patience); len(left) > 0; <-time.After(100 * time.Millisecond) {
		seen := ""
		for n, one := range left {
			m := one.found()
			switch stages(m)[n] {
			case v1alpha1.IsDrained:
				one.wants(v1alpha1.Complete)
			case v1alpha1.Returned:
				delete(left, n)
			}
			seen += fmt.Sprintf("%s: %s, nodes %v\n", m.Name, m.Status.Summary.Message, stages(m))
		}
		if time.Now().After(end) {
			t.Fatalf("not all are given back:\n%s", seen)
		}
	}
	if o.worst() != 1 {
		t.Errorf("%d nodes were cordoned at a time at most, want 1", o.worst())
	}
	u.untilStates(states)
}
