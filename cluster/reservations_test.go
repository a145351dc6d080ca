package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// TestReservations: n2 has capacity for one of the pods on n1.
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
		want string // why the second pod does not fit; empty: it does
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
			d.knows("reserved again", d.ReserveMoved(first.UID), false)
		}, ""},
		{"is_made_anew_for_a_new_move", func(d *driven) {
			d.Release(first.UID)
			fits, _, _, _ := d.Reserve(first, nil)
			d.knows("fits", fits, true)
		}, reserved},
		{"of_the_pod_does_not_block_itself", func(d *driven) {
			fits, _, _, _ := d.Reserve(first, nil)
			d.knows("fits", fits, true)
		}, reserved},
		{"of_a_pod_that_is_gone_is_not_made_again", func(d *driven) {
			d.Release(first.UID)
			d.remove(first)
			d.knows("reserved again", d.ReserveMoved(first.UID), false)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := offline(t)
			d.set(roomy("n1"), roomy("n2"), first.DeepCopy(), second.DeepCopy())
			fits, judged, why, by := d.Reserve(first, nil)
			d.knows("the first fits", []any{fits, judged, why, len(by)}, []any{true, true, "", 0})
			c.then(d)
			fits, judged, why, by = d.Reserve(second, nil)
			d.knows("the second fits", []any{fits, judged, why}, []any{c.want == "", true, c.want})
			if c.want != "" {
				d.knows("blockers", by, []schemas.ObjectRef{{Kind: "Pod", Namespace: "web", Name: "first", UID: first.UID}})
			}
		})
	}
	t.Run("without_capacity_for_them_are_no_blockers", func(t *testing.T) {
		d := offline(t)
		huge := guest("huge", "n1", asks("9"), of("rs"))
		d.set(roomy("n1"), roomy("n2"), first.DeepCopy(), huge)
		d.Reserve(first, nil)
		fits, judged, why, by := d.Reserve(huge, nil)
		d.knows("fits", []any{fits, judged, why, len(by)}, []any{false, true, reserved, 0})
	})
}
