package maintenance

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// enqueued removes all keys from the queue of the session and returns them, sorted.
func (d *desk) enqueued() (list []string) {
	for d.queue.Len() > 0 {
		k, _ := d.queue.Get()
		d.queue.Done(k)
		d.queue.Forget(k)
		list = append(list, string(k.kind)+" "+k.name)
	}
	slices.Sort(list)
	return list
}

func TestNodeChange(t *testing.T) {
	ready := fixtures.Readiness(corev1.ConditionTrue)
	heartbeat := func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(noon()) }
	broken := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	labelled := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{key: ""} }
	}
	marked := func(n *corev1.Node) {
		n.Annotations = map[string]string{schemas.AnnotationMaintenance: `{"name":"others","uid":"uid-others"}`}
	}
	said := func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Reason: plan.AdminRequested, Message: "x" + plan.Signature("others"),
		})
	}
	const control = "node-role.kubernetes.io/control-plane"
	all := []string{"maintenance names", "maintenance others", "maintenance pool", "maintenance status", "trigger n1"}
	is := func(names ...string) (list []string) {
		for _, name := range names {
			list = append(list, "maintenance "+name)
		}
		return append(list, "trigger n1")
	}
	type edits = []func(*corev1.Node)
	for _, c := range []struct {
		name     string
		old, new edits // nil: there is no node
		want     []string
	}{
		{"added", nil, edits{ready}, all},
		{"removed", edits{ready}, nil, all},
		{"heartbeat", edits{ready}, edits{ready, heartbeat}, nil},
		{"cordoned", edits{ready}, edits{ready, cordoned}, is("names", "status")},
		{"not_ready", edits{ready}, edits{ready, broken}, is("names", "status")},
		{"enters_a_pool", edits{ready}, edits{ready, labelled("pool")}, is("names", "pool", "status")},
		{"leaves_a_pool", edits{ready, labelled("pool")}, edits{ready}, is("names", "pool", "status")},
		{"gets_a_mark", edits{ready}, edits{ready, marked}, is("names", "others", "status")},
		{"loses_a_condition", edits{ready, said}, edits{ready}, is("names", "others", "status")},
		{"joins_the_control_plane", edits{ready}, edits{ready, labelled(control)}, all},
		{"control_plane_cordoned", edits{ready, labelled(control)}, edits{ready, labelled(control), cordoned}, all},
		{"control_plane_marked", edits{ready, labelled(control)}, edits{ready, labelled(control), marked}, is("names", "others", "status")},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.Controller.session.Store(d.session)
			for name, m := range map[string]v1alpha1.NodeMaintenance{
				"names":  {Spec: v1alpha1.NodeMaintenanceSpec{Nodes: v1alpha1.NodeSet{Names: []string{"n0", "n1"}}}},
				"others": {Spec: v1alpha1.NodeMaintenanceSpec{Nodes: v1alpha1.NodeSet{Names: []string{"n2"}}}},
				"pool": {Spec: v1alpha1.NodeMaintenanceSpec{Nodes: v1alpha1.NodeSet{Selector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpExists}},
				}}}},
				"status": {Status: v1alpha1.NodeMaintenanceStatus{Nodes: []v1alpha1.NodeStatus{inStage("n1", v1alpha1.Returned)}}},
			} {
				m.Name, m.UID = name, types.UID("uid-"+name)
				d.maintenanceChanged(name, &m)
			}
			if c.old != nil {
				d.Must(d.cache.Set(named("n1", c.old...)))
			}
			d.enqueued()
			if c.new != nil {
				d.Must(d.cache.Set(named("n1", c.new...)))
			} else {
				d.Must(d.cache.Remove(named("n1", c.old...)))
			}
			expect.Equal(t, "keys", d.enqueued(), c.want)
		})
	}
}

// The end of a window frees the nodes for younger maintenances.
func TestWindowChange(t *testing.T) {
	d := newDesk(t)
	d.Controller.session.Store(d.session)
	older, younger := &v1alpha1.NodeMaintenance{}, &v1alpha1.NodeMaintenance{}
	older.Name, younger.Name = "older", "younger"
	d.maintenanceChanged("older", older)
	d.maintenanceChanged("younger", younger)
	d.enqueued()
	ended := older.DeepCopy()
	ended.Spec.Window = &v1alpha1.Window{End: new(metav1.NewTime(noon()))}
	d.maintenanceChanged("older", ended)
	expect.Equal(t, "keys", d.enqueued(), []string{"maintenance older", "maintenance younger"})
}
