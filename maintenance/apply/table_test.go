package apply

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// desk is a place with a table of maintenances beside the API server, which does not serve the kind at first.
type desk struct {
	*place
	table bus.Maintenances
}

func TestStepsWithTable(t *testing.T) {
	c := clustertest.New(t, cluster.Options{})
	table := bustest.New(t).Maintenances()
	at := func(t *testing.T) *desk {
		d := &desk{newPlace(t, c, c.RESTConfig()), table}
		d.place.table = table
		return d
	}
	for _, tt := range []struct {
		name string
		test func(*desk)
	}{
		{"an entry goes the same way as an object, and is removed at its end", testEntry},
		{"an entry that has changed since is not touched, nor is its node", testEntryConflict},
		{"a refused entry stays until it is completed", testEntryRefused},
		{"a dry run does not change the entry", testEntryDryRun},
		{"an impossible name with a slash holds nothing", testNoEntry},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(at(t)) })
	}
	if err := c.AddKinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("an entry and an object hold nodes against each other", func(t *testing.T) { testHeldAcross(at(t)) })
}

// entry creates the maintenance of a node.
func (d *desk) entry(n *corev1.Node, stage v1alpha1.Stage) *v1alpha1.NodeMaintenance {
	d.Helper()
	m := &v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{
			Name: schemas.RequestedMaintenance(n.Name), UID: types.UID("uid of " + n.Name), Generation: 1,
			CreationTimestamp: metav1.NewTime(d.now),
		},
		Spec: v1alpha1.NodeMaintenanceSpec{
			Nodes: v1alpha1.NodeSet{Names: []string{n.Name}}, Stage: stage, Reason: "new kernel",
		},
	}
	_, err := d.table.Put(d.Context(), m)
	d.Must(err)
	return d.is(m)
}

// is returns the current entry, or nil.
func (d *desk) is(m *v1alpha1.NodeMaintenance) *v1alpha1.NodeMaintenance {
	d.Helper()
	live, err := d.table.Get(d.Context(), m.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	d.Must(err)
	return live
}

// want changes the desired state of an entry, like the watcher.
func (d *desk) want(m *v1alpha1.NodeMaintenance, stage v1alpha1.Stage) *v1alpha1.NodeMaintenance {
	d.Helper()
	m = d.is(m)
	m.Spec.Stage, m.Generation = stage, m.Generation+1
	_, err := d.table.Put(d.Context(), m)
	d.Must(err)
	return d.is(m)
}

func testEntry(d *desk) {
	n := d.node("a")
	m := d.entry(n, v1alpha1.Drain)
	s := d.answer(m, d.cordon(m, n))
	r := d.do(s)
	expect.Equal(d, "outcomes", outcomes(r), []string{"changed: "})
	expect.Equal(d, "written", r.Wrote, true)
	expect.Equal(d, "node", d.look(n).Unschedulable, true)
	live := d.is(m)
	expect.Equal(d, "finalizers", live.Finalizers, []string{schemas.MaintenanceFinalizer})
	expect.Equal(d, "status", sameStatus(live.Status, s.Status), true)
	expect.Equal(d, "spec and identity", []any{live.Spec, live.UID, live.Generation}, []any{m.Spec, m.UID, m.Generation})
	expect.Equal(d, "done again", outcomes(d.do(s)), []string{"unchanged: "})
	expect.Equal(d, "version", d.is(m).ResourceVersion, live.ResourceVersion)

	m = d.want(m, v1alpha1.Complete)
	s = d.answer(m, d.giveBack(n))
	d.do(s)
	if d.is(m) == nil {
		d.Fatal("the entry is gone while its answer still wants the finalizer")
	}
	s = d.answer(d.is(m))
	s.Finalizer = false
	d.do(s)
	expect.Equal(d, "given back", d.look(n).Unschedulable, false)
	expect.Equal(d, "entry", d.is(m), nil)
	expect.Equal(d, "done again", d.do(s), Result{Dropped: "it does not exist any more"})
}

func testEntryConflict(d *desk) {
	n := d.node("a")
	m := d.entry(n, v1alpha1.Cordon)
	s := d.answer(m, d.cordon(m, n))
	newer := d.want(m, v1alpha1.Drain)
	expect.Equal(d, "dropped", d.do(s).Dropped, "it has changed since that was decided")
	expect.Equal(d, "node", d.look(n), look{})
	expect.Equal(d, "entry", d.is(m), newer)
	s = d.answer(newer)
	s.UID = "another"
	expect.Equal(d, "one made anew", d.do(s).Dropped, "another one has its name")
}

func testEntryRefused(d *desk) {
	m := d.entry(d.node("a"), v1alpha1.Drain)
	s := d.answer(m)
	s.Finalizer, s.Status.Nodes, s.Status.Stages = false, nil, nil
	d.do(s)
	live := d.is(m)
	expect.Equal(d, "status", sameStatus(live.Status, s.Status), true)
	m = d.want(m, v1alpha1.Complete)
	s.ResourceVersion = m.ResourceVersion // a decision from before the completion
	d.do(s)
	if d.is(m) == nil {
		d.Fatal("the entry is gone before what became of it was decided")
	}
	s = d.answer(d.is(m))
	s.Finalizer = false
	d.do(s)
	expect.Equal(d, "entry", d.is(m), nil)
}

func testEntryDryRun(d *desk) {
	n := d.node("a")
	m := d.entry(n, v1alpha1.Drain)
	r, err := New(Config{Client: d.client, Kinds: d.kinds, Table: d.table, DryRun: true}).Do(d.Context(), d.answer(m, d.cordon(m, n)))
	d.Must(err)
	expect.Equal(d, "outcomes", outcomes(r), []string{"changed: "})
	expect.Equal(d, "node", d.look(n), look{})
	expect.Equal(d, "entry", d.is(m), m)
}

func testNoEntry(d *desk) {
	mark := `{"name":"node/../kernel","uid":"somebody","cordonedBefore":false,"at":"2026-11-20T11:00:00Z"}`
	n := d.node("a", cordoned, func(n *corev1.Node) { n.Annotations = map[string]string{schemas.AnnotationMaintenance: mark} })
	m := d.entry(n, v1alpha1.Drain)
	expect.Equal(d, "outcomes", outcomes(d.do(d.answer(m, d.cordon(m, n)))), []string{"changed: it was cordoned before, and stays so"})
	expect.Equal(d, "who holds it", d.look(n).Mark, m.Name[:len("node/a")])
}

func testHeldAcross(d *desk) {
	n, object := d.node("a"), d.maintenance("kernel")
	entry := d.entry(n, v1alpha1.Drain)
	s := d.answer(entry, d.cordon(entry, n))
	s.Status.Nodes = []v1alpha1.NodeStatus{{Name: n.Name, UID: n.UID, Stage: v1alpha1.Cordoned}}
	d.do(s)
	expect.Equal(d, "an object against an entry", outcomes(d.do(d.answer(object, d.cordon(object, n)))),
		[]string{"taken: maintenance " + entry.Name + " holds the node"})

	other := d.node("b")
	s = d.answer(d.found("kernel"), d.cordon(object, other))
	s.Status.Nodes = []v1alpha1.NodeStatus{{Name: other.Name, UID: other.UID, Stage: v1alpha1.Cordoned}}
	d.do(s)
	entry = d.entry(other, v1alpha1.Drain)
	expect.Equal(d, "an entry against an object", outcomes(d.do(d.answer(entry, d.cordon(entry, other)))),
		[]string{"taken: maintenance " + object.Name + " holds the node"})
}
