package watcher

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// town is a small cluster that changes at random, and what its maintenances are about, found out anew each time.
type town struct {
	*rand.Rand
	t     *testing.T
	nodes map[string]*corev1.Node
	all   map[string]*v1alpha1.NodeMaintenance
}

func either[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// outlines are those of all maintenances.
func (w *town) outlines() map[string]outline {
	found := map[string]outline{}
	for name, m := range w.all {
		o := outline{maintenance: m, meant: map[string]bool{}}
		about := map[string]bool{}
		for _, n := range m.Status.Nodes {
			about[n.Name] = true
		}
		for _, node := range slices.Sorted(maps.Keys(w.nodes)) {
			n := w.nodes[node]
			o.counts.Nodes++
			if maintenance.ControlPlane(n) {
				o.counts.ControlPlane++
				if maintenance.InService(n) {
					o.counts.ControlPlaneReady++
				}
			}
			if maintenance.Selects(m.Spec.Nodes, n) {
				o.meant[node] = true
			}
			if o.meant[node] || about[node] || maintenance.Bears(m, n, markOn(n)) {
				o.nodes = append(o.nodes, n)
			}
		}
		for _, other := range slices.Sorted(maps.Keys(w.all)) {
			if s := w.seen(w.all[other], o.nodes); other != name && len(s.Nodes)+len(s.ControlPlane) > 0 {
				o.others = append(o.others, s)
			}
		}
		found[name] = o
	}
	return found
}

// seen is what is seen of a maintenance by who is about some nodes.
func (w *town) seen(m *v1alpha1.NodeMaintenance, nodes []*corev1.Node) schemas.OtherMaintenance {
	o := schemas.OtherMaintenance{
		Name: m.Name, Stage: m.Spec.Stage, Since: m.CreationTimestamp.UTC(), Nodes: map[string]v1alpha1.NodeStage{},
		Refused: len(m.Status.Conditions) > 0 && m.Status.Conditions[0].Status == metav1.ConditionFalse,
	}
	if slices.ContainsFunc(nodes, maintenance.ControlPlane) {
		for _, s := range m.Status.Nodes {
			if n := w.nodes[s.Name]; n != nil && maintenance.ControlPlane(n) && maintenance.Holds(s.Stage) {
				if o.ControlPlane == nil {
					o.ControlPlane = map[string]v1alpha1.NodeStage{}
				}
				o.ControlPlane[s.Name] = s.Stage
			}
		}
	}
	for _, n := range nodes {
		i := slices.IndexFunc(m.Status.Nodes, func(s v1alpha1.NodeStatus) bool { return s.Name == n.Name })
		switch {
		case i >= 0:
			o.Nodes[n.Name] = m.Status.Nodes[i].Stage
		case maintenance.Selects(m.Spec.Nodes, n):
			o.Nodes[n.Name] = ""
		}
	}
	return o
}

// node makes a node, at random.
func (w *town) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name + either(w.Rand, "", "", "-anew")), Labels: map[string]string{"zone": either(w.Rand, "a", "b")},
	}}
	n.Spec.Unschedulable = w.IntN(3) == 0
	if w.IntN(4) == 0 {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: either(w.Rand, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse),
	}}
	if w.IntN(3) == 0 {
		m := either(w.Rand, "m1", "m2")
		n.Annotations = map[string]string{
			schemas.AnnotationMaintenance: fmt.Sprintf(`{"name":%q,"uid":%q}`, m, m+either(w.Rand, "", "-anew")),
		}
	}
	if w.IntN(3) == 0 {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: maintenance.AdminRequested,
			Message: "(maintenance m9)" + maintenance.Signature(either(w.Rand, "m1", "m2", "m3")),
		})
	}
	return n
}

// maintenance makes a maintenance, at random.
func (w *town) maintenance(name string) *v1alpha1.NodeMaintenance {
	m := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name + either(w.Rand, "", "-anew")), CreationTimestamp: metav1.Unix(1000, 0),
	}}
	m.Spec.Stage = either(w.Rand, v1alpha1.Cordon, v1alpha1.Drain)
	m.Spec.Nodes = either(w.Rand, v1alpha1.NodeSet{Names: []string{"n1", "n3"}}, v1alpha1.NodeSet{Selector: selecting("zone", "a")},
		v1alpha1.NodeSet{Selector: selecting("zone", "b")})
	for i := range 4 {
		if w.IntN(2) == 0 {
			stage := either(w.Rand, v1alpha1.Waiting, v1alpha1.Draining, v1alpha1.Returning, v1alpha1.Gone)
			m.Status.Nodes = append(m.Status.Nodes, v1alpha1.NodeStatus{Name: "n" + strconv.Itoa(i), Stage: stage})
		}
	}
	m.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.Accepted, Status: either(w.Rand, metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionFalse),
	}}
	return m
}

