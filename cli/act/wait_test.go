package act

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/schemas"
)

// silent is an installation that publishes these events for a request, and nothing more. The request stays open.
type silent struct {
	cmdutil.Installation
	events []schemas.Payload
	cause  schemas.Event
}

func (s *silent) Send(_ context.Context, r schemas.Request, first schemas.Event) (e schemas.Event, err error) {
	if s.cause.ID != "" {
		return e, bus.ErrOpen
	}
	s.cause, err = schemas.NewEvent("/test", r, time.Now(), first)
	return s.cause, err
}

func (s *silent) Events(ctx context.Context, q cmdutil.EventQuery, handle func(schemas.Event) error) error {
	if err := q.Begin(ctx); err != nil {
		return err
	}
	for _, p := range s.events {
		e, err := schemas.NewEvent("/test", p, time.Now(), s.cause)
		if err == nil {
			err = handle(e)
		}
		if err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

func TestOverdueRequest(t *testing.T) {
	receipt := func(state schemas.ReceiptState) schemas.Receipt {
		return schemas.Receipt{Sender: "admin", Name: "r", State: state, Reason: schemas.ReceiptAccepted, Action: schemas.ActionDeschedule}
	}
	begun := schemas.Verdict{Outcome: schemas.Evicted, Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "shop", Name: "a", UID: "u"}, Node: "n1"}}
	for _, c := range []struct {
		name     string
		deadline time.Duration // zero: the default of one hour
		events   []schemas.Payload
		want     string
		after    time.Duration
	}{
		{"no receipt", 0, nil,
			"its last receipt did not arrive within 15m0s after the deadline; to see the current state:\n  rehome get requests", 75 * time.Minute},
		{"no last receipt", 2 * time.Hour, []schemas.Payload{receipt(schemas.RequestAccepted)},
			"its last receipt did not arrive within 15m0s after the deadline; to see the current state:\n  rehome get requests", 135 * time.Minute},
		{"no end of a move", time.Minute, []schemas.Payload{receipt(schemas.RequestAccepted), begun, receipt(schemas.RequestFinished)},
			"the end of each move did not arrive within 7h0m0s after the deadline; to see the current state:\n  rehome get moves", 421 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := schemas.Request{Sender: "admin", Name: "r", Action: schemas.ActionDeschedule}
				at := time.Now()
				if c.deadline > 0 {
					r.Deadline = at.Add(c.deadline)
				}
				s := &sending{to: &silent{events: c.events}, at: at, progress: newProgress(r), out: io.Discard, notes: io.Discard}
				err := s.follow(t.Context())
				if after := time.Since(at); err == nil || err.Error() != "request admin/r: no answer: "+c.want || after != c.after {
					t.Errorf("after %v, got %v\nwant after %v, %s", after, err, c.after, c.want)
				}
			})
		})
	}
}

// The watcher can evaluate a request again while a pod moves. The actuator then rejects the second intent for the pod.
func TestRejectionDuringMove(t *testing.T) {
	intent := schemas.Intent{Pod: schemas.PodRef{Namespace: "shop", Name: "a", UID: "u"}, Node: "n1"}
	verdict := func(outcome schemas.Outcome, reason schemas.ReasonCode, s *schemas.Settlement) schemas.Verdict {
		return schemas.Verdict{Outcome: outcome, Reason: reason, Intent: intent, Settlement: s}
	}
	moving := verdict(schemas.Rejected, schemas.ReasonMoving, nil)
	synctest.Test(t, func(t *testing.T) {
		r := schemas.Request{Sender: "admin", Name: "r", Action: schemas.ActionDeschedule}
		events := []schemas.Payload{
			verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, nil), moving,
			schemas.Receipt{
				Sender: "admin", Name: "r", State: schemas.RequestFinished, Reason: schemas.ReceiptDone, Action: r.Action,
				Remaining: []schemas.RemainingPod{{Pod: intent.Pod, Outcome: moving.Outcome, Reason: moving.Reason}},
			},
			verdict(schemas.Settled, schemas.ReasonReplaced, &schemas.Settlement{Seconds: 2}),
		}
		s := &sending{to: &silent{events: events}, at: time.Now(), progress: newProgress(r), out: io.Discard, notes: io.Discard}
		if err := errors.Join(s.follow(t.Context()), s.progress.err()); err != nil {
			t.Errorf("got error %v, want none", err)
		}
	})
}

func TestDetachedRequest(t *testing.T) {
	for name, c := range map[string]struct {
		state  schemas.ReceiptState
		reason schemas.ReceiptReason
		want   error
	}{
		"accepted": {schemas.RequestAccepted, schemas.ReceiptAccepted, nil},
		"finished": {schemas.RequestFinished, schemas.ReceiptDone, nil},
		"rejected": {schemas.RequestRejected, schemas.ReceiptUnknownTarget,
			errors.New("request http/r was rejected: UnknownTarget: there is no node n1")},
	} {
		t.Run(name, func(t *testing.T) {
			handler, _ := apiOf(t, func(r schemas.Request) []schemas.Payload {
				return []schemas.Payload{schemas.Receipt{
					Sender: r.Sender, Name: r.Name, State: c.state, Reason: c.reason, Message: "there is no node n1", Action: r.Action,
				}}
			})
			web := httptest.NewServer(handler)
			defer web.Close()
			command := moveCommand()
			command.SetArgs([]string{"node", "n1", "--reason", "fan", "--name", "r", "--detach", "--server", web.URL})
			command.SetOut(io.Discard)
			command.SetErr(io.Discard)
			if err := command.ExecuteContext(t.Context()); fmt.Sprint(err) != fmt.Sprint(c.want) {
				t.Errorf("got error %v, want %v", err, c.want)
			}
		})
	}
}
