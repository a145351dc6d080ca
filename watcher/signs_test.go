package watcher

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus/bustest"
	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// starting is a policy by which a taint and a condition of another program begin drains.
func starting() policy.Policy {
	return policy.Policy{Maintenance: policy.Maintenance{Start: []policy.StartSign{
		{Taint: policy.TaintSign{Key: "cloud.example.com/interruption"}},
		{Condition: string(corev1.NodeDrainInProgress), Status: corev1.ConditionTrue},
	}}}
}

// is waits for the maintenance to have a stage; empty: not to be there.
func (o *office) is(what, name string, stage v1alpha1.Stage) (m *v1alpha1.NodeMaintenance) {
	o.t.Helper()
	bustest.Eventually(o.t, what, func() bool {
		m = o.entry(name)
		return m == nil && stage == "" || m != nil && m.Spec.Stage == stage
	})
	return m
}

func TestASignOnANodeBeginsAMaintenanceForAsLongAsItIsThere(t *testing.T) {
	o := newOffice(t, starting())
	tainted := machine("n1", "a", taintedBy("cloud.example.com/interruption"))
	o.set(tainted)
	stop := running(t, o.w.leadOn)
	m := o.is("a sign that is there at the beginning", "sign/n1", v1alpha1.Drain)
	if m.Spec.Reason != "taint cloud.example.com/interruption on the node" || m.Spec.Nodes.Names[0] != "n1" {
		t.Errorf("got %+v", m.Spec)
	}
	o.set(machine("n1", "a"))
	o.is("the sign is gone", "sign/n1", v1alpha1.Complete)
	o.set(tainted)
	o.writes("sign/n1", "")
	if again := o.is("the sign is there again", "sign/n1", v1alpha1.Drain); again.UID == m.UID {
		t.Errorf("the maintenance has the UID %s as before, want another", again.UID)
	}
	stop()
	o.set(machine("n1", "a"), machine("n2", "b", func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: "Reboot"})
	}))
	running(t, o.w.leadOn)
	o.is("a sign that went while nobody led", "sign/n1", v1alpha1.Complete)
	o.is("one that came while nobody led", "sign/n2", v1alpha1.Drain)
	o.remove(machine("n2", "b"))
	o.is("the node is gone, and the sign with it", "sign/n2", v1alpha1.Complete)
}

func TestANodeOfASignIsGivenBackWhenTheSignWentWhileTheTableWasLost(t *testing.T) {
	o := newOffice(t, starting())
	o.set(
		machine("n1", "a", cordonedFor(t, "sign/n1", "lost-1")),
		machine("n2", "b", cordonedFor(t, "sign/n2", "lost-2"), taintedBy("cloud.example.com/interruption")),
		machine("n3", "b", cordonedFor(t, "sign/n1", "lost-3")), machine("n4", "b", cordonedFor(t, "node/n4", "lost-4")),
	)
	running(t, o.w.leadOn)
	type entry struct {
		uid   types.UID
		stage v1alpha1.Stage
	}
	want := map[string]entry{"sign/n1": {"lost-1", v1alpha1.Complete}, "sign/n2": {"lost-2", v1alpha1.Drain}}
	got := map[string]entry{}
	bustest.Eventually(t, "both are in the table", func() bool {
		for _, m := range o.w.table.list() {
			got[m.Name] = entry{m.UID, m.Spec.Stage}
		}
		return len(got) >= 2
	})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	o.set(machine("n1", "a"))
	o.writes("sign/n1", "") // it is given back
	bustest.Eventually(t, "the table has seen that", func() bool { return o.w.table.get("sign/n1") == nil })
	if err := newSigns(o.w.lead.Load()).at(t.Context(), "n1"); err != nil || o.entry("sign/n1") != nil {
		t.Errorf("got %+v, %v, want none again", o.entry("sign/n1"), err)
	}
}

func TestWhatRehomeSaysOnANodeIsNoSign(t *testing.T) {
	p := mustPlan(t, starting())
	of := func(message string) *corev1.Node {
		return machine("n1", "a", func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: maintenance.AdminRequested, Message: message,
			})
		})
	}
	own := of("new kernel" + maintenance.Signature("node/n1"))
	got := []string{p.startedBy(own), p.startedBy(of("new kernel")), p.startedBy(nil)}
	if want := []string{"", "condition DrainInProgress=True", ""}; got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("of Rehome, of another, and of no node: got %q, want %q", got, want)
	}
	if len(own.Status.Conditions) != 2 {
		t.Errorf("the node has lost conditions: %v", own.Status.Conditions)
	}
}

func TestWhatWasAskedForOfANodeIsOverWhenTheNodeHasBeenAwayForLong(t *testing.T) {
	o := newOffice(t, policy.Policy{})
	for _, node := range []string{"n1", "n9"} {
		w := wish{name: schemas.RequestedMaintenance(node), node: node, reason: "why", NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Drain}}
		if _, err := o.bus.Maintenances().Put(t.Context(), w.first(time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	o.w.now = func() time.Time { return now }
	s := newLead(o.w, o.w.plan.Load(), newOutbox(o.out, o.w.log, o.w.metrics)).signs
	bustest.Eventually(t, "both are known", func() bool { return len(o.w.table.list()) == 2 })
	var got []v1alpha1.Stage
	for _, wait := range []time.Duration{0, left - time.Second, time.Second} {
		now = now.Add(wait)
		for _, node := range []string{"n1", "n9"} {
			if err := s.at(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, o.entry("node/n9").Spec.Stage, o.entry("node/n1").Spec.Stage)
	}
	const drain = v1alpha1.Drain
	want := []v1alpha1.Stage{drain, drain, drain, drain, v1alpha1.Complete, drain}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("of the one that is away and the other, at first, just before and after %v: got %v, want %v", left, got, want)
			break
		}
	}
}
