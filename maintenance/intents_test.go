package maintenance

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// TestIntents checks that newer messages list a pod whose move has begun, because the actuator cancels a move in flight
// that a newer message does not list.
func TestIntents(t *testing.T) {
	for _, tt := range []struct {
		name   string
		moving map[types.UID]bool
		want   []string // pods with "again" if the intent is the previous one
	}{
		{"a newer message keeps the move in flight", map[types.UID]bool{"cart": true}, []string{"second", "cart again"}},
		{"a newer message leaves out a pod that stays", nil, []string{"second"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDrainOf(t)
			before := d.drains.of("kernel").entries["cart"]
			before.open = false // its move has begun
			id := before.intent.ID
			second := []schemas.Intent{{Pod: schemas.PodRef{Namespace: "shop", Name: "second", UID: "second"}, Node: "n1"}}
			d.Must(d.withdraw(t.Context(), "kernel", second, tt.moving, d.now))
			d.Must(d.publish(t.Context(), "kernel", second, tt.moving, d.now))
			e, err := d.cfg.Bus.Intents(t.Context(), intentsOf("kernel").Channel())
			d.Must(err)
			a := schematest.Decode[schemas.Intents](t, e)
			var got []string
			for _, i := range a.Intents {
				name := i.Pod.Name
				if i.ID == id {
					name += " again"
				}
				got = append(got, name)
			}
			expect.Equal(t, "result", got, tt.want)
		})
	}
}
