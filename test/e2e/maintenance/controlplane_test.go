package maintenance

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
	u := newMaintenanceScene(t, 3, controlPlane)
	controlling := u.Nodes
	u.AddNodes(2)
	states := u.states()
	u.StartRun(u.idlePolicy(), filetest.ShortDir(t)).WaitLeads()
	o := u.watchInvariants(1)
	left := map[string]*maintenanceScene{} // by node; each node has its own maintenance
	for _, n := range controlling {
		part := *u.Scene
		part.Namespace += "-" + n
		left[n] = &maintenanceScene{&part, u.kinds}
		left[n].apply("nodes: {names: ["+n+"]}", "stage: Drain", "reason: new kernel")
	}
	for end := time.Now().Add(5 * expect.Patience); len(left) > 0; <-time.After(100 * time.Millisecond) {
		seen := ""
		for n, one := range left {
			m := one.get()
			switch stages(m)[n] {
			case v1alpha1.IsDrained:
				one.setStage(v1alpha1.Complete)
			case v1alpha1.Returned:
				delete(left, n)
			}
			seen += fmt.Sprintf("%s: %s, nodes %v\n", m.Name, m.Status.Summary.Message, stages(m))
		}
		if time.Now().After(end) {
			t.Fatalf("not all are given back:\n%s", seen)
		}
	}
	if o.mostAtOnce() != 1 {
		t.Errorf("%d nodes were cordoned at a time at most, want 1", o.mostAtOnce())
	}
	u.waitStates(states)
}
