package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// node returns a node that is ready.
func node(name string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: meta(name)}
	n.Namespace = ""
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	}
	for _, change := range changes {
		change(n)
	}
	return n
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

// maintained gives the node the annotation of a maintenance, and the cordon with its taint.
func maintained(n *corev1.Node) {
	n.Annotations = map[string]string{schemas.AnnotationMaintenance: `{"name":"kernel","uid":"m"}`}
	cordoned(n)
	tainted(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule, noon())(n)
}

func tainted(key string, effect corev1.TaintEffect, added ...time.Time) func(*corev1.Node) {
	return func(n *corev1.Node) {
		t := corev1.Taint{Key: key, Effect: effect}
		for _, at := range added {
			t.TimeAdded = &metav1.Time{Time: at}
		}
		n.Spec.Taints = append(n.Spec.Taints, t)
	}
}

func nodeReady(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Conditions[1].Status = status }
}

func TestTaintTime(t *testing.T) {
	const noSchedule, noExecute = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	const prefer, unschedulable = corev1.TaintEffectPreferNoSchedule, corev1.TaintNodeUnschedulable
	before := noon().Add(-time.Hour)
	minute := func(n int) time.Time { return noon().Add(time.Duration(n) * time.Minute) }
	type changes []func(*corev1.Node)
	for _, tt := range []struct {
		name      string
		first     changes
		initially bool
		then      []changes // one a minute
		want      time.Time
	}{
		{"never without taints", nil, true, []changes{nil}, time.Time{}},
		{"when a taint came", nil, true, []changes{{tainted("a", noSchedule)}, {tainted("a", noSchedule)}}, minute(1)},
		{"when a taint came that evicts", nil, true, []changes{{tainted("a", noExecute)}}, minute(1)},
		{"never by a taint that only asks", nil, true, []changes{{tainted("a", prefer)}}, time.Time{}},
		{"when it was cordoned", nil, true, []changes{nil, {cordoned}, {cordoned}}, minute(2)},
		{"when the newest of several came", nil, true,
			[]changes{{tainted("a", noSchedule)}, {tainted("a", noSchedule), tainted("b", noSchedule)}}, minute(2)},
		{"when the newest came that it still has", nil, true,
			[]changes{{tainted("a", noSchedule)}, {tainted("a", noSchedule), cordoned}, {tainted("a", noSchedule)}}, minute(1)},
		{"never once all are gone", nil, true, []changes{{tainted("a", noSchedule)}, nil}, time.Time{}},
		{"when it came back", nil, true, []changes{{cordoned}, nil, {cordoned}}, minute(3)},
		{"when it got another effect", nil, true, []changes{{tainted("a", noSchedule)}, {tainted("a", noExecute)}}, minute(2)},
		{"when a taint that was there before says", changes{tainted("a", noExecute, before), cordoned}, true, nil, before},
		{"never by one that was there before and does not say", changes{tainted("a", noSchedule), cordoned}, true,
			[]changes{{tainted("a", noSchedule, noon()), cordoned}}, time.Time{}},
		{"not by the taints of a new node",
			changes{tainted("readiness.k8s.io/network", noSchedule, noon()), cordoned}, false,
			[]changes{{tainted("readiness.k8s.io/network", noSchedule, noon()), cordoned}}, time.Time{}},
		{"when a new node got one later", changes{tainted("a", noSchedule)}, false,
			[]changes{nil, {tainted("a", noSchedule)}}, minute(2)},
		{"not by the cordon of a maintenance", nil, true,
			[]changes{{maintained}, {tainted(unschedulable, noSchedule)}}, time.Time{}},
		{"never by the cordon of a maintenance that was there before", changes{maintained}, true,
			[]changes{{tainted(unschedulable, noSchedule, noon())}}, time.Time{}},
		{"by a user's cordon, even if a maintenance follows", nil, true,
			[]changes{{cordoned, tainted(unschedulable, noSchedule)}, {maintained}, {cordoned, tainted(unschedulable, noSchedule)}},
			minute(1)},
		{"when a taint came that is not of the maintenance that holds it", nil, true,
			[]changes{{maintained}, {maintained, tainted("a", noSchedule)}, {tainted("a", noSchedule)}}, minute(2)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.initially {
				w.initially(node("one", tt.first...))
			} else {
				w.set(node("one", tt.first...))
			}
			for _, c := range tt.then {
				w.time = w.time.Add(time.Minute)
				w.set(node("one", c...))
			}
			expect.Equal(t, "nodes", w.Nodes(), []Node{{Name: "one", Ready: true, Tainted: tt.want}})
		})
	}
}

func TestNodeReady(t *testing.T) {
	w := newWorld(t)
	w.set(node("c"), node("a", nodeReady(corev1.ConditionUnknown)), node("b", nodeReady(corev1.ConditionFalse)),
		node("d", func(n *corev1.Node) { n.Status.Conditions = nil }))
	expect.Equal(t, "nodes", w.Nodes(), []Node{{Name: "a"}, {Name: "b"}, {Name: "c", Ready: true}, {Name: "d"}})
	got, known := w.Node("c")
	expect.Equal(t, "node", got, Node{Name: "c", Ready: true})
	expect.Equal(t, "known", known, true)
	got, known = w.Node("e")
	expect.Equal(t, "unknown node", got, Node{})
	expect.Equal(t, "known", known, false)
}

func TestNodeChange(t *testing.T) {
	w := newWorld(t)
	anew := node("one", cordoned)
	anew.UID = "anew"
	for _, tt := range []struct {
		name   string
		change func()
		told   []string
		want   []Node
	}{
		{"it was there", func() { w.initially(node("one")) }, []string{"node one"}, []Node{{Name: "one", Ready: true}}},
		{"its status changed", func() { w.set(node("one", func(n *corev1.Node) { n.ResourceVersion = "2" })) }, nil,
			[]Node{{Name: "one", Ready: true}}},
		{"it is not ready", func() { w.set(node("one", nodeReady(corev1.ConditionUnknown))) }, []string{"node one"},
			[]Node{{Name: "one"}}},
		{"it is cordoned", func() { w.set(node("one", cordoned)) }, []string{"node one"},
			[]Node{{Name: "one", Ready: true, Tainted: noon()}}},
		{"a maintenance takes it", func() { w.set(node("one", maintained)) }, []string{"node one"},
			[]Node{{Name: "one", Ready: true, Maintained: true, Tainted: noon()}}},
		{"it was recreated unseen", func() { w.set(anew) }, []string{"node one"}, []Node{{Name: "one", Ready: true}}},
		{"it went", func() { w.gone(anew) }, []string{"node one"}, []Node{}},
	} {
		tt.change()
		expect.Equal(t, tt.name+": told", w.told(), tt.told)
		expect.Equal(t, tt.name, w.Nodes(), tt.want)
	}
}
