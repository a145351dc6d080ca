package bus_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// TestRequestIntents publishes intents of a request as the key of `rehome functions` may, and checks which ones the
// actuator gets.
func TestRequestIntents(t *testing.T) {
	pod := schemas.PodRef{Namespace: "web", Name: "api-0", UID: "u"}
	other := schemas.PodRef{Namespace: "kube-system", Name: "dns", UID: "v"}
	open := schemas.Request{
		Sender: "batch", Name: "one", Action: schemas.ActionDeschedule, Reason: "test", Override: []string{"pvc"},
		Target: &schemas.Target{Pods: []schemas.PodTarget{{Namespace: "web", Name: "api-0"}}},
	}
	accepted := schemas.Receipt{
		Sender: "batch", Name: "one", State: schemas.RequestAccepted, Reason: schemas.ReceiptAccepted, Profile: "p",
		Pods: []schemas.RequestedPod{{Pod: pod, Node: "n1"}},
	}
	finished := accepted
	finished.State, finished.Reason = schemas.RequestFinished, schemas.ReceiptDone
	asked := &schemas.Asked{Override: []string{"pvc"}}
	const buried, dropped, taken = "buried", "dropped", "taken"
	for name, c := range map[string]struct {
		receipts []schemas.Receipt
		profile  string
		intent   schemas.Intent
		want     string
	}{
		"of an accepted request": {[]schemas.Receipt{accepted}, "p", schemas.Intent{ID: "i", Pod: pod, Asked: asked}, taken},
		"with its own override":  {[]schemas.Receipt{accepted}, "p", schemas.Intent{ID: "i", Pod: pod, Asked: &schemas.Asked{Override: []string{"pvc", "systemCritical"}}}, buried},
		"without the override":   {[]schemas.Receipt{accepted}, "p", schemas.Intent{ID: "i", Pod: pod}, buried},
		"for a restart":          {[]schemas.Receipt{accepted}, "p", schemas.Intent{ID: "i", Pod: pod, Asked: &schemas.Asked{Override: []string{"pvc"}, Method: schemas.UseRestart}}, buried},
		"about another pod":      {[]schemas.Receipt{accepted}, "p", schemas.Intent{ID: "i", Pod: other, Asked: asked}, buried},
		"for another profile":    {[]schemas.Receipt{accepted}, "q", schemas.Intent{ID: "i", Pod: pod, Asked: asked}, buried},
		"before it was accepted": {nil, "p", schemas.Intent{ID: "i", Pod: pod, Asked: asked}, dropped},
		"after it was finished":  {[]schemas.Receipt{accepted, finished}, "p", schemas.Intent{ID: "i", Pod: pod, Asked: asked}, dropped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.New(t)
			publish := func(source string, p schemas.Payload, cause schemas.Event) schemas.Event {
				e := schematest.Event(t, "/clusters/test/"+source, p, time.Now(), cause)
				if _, err := b.Publish(t.Context(), e); err != nil {
					t.Fatal(err)
				}
				return e
			}
			request := publish("sender", open, schemas.Event{})
			for _, r := range c.receipts {
				publish("watcher", r, request)
			}
			forged := publish("functions", schemas.Intents{
				Profile: c.profile, Strategy: schemas.RequestStrategy, Intents: []schemas.Intent{c.intent},
				Scope: schemas.ScopeRef{Kind: schemas.RequestKind, Key: "batch/one", Sequence: 1},
			}, request)
			last := publish("functions", schemas.Intents{
				Profile: "p", Strategy: "Taints", Intents: []schemas.Intent{{ID: "last", Pod: pod}},
				Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1", Sequence: 1},
			}, schemas.Event{})

			ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
			defer cancel()
			var got []string
			err := b.FollowIntents(ctx, func(_ context.Context, e schemas.Event) error {
				got = append(got, e.ID)
				if e.ID == last.ID {
					cancel()
				}
				return nil
			})
			want := []string{last.ID}
			if c.want == taken {
				want = []string{forged.ID, last.ID}
			}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("the actuator got %q, error %v; want %q", got, err, want)
			}
			letters, err := b.DeadNumbers(t.Context(), bus.DeadQuery{Stream: bus.StreamIntents})
			if err != nil || (len(letters) == 1) != (c.want == buried) {
				t.Errorf("%d dead letters, error %v; want that it is %s", len(letters), err, c.want)
			}
		})
	}
}
