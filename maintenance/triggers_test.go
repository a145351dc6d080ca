package maintenance

import (
	"context"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// desk is a session with a real bus, and a cache without an API server.
type desk struct {
	expect.T
	*session
	cache *cluster.Cache
	clock time.Time
}

func newDesk(t *testing.T, change ...func(*Config)) *desk {
	t.Helper()
	d := &desk{T: expect.T{TB: t}, clock: time.Now().Truncate(time.Second)}
	var err error
	d.cache, err = cluster.NewOffline(Kinds()...)
	d.Must(err)
	b := natsBus{bustest.New(t)}
	cfg := Config{
		View: d.cache, Bus: b, Table: b.Maintenances(), Source: "/test/maintenance", Now: func() time.Time { return d.clock },
		Policy: policy.Policy{Maintenance: policy.Maintenance{Start: []policy.StartSign{{Taint: interruption}}}},
	}
	for _, c := range change {
		c(&cfg)
	}
	d.session = New(cfg).newSession(nil)
	return d
}

// node stores a node in the cache, marked by a maintenance if uid is not empty.
func (d *desk) node(name string, tainted bool, by string, uid types.UID) {
	d.Helper()
	n := named(name)
	if tainted {
		n.Spec.Taints = []corev1.Taint{{Key: interruption, Effect: corev1.TaintEffectNoSchedule}}
	}
	if uid != "" {
		n.Annotations = map[string]string{schemas.AnnotationMaintenance: `{"name":"` + by + `","uid":"` + string(uid) + `"}`}
	}
	d.Must(d.cache.Set(n))
}

// entry reads an entry of the table, and passes it to the session like its watch. It returns nil if there is none.
func (d *desk) entry(name string) *v1alpha1.NodeMaintenance {
	d.Helper()
	m, err := d.stored(d.Context(), name)
	d.Must(err)
	d.tableChanged(name, m)
	return m
}

// wanted is the compared part of an entry.
type wanted struct {
	Spec       v1alpha1.NodeMaintenanceSpec
	Generation int64
}

func (d *desk) wanted(name string) *wanted {
	d.Helper()
	m := d.entry(name)
	if m == nil {
		return nil
	}
	return &wanted{m.Spec, m.Generation}
}

func specOf(node string, stage v1alpha1.Stage, reason string) v1alpha1.NodeMaintenanceSpec {
	return v1alpha1.NodeMaintenanceSpec{Nodes: v1alpha1.NodeSet{Names: []string{node}}, Stage: stage, Reason: reason}
}

func TestTriggers(t *testing.T) {
	const name = "sign/n1"
	begun := specOf("n1", v1alpha1.Drain, `its taint "`+interruption+`" on the node`)
	check := func(d *desk, what string, want *wanted) {
		d.Helper()
		d.Must(d.triggers.reconcile(context.Background(), "n1"))
		got := d.wanted(name)
		if got != nil && want != nil && want.Spec.Reason == "" {
			want.Spec.Reason = got.Spec.Reason
		}
		if !reflect.DeepEqual(got, want) {
			d.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	t.Run("begin and complete with the trigger", func(t *testing.T) {
		d := newDesk(t)
		d.node("n1", false, "", "")
		check(d, "without a trigger", nil)
		d.node("n1", true, "", "")
		begun.Reason = ""
		check(d, "with a trigger", &wanted{begun, 1})
		check(d, "again", &wanted{begun, 1})
		d.node("n1", false, "", "")
		check(d, "after the trigger", &wanted{specOf("n1", v1alpha1.Complete, ""), 2})
		d.node("n1", true, "", "")
		check(d, "one that is being completed is left alone", &wanted{specOf("n1", v1alpha1.Complete, ""), 2})
	})
	t.Run("a lost entry is made again with the UID of the mark", func(t *testing.T) {
		d := newDesk(t)
		d.node("n1", true, name, "u1")
		check(d, "with the trigger", &wanted{specOf("n1", v1alpha1.Drain, ""), 1})
		expect.Equal(t, "UID", d.entry(name).UID, "u1")
	})
	t.Run("a lost entry gives its node back", func(t *testing.T) {
		d := newDesk(t)
		d.node("n1", false, name, "u1")
		check(d, "without the trigger", &wanted{specOf("n1", v1alpha1.Complete, "the drain trigger is gone from the node"), 1})
	})
	t.Run("a node that is absent for long needs no maintenance", func(t *testing.T) {
		d := newDesk(t)
		requested := desired{name: "node/n1", node: "n1", reason: "new kernel", now: d.clock}
		requested.Stage = v1alpha1.Drain
		_, err := d.cfg.Table.Put(t.Context(), requested.first())
		d.Must(err)
		for _, tt := range []struct {
			after time.Duration
			want  v1alpha1.Stage
		}{{0, v1alpha1.Drain}, {absentFor - time.Second, v1alpha1.Drain}, {time.Second, v1alpha1.Complete}} {
			d.clock = d.clock.Add(tt.after)
			d.entry("node/n1")
			d.Must(d.triggers.reconcile(t.Context(), "n1"))
			if got := d.entry("node/n1").Spec.Stage; got != tt.want {
				t.Errorf("%v later: got %s, want %s", tt.after, got, tt.want)
			}
		}
	})
	t.Run("a dry run begins nothing", func(t *testing.T) {
		d := newDesk(t, func(c *Config) { c.DryRun = true })
		d.node("n1", true, "", "")
		check(d, "with a trigger", nil)
	})
}

// A node that was given back never begins again. So a new maintenance takes the place of the old one.
func TestRequestForReturnedNode(t *testing.T) {
	d := newDesk(t, allowing(policy.Sender{Name: "ops", Nodes: true, PerMinute: 600, Open: 9}))
	d.node("n1", false, "", "")
	drain := desired{name: "node/n1", node: "n1", reason: "new disk", now: d.clock}
	drain.Stage = v1alpha1.Drain
	was := drain.first()
	was.Status.ObservedGeneration = was.Generation
	was.Status.Nodes = []v1alpha1.NodeStatus{{Name: "n1", Stage: v1alpha1.Returned, DrainedAt: &metav1.Time{Time: d.clock}}}
	_, err := d.cfg.Table.Put(t.Context(), was)
	d.Must(err)
	d.entry("node/n1")
	expect.Equal(t, "receipt", d.ask(toMaintain("again", "n1", v1alpha1.Cordon)), "accepted Accepted: node n1 will be cordoned")
	is := d.entry("node/n1")
	if is.UID == was.UID || len(is.Status.Nodes) > 0 || is.Spec.Stage != v1alpha1.Cordon {
		t.Errorf("got %+v with the UID %s, want a new maintenance without a status instead of %s", is.Status, is.UID, was.UID)
	}
}

func TestDesiredStateOf(t *testing.T) {
	deadline := &metav1.Duration{Duration: time.Hour}
	is := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: "node/n1", Generation: 1}, Spec: specOf("n1", v1alpha1.Cordon, "new kernel")}
	for _, tt := range []struct {
		name   string
		wanted schemas.NodeRequest
		want   func(*v1alpha1.NodeMaintenanceSpec) // nil means that nothing changes
		no     schemas.ReceiptReason
	}{
		{"the same", schemas.NodeRequest{Stage: v1alpha1.Cordon}, nil, ""},
		{"a later stage", schemas.NodeRequest{Stage: v1alpha1.Drain, Deadline: deadline, OnDeadline: v1alpha1.Hold},
			func(s *v1alpha1.NodeMaintenanceSpec) {
				s.Stage, s.Reason, s.Deadline, s.OnDeadline = v1alpha1.Drain, "faster", deadline, v1alpha1.Hold
			}, ""},
		{"a guard that is lifted", schemas.NodeRequest{Stage: v1alpha1.Cordon, Force: []v1alpha1.Guard{v1alpha1.SingleNode}},
			func(s *v1alpha1.NodeMaintenanceSpec) { s.Force = []v1alpha1.Guard{v1alpha1.SingleNode} }, ""},
		{"an earlier stage", schemas.NodeRequest{Stage: v1alpha1.Idle}, nil, schemas.ReceiptConflict},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want *v1alpha1.NodeMaintenance
			if tt.want != nil {
				want = is.DeepCopy()
				want.Generation = 2
				tt.want(&want.Spec)
			}
			got, no := desired{reason: "faster", NodeRequest: tt.wanted}.of(is)
			if !reflect.DeepEqual(got, want) || no == nil != (tt.no == "") || no != nil && no.Reason != tt.no {
				t.Errorf("got %+v, %+v; want %+v, %q", got, no, want, tt.no)
			}
		})
	}
}
