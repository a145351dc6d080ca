package actuator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// A move whose steps fail for good must end and free its places. An outage must not end a move.
func TestFailedSteps(t *testing.T) {
	missing := fmt.Errorf("get: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "api-0", errors.New("no right")))
	outages := []error{
		errors.New("connection refused"), apierrors.NewServiceUnavailable("down"), apierrors.NewInternalError(errors.New("boom")),
		apierrors.NewTooManyRequests("later", 1), apierrors.NewTimeoutError("slow", 1),
	}
	outage := func(after time.Duration) error { return outages[int(after/trackEvery)%len(outages)] }
	type fails = func(after time.Duration, canceled bool) error
	const failed, words = schemas.ReasonMoveFailed, "the steps of the move failed for 1h0m0s, and it was not undone: "
	for _, c := range []struct {
		name    string
		fails   fails              // nil means that there is no method with the name
		reason  schemas.ReasonCode // of the end; empty means that the move goes on
		after   time.Duration
		message string
	}{
		{"a_missing_right_ends_it", func(time.Duration, bool) error { return missing },
			failed, time.Hour, words + missing.Error()},
		{"it_is_undone_if_the_method_can", func(_ time.Duration, canceled bool) error {
			if canceled {
				return nil
			}
			return missing
		}, schemas.ReasonTakenBack, time.Hour, "the move was undone, because its steps failed for 1h0m0s: " + missing.Error()},
		{"a_state_that_cannot_be_decoded_ends_it", func(time.Duration, bool) error {
			_, err := move.Decode[schemas.PodRef](move.State("1"))
			return err
		}, failed, time.Hour, words + "the stored move cannot be read: json: cannot unmarshal number into Go value of type schemas.PodRef"},
		{"an_unknown_method_ends_it", nil,
			failed, time.Hour, words + `the stored move cannot be read: there is no method "background-eviction"`},
		{"an_outage_does_not_end_it", func(after time.Duration, _ bool) error { return outage(after) }, "", 0, ""},
		{"an_outage_between_does_not_count", func(after time.Duration, _ bool) error {
			if after > 10*time.Minute && after < 20*time.Minute {
				return outage(after)
			}
			return missing
		}, failed, time.Hour + 10*time.Minute, words + missing.Error()},
		{"a_step_that_works_starts_the_hour_again", func(after time.Duration, _ bool) error {
			if after == 30*time.Minute {
				return nil
			}
			return missing
		}, failed, time.Hour + 30*time.Minute + stepEvery, words + missing.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Config{Policy: fast, View: webPods("1")}, stepping, func(t *testing.T, b *bench) {
				b.background = nil
				if c.fails != nil {
					b.background = &stepped{fails: c.fails, began: time.Now()}
				}
				b.put("A", 1, "1")
				time.Sleep(2 * time.Hour)
				synctest.Wait() // also for the step of this moment
				want, inFlight := []heard{{"A-1.1", schemas.ReasonBackgroundAccepted, 0}}, map[string]int{"worker-1": 1}
				if c.reason != "" {
					want, inFlight = append(want, heard{"A-1.1", c.reason, c.after}), map[string]int{}
				}
				expect.Equal(t, "verdicts", b.bus.heard(t, b.start), want)
				expect.Equal(t, "message of the last", b.bus.messages(t)[len(want)-1], c.message)
				expect.Equal(t, "a warning about the end", strings.Contains(b.log.String(), "msg=verdict"), c.reason == failed)
				s := b.session.Load()
				s.mu.Lock()
				defer s.mu.Unlock()
				expect.Equal(t, "moves in flight by node", s.moves.nodes, inFlight)
			})
		})
	}
}