// step changes something, and says whom it was said to concern, and by what.
func (w *town) step(in *maintained) (concerned []string, what string) {
	if w.IntN(2) == 0 {
		name := "n" + strconv.Itoa(w.IntN(4))
		old := w.nodes[name]
		if old != nil && w.IntN(5) == 0 {
			delete(w.nodes, name)
			return in.node(old, nil), "node " + name + " leaves"
		}
		w.nodes[name] = w.node(name)
		return in.node(old, w.nodes[name]), "node " + name
	}
	name := "m" + strconv.Itoa(w.IntN(4))
	old := w.all[name]
	if old != nil && w.IntN(5) == 0 {
		delete(w.all, name)
		return append(in.maintenance(old, nil), name), "maintenance " + name + " goes"
	}
	w.all[name] = w.maintenance(name)
	return append(in.maintenance(old, w.all[name]), name), "maintenance " + name
}

// TestWhatMaintenancesAreAboutIsCurrentAndWhomAChangeConcernsIsToldOfIt plays at random. REHOME_TEST_SEED repeats one game.
func TestWhatMaintenancesAreAboutIsCurrentAndWhomAChangeConcernsIsToldOfIt(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("REHOME_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("to repeat: REHOME_TEST_SEED=%d", seed)
	w := &town{
		Rand: rand.New(rand.NewPCG(seed, 0)), t: t, nodes: map[string]*corev1.Node{}, all: map[string]*v1alpha1.NodeMaintenance{},
	}
	var in maintained
	for i := range 5000 {
		before := w.outlines()
		concerned, what := w.step(&in)
		after := w.outlines()
		if got, want := in.names(), slices.Sorted(maps.Keys(w.all)); !slices.Equal(got, want) {
			t.Fatalf("step %d, %s: the maintenances: got %q, want %q", i, what, got, want)
		}
		for name, want := range after {
			got, _ := in.outline(name)
			if got.meant == nil {
				got.meant = map[string]bool{}
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("step %d, %s: %s:\ngot  %+v\nwant %+v", i, what, name, got, want)
			}
			if !reflect.DeepEqual(before[name], want) && !slices.Contains(concerned, name) {
				t.Fatalf("step %d, %s concerns %s, and only %q are told so", i, what, name, concerned)
			}
		}
		var working []string
		for _, name := range slices.Sorted(maps.Keys(w.all)) {
			if slices.ContainsFunc(w.all[name].Status.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Name == "n1" && maintenance.WorkedOn(n.Stage) }) {
				working = append(working, name)
			}
		}
		if got := in.workingOn("n1"); !slices.Equal(got, working) {
			t.Fatalf("step %d, %s: who works on n1: got %q, want %q", i, what, got, working)
		}
	}
}

func TestOfTooManyNodesOnlySoManyAreShownThatTellSoAndThoseThatWereBegun(t *testing.T) {
	var in maintained
	m := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "m1"}}
	m.Spec.Nodes = v1alpha1.NodeSet{Selector: selecting("zone", "a")}
	m.Status.Nodes = []v1alpha1.NodeStatus{{Name: "n-1999", Stage: v1alpha1.Draining}}
	in.maintenance(nil, m)
	var want []string
	for i := range 2000 {
		n := named(fmt.Sprintf("n-%04d", i))
		n.Labels = map[string]string{"zone": "a"}
		in.node(nil, n)
		if i <= maintenance.MostNodes || i == 1999 {
			want = append(want, n.Name)
		}
	}
	o, _ := in.outline("all")
	var got []string
	for _, n := range o.nodes {
		got = append(got, n.Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d nodes, %q, want %d, %q", len(got), got, len(want), want)
	}
}

func TestAMarkThatCannotBeReadIsNone(t *testing.T) {
	for _, text := range []string{"", "{", "{}", `"kernel"`, `{"name":"kernel"}`, `{"name":"kernel","uid":7}`} {
		if got := markOn(named("n1", annotatedBy(schemas.AnnotationMaintenance, text))); got != nil {
			t.Errorf("%q: got %+v, want none", text, got)
		}
	}
}
