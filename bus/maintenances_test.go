package bus_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// wanted returns a maintenance of a node.
func wanted(name string, stage v1alpha1.Stage) *v1alpha1.NodeMaintenance {
	return &v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-1", Generation: 1},
		Spec:       v1alpha1.NodeMaintenanceSpec{Nodes: v1alpha1.NodeSet{Names: []string{"a"}}, Stage: stage, Reason: "why"},
	}
}

// put stores a maintenance and returns the stored one.
func put(t testing.TB, b *bus.Bus, m *v1alpha1.NodeMaintenance) *v1alpha1.NodeMaintenance {
	t.Helper()
	version, err := b.Maintenances().Put(t.Context(), m)
	expect.Must(t, err)
	m = m.DeepCopy()
	m.ResourceVersion = version
	return m
}

func TestMaintenanceConflicts(t *testing.T) {
	r := newRig(t, bus.Setup{})
	all := r.bus.Maintenances()
	if _, err := all.Get(t.Context(), "node/a"); !apierrors.IsNotFound(err) {
		t.Errorf("before it is there: %v, want that it is not found", err)
	}
	first := put(t, r.bus, wanted("node/a", v1alpha1.Cordon))
	if got, err := all.Get(t.Context(), "node/a"); err != nil || !reflect.DeepEqual(got, first) {
		t.Errorf("got %+v, %v, want %+v", got, err, first)
	}
	if _, err := all.Put(t.Context(), wanted("node/a", v1alpha1.Drain)); !apierrors.IsConflict(err) {
		t.Errorf("another one of its name: %v, want a conflict", err)
	}
	second := first.DeepCopy()
	second.Spec.Stage = v1alpha1.Drain
	second = put(t, r.bus, second)
	if _, err := all.Put(t.Context(), first); !apierrors.IsConflict(err) {
		t.Errorf("a change of an outdated version: %v, want a conflict", err)
	}
	if err := all.Delete(t.Context(), first); !apierrors.IsConflict(err) {
		t.Errorf("removal of an outdated version: %v, want a conflict", err)
	}
	if err := all.Delete(t.Context(), second); err != nil {
		t.Error(err)
	}
	if _, err := all.Get(t.Context(), "node/a"); !apierrors.IsNotFound(err) {
		t.Errorf("after it was removed: %v, want that it is not found", err)
	}
	if _, err := all.Put(t.Context(), second); !apierrors.IsConflict(err) {
		t.Errorf("a change of a removed entry: %v, want a conflict", err)
	}
	again := put(t, r.bus, wanted("node/a", v1alpha1.Drain))
	other := put(t, r.bus, wanted("node/b.c", v1alpha1.Cordon))
	if got, err := all.List(t.Context()); err != nil || !reflect.DeepEqual(got, []*v1alpha1.NodeMaintenance{again, other}) {
		t.Errorf("all of them: %+v, %v", got, err)
	}
}

// told is one call to a follower of maintenances: a name and the maintenance. The call of synced has no name.
type told struct {
	name string
	is   *v1alpha1.NodeMaintenance
}

// listeningTo follows the maintenances until the test ends, or stop is called.
func listeningTo(t testing.TB, b *bus.Bus) (news <-chan told, stop func()) {
	t.Helper()
	c := make(chan told, 100)
	return c, expect.Background(t, func(ctx context.Context) error {
		return b.Maintenances().Follow(ctx,
			func(name string, is *v1alpha1.NodeMaintenance) { c <- told{name, is} }, func() { c <- told{} })
	})
}

func TestFollowMaintenances(t *testing.T) {
	r := newRig(t, bus.Setup{})
	expect.Must(t, r.bus.Maintenances().Delete(t.Context(), put(t, r.bus, wanted("node/gone", v1alpha1.Cordon))))
	a, b := put(t, r.bus, wanted("node/a", v1alpha1.Cordon)), put(t, r.bus, wanted("node/b", v1alpha1.Drain))
	news, _ := listeningTo(t, r.bus)
	for _, want := range []told{{"node/a", a}, {"node/b", b}, {}} {
		expect.Equal(t, "told", next(t, news), want)
	}
	c := put(t, r.bus, wanted("node/c", v1alpha1.Cordon))
	r.garbage(t, "$KV.REHOME_MAINTENANCES.node=2Fd", nil, "garbage")
	a.Spec.Stage = v1alpha1.Drain
	a = put(t, r.bus, a)
	expect.Must(t, r.bus.Maintenances().Delete(t.Context(), b))
	for _, want := range []told{{"node/c", c}, {"node/a", a}, {"node/b", nil}} {
		expect.Equal(t, "told", next(t, news), want)
	}
}

func TestFollowMaintenancesRecreated(t *testing.T) {
	r := newRig(t, bus.Setup{})
	a := put(t, r.bus, wanted("node/a", v1alpha1.Cordon))
	news, _ := listeningTo(t, r.bus)
	for range 2 {
		next(t, news) // it is there, and that is all
	}
	expect.Must(t, r.raw.DeleteStream(t.Context(), bus.StreamMaintenances))
	if _, err := r.bus.Maintenances().Put(t.Context(), a); !errors.Is(err, bus.ErrNotSetUp) {
		t.Errorf("without the table: %v, want ErrNotSetUp", err)
	}
	bustest.SetUp(t, r.bus, bus.Setup{})
	expect.Equal(t, "told", next(t, news), (told{"node/a", nil}))
	b := put(t, r.bus, wanted("node/a", v1alpha1.Drain))
	if a.ResourceVersion >= b.ResourceVersion || len(a.ResourceVersion) != len(b.ResourceVersion) {
		t.Errorf("version %s of the new table, want one after %s", b.ResourceVersion, a.ResourceVersion)
	}
	expect.Equal(t, "told", next(t, news), (told{"node/a", b}))
}

func TestFullMaintenancesTable(t *testing.T) {
	r := newRig(t, bus.Setup{MaxBytes: 64 << 14}) // a sixty-fourth is for maintenances
	large := wanted("node/a", v1alpha1.Cordon)
	large.Spec.Reason = string(make([]byte, 1<<10)) // written as six times that
	first := put(t, r.bus, large)
	var err error
	for i := 0; i < 10 && err == nil; i++ {
		large.Name = "node/b" + string(rune('a'+i))
		_, err = r.bus.Maintenances().Put(t.Context(), large)
	}
	if err == nil || apierrors.IsConflict(err) {
		t.Fatalf("got %v, want that there is no room", err)
	}
	if got, err := r.bus.Maintenances().Get(t.Context(), "node/a"); err != nil || !reflect.DeepEqual(got, first) {
		t.Errorf("the first one: %v, want it as it was", err)
	}
}
