package maintenance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// noon returns the time of these tests.
func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// named returns a node with that name.
func named(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	for _, c := range change {
		c(n)
	}
	return n
}

func TestNodeLocks(t *testing.T) {
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
		want []plan.NodeLock
	}{
		{"kured restarts it", fixtures.RestartedByKured, []plan.NodeLock{{Tool: "kured", Sign: "the annotation weave.works/kured-reboot-in-progress"}}},
		{"medik8s drains it", fixtures.TaintedBy("medik8s.io/drain"), []plan.NodeLock{{Tool: "medik8s", Sign: "the taint medik8s.io/drain"}}},
		{
			"medik8s remedies it", fixtures.TaintedBy("medik8s.io/remediation"),
			[]plan.NodeLock{{Tool: "medik8s", Sign: "the taint medik8s.io/remediation"}},
		},
		{"Karpenter removes it", fixtures.TaintedBy("karpenter.sh/disrupted"), []plan.NodeLock{{Tool: "Karpenter", Sign: "the taint karpenter.sh/disrupted"}}},
		{
			"Cluster API replaces it", fixtures.TaintedBy("node.cluster.x-k8s.io/outdated-revision"),
			[]plan.NodeLock{{Tool: "Cluster API", Sign: "the taint node.cluster.x-k8s.io/outdated-revision"}},
		},
		{
			"another tool says that it works on it", says("Upgrade", "new disks"),
			[]plan.NodeLock{{Tool: "another tool", Sign: `its condition MaintenanceInProgress is "True"`}},
		},
		{"the mark of a maintenance", says(plan.AdminRequested, "disks"+plan.Signature("disks")), nil},
		{"nobody does anything", fixtures.TaintedBy("example.com/soon"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, "locks", locks(named("n1", c.node), policy.Policy{}.Signals), c.want)
		})
	}
}
