package maintenance

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/schematest"
)

// TestIntents checks that newer messages list a pod whose move has begun, because the actuator cancels a move in flight
// that a newer message does not list.
func TestIntents(t *testing.T) {
	for _, tt := range []struct {
		name   string
		moving map[types.UID]bool
		want   []string // pods with "again" if the intent is the previous one
	}{
		{"a newer message keeps the move in flight", map[types.UID]bool{"first": true}, []string{"second", "first again"}},
		{"a newer message leaves out a pod that stays", nil, []string{"second"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := natsBus{bustest.New(t)}
			s := New(Config{Bus: b, Source: "/test/maintenance"}).newSession(nil)
			if err := s.load(t.Context(), "kernel"); err != nil {
				t.Fatal(err)
			}
			wanted := func(name string) []schemas.Intent {
				return []schemas.Intent{{Pod: schemas.PodRef{Namespace: "shop", Name: name, UID: types.UID(name)}, Node: "n1"}}
			}
			now := time.Now()
			if err := s.publish(t.Context(), "kernel", wanted("first"), nil, now); err != nil {
				t.Fatal(err)
			}
			before := s.drains.of("kernel").entries["first"]
			before.open = false // its move has begun
			id := before.intent.ID
			if err := s.withdraw(t.Context(), "kernel", wanted("second"), tt.moving, now); err != nil {
				t.Fatal(err)
			}
			if err := s.publish(t.Context(), "kernel", wanted("second"), tt.moving, now); err != nil {
				t.Fatal(err)
			}
			e, err := b.Intents(t.Context(), intentsOf("kernel").Channel())
			expect.Must(t, err)
			a := schematest.Decode[schemas.Intents](t, e)
			var got []string
			for _, i := range a.Intents {
				name := i.Pod.Name
				if i.ID == id {
					name += " again"
				}
				got = append(got, name)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
