package watcher

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func TestWhatOtherToolsDoWithANodeIsALock(t *testing.T) {
	says := func(reason, message string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{
				Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionTrue, Reason: reason, Message: message,
			}}
		}
	}
	for _, c := range []struct {
		name string
		node func(*corev1.Node)
		want []schemas.NodeLock
	}{
		{"kured restarts it", rebooting, []schemas.NodeLock{{Tool: "kured", Sign: "the annotation weave.works/kured-reboot-in-progress"}}},
		{"medik8s drains it", taintedBy("medik8s.io/drain"), []schemas.NodeLock{{Tool: "medik8s", Sign: "the taint medik8s.io/drain"}}},
		{
			"medik8s remedies it", taintedBy("medik8s.io/remediation"),
			[]schemas.NodeLock{{Tool: "medik8s", Sign: "the taint medik8s.io/remediation"}},
		},
		{"Karpenter removes it", taintedBy("karpenter.sh/disrupted"), []schemas.NodeLock{{Tool: "Karpenter", Sign: "the taint karpenter.sh/disrupted"}}},
		{
			"Cluster API replaces it", taintedBy("node.cluster.x-k8s.io/outdated-revision"),
			[]schemas.NodeLock{{Tool: "Cluster API", Sign: "the taint node.cluster.x-k8s.io/outdated-revision"}},
		},
		{
			"another tool says that it works on it", says("Upgrade", "new disks"),
			[]schemas.NodeLock{{Tool: "another tool", Sign: `its condition MaintenanceInProgress is "True"`}},
		},
		{"a maintenance says so itself", says(maintenance.AdminRequested, "disks"+maintenance.Signature("disks")), nil},
		{"nobody does anything", taintedBy("example.com/soon"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := mustPlan(t, policy.Policy{}).locks(named("n1", c.node)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
