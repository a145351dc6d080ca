package maintenance

import (
	"errors"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// natsBus is a real bus.
type natsBus struct{ *bus.Bus }

// A process whose lease has expired must publish no intents.
func TestLease(t *testing.T) {
	b := natsBus{bustest.New(t)}
	for _, tt := range []struct {
		name  string
		valid bool
	}{{"intents wait for a valid lease", false}, {"intents are published while it is valid", true}} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Config{Bus: b, Source: "/test/maintenance", LeaseValid: func() bool { return tt.valid }}).newSession(nil)
			expect.Must(t, s.load(t.Context(), "kernel"))
			pod := schemas.PodRef{Namespace: "shop", Name: "cart", UID: "cart-1"}
			err := s.publish(t.Context(), "kernel", []schemas.Intent{{Pod: pod, Node: "n1"}}, nil, time.Now())
			if errors.Is(err, apply.ErrNotLeading) == tt.valid || tt.valid && err != nil {
				t.Errorf("with a lease that is valid: %v: got %v", tt.valid, err)
			}
			e, err := b.Intents(t.Context(), intentsOf("kernel").Channel())
			if err != nil || (e.ID != "") != tt.valid {
				t.Errorf("with a lease that is valid: %v: got the message %q, %v", tt.valid, e.ID, err)
			}
		})
	}
}
