package explain_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/mutate"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// FuzzRead checks that any history is read without an error, and in any order with the same result: each pod once, with at most
// one step per event. The events are the published examples with changed values.
func FuzzRead(f *testing.F) {
	var examples []schemas.Event
	for _, e := range schematest.Examples(f) {
		if e.Event.Type != schemas.ScopeType && e.Event.Type != schemas.RequestType {
			examples = append(examples, e.Event)
		}
	}
	for i := range 8 {
		f.Add(uint64(i), uint8(i*2), "shop", "cart-0", "worker-7")
	}
	f.Add(uint64(1), uint8(9), "*", ">", "a.b c")
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8, namespace, name, node string) {
		var events []schemas.Event
		for i, e := range examples {
			whole := expect.ToJSON(t, e)
			var other schemas.Event
			if json.Unmarshal(mutate.JSON(t, whole, seed+uint64(i), int(changes%4)), &other) != nil {
				other = e
			}
			other.Data = mutate.JSON(t, e.Data, seed+uint64(i)<<32, int(changes>>2%16), "shop", "cart-0", "worker-7", e.ID)
			events = append(events, other)
		}
		read := func(backwards bool) explain.Reader {
			return func(_ context.Context, _ []string, _ time.Time, handle func(schemas.Event) error) error {
				for i := range events {
					if backwards {
						i = len(events) - 1 - i
					}
					if err := handle(events[i]); err != nil {
						return err
					}
				}
				return nil
			}
		}
		q := explain.Query{Namespace: namespace, Name: name, Node: node}
		lives, err := explain.Read(t.Context(), read(false), q)
		expect.Must(t, err)
		seen, steps := map[schemas.PodRef]bool{}, 0
		for _, l := range lives {
			if seen[l.Pod] {
				t.Errorf("pod %+v has two lives", l.Pod)
			}
			seen[l.Pod] = true
			for _, c := range l.Chains {
				if steps += len(c.Steps); len(c.Steps) == 0 || (c.Delta == nil) != (c.Without != "") {
					t.Errorf("chain %+v", c)
				}
			}
		}
		if steps > len(events) {
			t.Errorf("%d steps of %d events", steps, len(events))
		}
		if _, err := json.Marshal(lives); err != nil {
			t.Errorf("the lives cannot be printed: %v", err)
		}
		if again, err := explain.Read(t.Context(), read(true), q); err != nil || len(again) != len(lives) {
			t.Errorf("%d lives, and backwards %d, %v", len(lives), len(again), err)
		}
		if blocks, err := explain.Blocks(t.Context(), read(false), q); err != nil || len(blocks) > len(events) {
			t.Errorf("%d blocks of %d events, %v", len(blocks), len(events), err)
		}
	})
}
