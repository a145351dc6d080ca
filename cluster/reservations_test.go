package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func move(p *corev1.Pod) Move { return Move{Pod: p, Scheduler: score.Default()} }

// In these tests n2 has capacity for one of the pods on n1.
func TestReservations(t *testing.T) {
	of := func(owner string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner, UID: meta(owner).UID, Controller: &yes}}
		}
	}
	first, second := guest("first", "n1", asks("3"), of("rs")), guest("second", "n1", asks("3"), of("rs"))
	const reserved = "does not fit on the only other node: resource"
	for _, c := range []struct {
		name string
		then func(*driven)
		want string // why the second pod does not fit; empty means it does
	}{
		{"for_the_first_pod", func(*driven) {}, reserved},
		{"outlives_its_pod", func(d *driven) { d.remove(first) }, reserved},
		{"ends_when_the_replacement_has_a_node", func(d *driven) {
			d.set(guest("replacement", "", of("rs")))
			d.set(guest("replacement", "n1", of("rs")))
		}, ""},
		{"stays_when_another_pod_gets_a_node", func(d *driven) { d.set(guest("stranger", "n1", of("other"))) }, reserved},
		{"ends_when_it_is_released", func(d *driven) { d.Release(first.UID) }, ""},
		{"is_made_once_for_a_move", func(d *driven) {
			d.Release(first.UID)
			expect.Equal(d.t, "reserved again", d.ReserveMoved(first.UID, score.Default()), false)
		}, ""},
		{"is_made_again_when_it_was_forgotten", func(d *driven) {
			d.Forget(first.UID)
			expect.Equal(d.t, "room for the second", d.Reserve(move(second)), Room{Fits: true, Judged: true})
			d.Release(second.UID)
			expect.Equal(d.t, "reserved again", d.ReserveMoved(first.UID, score.Default()), true)
		}, reserved},
		{"is_not_forgotten_after_its_end", func(d *driven) {
			d.Release(first.UID)
			d.Forget(first.UID)
			expect.Equal(d.t, "reserved again", d.ReserveMoved(first.UID, score.Default()), false)
		}, ""},
		{"is_made_anew_for_a_new_move", func(d *driven) {
			d.Release(first.UID)
			expect.Equal(d.t, "fits", d.Reserve(move(first)).Fits, true)
		}, reserved},
		{"of_the_pod_does_not_block_itself", func(d *driven) {
			expect.Equal(d.t, "fits", d.Reserve(move(first)).Fits, true)
		}, reserved},
		{"of_a_pod_that_is_gone_is_not_made_again", func(d *driven) {
			d.Release(first.UID)
			d.remove(first)
			expect.Equal(d.t, "reserved again", d.ReserveMoved(first.UID, score.Default()), false)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := offline(t)
			d.set(roomy("n1"), roomy("n2"), first.DeepCopy(), second.DeepCopy())
			expect.Equal(d.t, "room for the first", d.Reserve(move(first)), Room{Fits: true, Judged: true})
			c.then(d)
			want := Room{Fits: c.want == "", Judged: true, Why: c.want}
			if c.want != "" {
				want.By = []schemas.ObjectRef{{Kind: "Pod", Namespace: "web", Name: "first", UID: first.UID}}
			}
			expect.Equal(d.t, "room for the second", d.Reserve(move(second)), want)
		})
	}
	t.Run("without_capacity_for_them_are_no_blockers", func(t *testing.T) {
		d := offline(t)
		huge := guest("huge", "n1", asks("9"), of("rs"))
		d.set(roomy("n1"), roomy("n2"), first.DeepCopy(), huge)
		d.Reserve(move(first))
		expect.Equal(d.t, "room", d.Reserve(move(huge)), Room{Judged: true, Why: reserved})
	})
	t.Run("none_for_a_move_in_vain", func(t *testing.T) {
		d := offline(t)
		d.set(roomy("n1"), roomy("n2"), first.DeepCopy(), second.DeepCopy())
		m := move(first)
		m.InVain = func(_ *fit.Question, to *corev1.Node) string { return "not to " + to.Name }
		expect.Equal(d.t, "room for the first", d.Reserve(m), Room{Fits: true, Judged: true, InVain: "not to n2"})
		expect.Equal(d.t, "room for the second", d.Reserve(move(second)), Room{Fits: true, Judged: true})
	})
	t.Run("is_on_the_node_that_the_scheduler_would_choose", func(t *testing.T) {
		d := offline(t)
		d.set(roomy("n1"), roomy("n2"), roomy("n3"), first.DeepCopy(), guest("near", "n1", asks("1")), guest("far", "n2", asks("1")))
		d.Reserve(move(first))
		expect.Equal(d.t, "room for a pod that needs a whole node", d.Reserve(move(guest("whole", "n2", asks("4"), of("rs")))).Fits, false)
	})
}
