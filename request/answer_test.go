package request_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// lostDrop is a bus that is lost when a request is dropped.
type lostDrop struct {
	request.Bus
	err error
}

func (l lostDrop) DropRequest(context.Context, schemas.Event) error { return l.err }

// TestRejectFinishedName rejects a request with the name of a finished one. It checks the receipts of the name, in order, and that
// the rejected request is no longer open.
func TestRejectFinishedName(t *testing.T) {
	const finished, refused = "ann: finished Done: all are gone", "bob: rejected NotAllowed: no"
	errLost := errors.New("the bus is lost")
	reject := func(t *testing.T, a request.Answers, e schemas.Event, receipt schemas.Receipt) {
		if err := a.Reject(t.Context(), e, receipt, request.NewEnd(schemas.ReceiptNotAllowed, "no")); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		before bool // a finished request has the name
		answer func(t *testing.T, a request.Answers, e schemas.Event, receipt schemas.Receipt)
		want   []string
	}{
		"a free name":     {false, reject, []string{refused}},
		"a finished name": {true, reject, []string{finished, refused, finished}},
		"again after a lost bus": {true, func(t *testing.T, a request.Answers, e schemas.Event, receipt schemas.Receipt) {
			publish, left := a.Publish, 1
			a.Publish = func(ctx context.Context, e schemas.Event) error {
				if left--; left < 0 {
					return errLost
				}
				return publish(ctx, e)
			}
			if err := a.Reject(t.Context(), e, receipt, request.NewEnd(schemas.ReceiptNotAllowed, "no")); !errors.Is(err, errLost) {
				t.Errorf("got %v, want %v", err, errLost)
			}
			a.Publish = publish
			reject(t, a, e, receipt)
		}, []string{finished, refused, finished}},
		"dropped after a lost bus": {true, func(t *testing.T, a request.Answers, e schemas.Event, receipt schemas.Receipt) {
			receipt.State, receipt.Reason, receipt.Message = schemas.RequestRejected, schemas.ReceiptNotAllowed, "no"
			expect.Must(t, a.Send(t.Context(), e, receipt))
			expect.Must(t, a.DropRejected(t.Context(), e, receipt.Sender, receipt.Name))
		}, []string{finished, refused, finished}},
		"again after a lost drop": {true, func(t *testing.T, a request.Answers, e schemas.Event, receipt schemas.Receipt) {
			closed := a
			closed.Bus = lostDrop{a.Bus, errLost}
			if err := closed.Reject(t.Context(), e, receipt, request.NewEnd(schemas.ReceiptNotAllowed, "no")); !errors.Is(err, errLost) {
				t.Errorf("got %v, want %v", err, errLost)
			}
			publish := a.Publish
			a.Publish = func(ctx context.Context, e schemas.Event) error { // as after two minutes, when the bus knows no duplicates
				e.ID += "-later"
				return publish(ctx, e)
			}
			reject(t, a, e, receipt)
		}, []string{finished, refused, finished}},
		"rejected twice": {false, func(t *testing.T, a request.Answers, e schemas.Event, receipt schemas.Receipt) {
			reject(t, a, e, receipt)
			reject(t, a, e, receipt)
		}, []string{refused}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := bustest.New(t)
			a := request.Answers{
				Bus: b, Source: "/test", Now: time.Now, Log: slog.New(slog.DiscardHandler),
				Publish: func(ctx context.Context, e schemas.Event) error {
					_, err := b.Publish(ctx, e)
					return err
				},
				Count: func(string, schemas.ReceiptState) {},
			}
			ask := func(requester string) (schemas.Event, schemas.Receipt) {
				r := schematest.Request(func(r *schemas.Request) { r.Requester = requester })
				bustest.Publish(t, b, schematest.Event(t, "/test/"+requester, r, time.Now(), schemas.Event{}))
				ctx, read := context.WithCancel(t.Context())
				var e schemas.Event
				expect.Must(t, b.FollowRequests(ctx, func(_ context.Context, _ schemas.Event, _ time.Time, of func() schemas.Event) error {
					e = of()
					read()
					return nil
				}))
				return e, schemas.Receipt{Sender: r.Sender, Name: r.Name, Requester: requester, Action: r.Action}
			}
			if c.before {
				e, receipt := ask("ann")
				expect.Must(t, a.Finish(t.Context(), e, receipt, request.NewEnd(schemas.ReceiptDone, "all are gone")))
			}
			e, receipt := ask("bob")
			c.answer(t, a, e, receipt)
			var got []string
			expect.Must(t, b.Events(t.Context(), bus.Query{Channels: []string{receipt.Channel()}, Since: time.Unix(0, 0)},
				func(e schemas.Event) error {
					r, err := schemas.Decode[schemas.Receipt](e)
					got = append(got, fmt.Sprintf("%s: %s %s: %s", r.Requester, r.State, r.Reason, r.Message))
					return err
				}))
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if open, err := b.HasRequest(t.Context(), e); open || err != nil {
				t.Errorf("the rejected request is open: %v, %v", open, err)
			}
		})
	}
}
