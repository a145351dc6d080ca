package request

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// Bus is the part of the bus with requests and receipts.
type Bus interface {
	// Receipt returns the last receipt for a sender and a name, or the zero Event if there is none.
	Receipt(ctx context.Context, sender, name string) (schemas.Event, error)
	// FinishedReceipt returns the last receipt of a finished request for a sender and a name, or the zero Event if there is none.
	FinishedReceipt(ctx context.Context, sender, name string) (schemas.Event, error)
	// DropRequest removes a request. It returns nil if the request does not exist.
	DropRequest(ctx context.Context, e schemas.Event) error
}

// Answers publish the receipts of a role.
type Answers struct {
	Bus     Bus
	Publish func(ctx context.Context, receipt schemas.Event) error
	Count   func(sender string, state schemas.ReceiptState)
	Source  string // the CloudEvents source
	Now     func() time.Time
	Log     *slog.Logger
}

// Last returns the last receipt for a name, or the zero Event if none can be read.
func (a Answers) Last(ctx context.Context, sender, name string) (e schemas.Event, last schemas.Receipt, err error) {
	if e, err = a.Bus.Receipt(ctx, sender, name); err != nil || e.ID == "" {
		return schemas.Event{}, last, err
	}
	if last, err = schemas.Decode[schemas.Receipt](e); err != nil {
		return schemas.Event{}, schemas.Receipt{}, nil //nolint:nilerr // an unreadable receipt is like none
	}
	return e, last, nil
}

// LastBefore is Last, unless the last receipt is a rejection of e and a finished request had the name before. Then it returns the
// receipt of that request: an attempt to reject e was interrupted before it published that receipt again.
func (a Answers) LastBefore(ctx context.Context, e schemas.Event, sender, name string) (schemas.Event, schemas.Receipt, error) {
	before, last, err := a.Last(ctx, sender, name)
	if err != nil || last.State != schemas.RequestRejected || before.CausationID != e.ID {
		return before, last, err
	}
	was, err := a.Bus.FinishedReceipt(ctx, sender, name)
	if err != nil || was.ID == "" {
		return before, last, err
	}
	finished, err := schemas.Decode[schemas.Receipt](was)
	if err != nil {
		return before, last, nil //nolint:nilerr // an unreadable receipt is like none
	}
	return was, finished, nil
}

// Send publishes a receipt for the request of the event.
func (a Answers) Send(ctx context.Context, e schemas.Event, receipt schemas.Receipt) error {
	out, err := Receipt(a.Source, receipt, a.Now(), e)
	if err != nil {
		return err
	}
	if err := a.Publish(ctx, out); err != nil {
		return fmt.Errorf("receipt for request %s: %w", e.ID, err)
	}
	a.Count(receipt.Sender, receipt.State)
	return nil
}

// Close publishes the last receipt for a request, and drops the request.
func (a Answers) Close(ctx context.Context, e schemas.Event, last schemas.Receipt) error {
	if err := a.Send(ctx, e, last); err != nil {
		return err
	}
	return a.Bus.DropRequest(ctx, e)
}

// Reject closes a request without doing anything. If a finished request has the same name, its receipt stays the last one of the
// name. Otherwise a rejection would free the name, and a repetition of the finished request would run again.
func (a Answers) Reject(ctx context.Context, e schemas.Event, receipt schemas.Receipt, no *End) error {
	before, last, err := a.LastBefore(ctx, e, receipt.Sender, receipt.Name)
	finished := last.State == schemas.RequestFinished
	switch {
	case err != nil:
		return err
	case finished && before.CausationID == e.ID: // by an attempt that did not drop the request
		return a.Bus.DropRequest(ctx, e)
	}
	receipt.State, receipt.Reason, receipt.Message = schemas.RequestRejected, no.Reason, no.Message
	a.Log.Info("request rejected", "sender", receipt.Sender, "name", receipt.Name, "reason", no.Reason, "message", no.Message)
	if err := a.Send(ctx, e, receipt); err != nil {
		return err
	}
	if finished {
		return a.Close(ctx, e, last)
	}
	return a.Bus.DropRequest(ctx, e)
}

// DropRejected drops a request that a previous leader has rejected. That leader may have ended before it published the receipt of
// the finished request with the same name again.
func (a Answers) DropRejected(ctx context.Context, e schemas.Event, sender, name string) error {
	_, last, err := a.LastBefore(ctx, e, sender, name)
	if err != nil {
		return err
	}
	if last.State == schemas.RequestFinished {
		return a.Close(ctx, e, last)
	}
	return a.Bus.DropRequest(ctx, e)
}

// Finish closes a request that is done, canceled, or given up.
func (a Answers) Finish(ctx context.Context, e schemas.Event, receipt schemas.Receipt, end *End) error {
	receipt.State, receipt.Reason, receipt.Message = schemas.RequestFinished, end.Reason, end.Message
	return a.Close(ctx, e, receipt)
}

// Repeat answers a request that has the name of a finished one, whose receipt is last. It repeats that receipt and does nothing
// else. Users share the sender http, so a request over HTTP must also have the same user and content. Another one is rejected.
func (a Answers) Repeat(ctx context.Context, e schemas.Event, receipt, last schemas.Receipt) error {
	if last.Fingerprint != receipt.Fingerprint {
		return a.Reject(ctx, e, receipt, NewEnd(schemas.ReceiptConflict, "a finished request has this name: choose another"))
	}
	return a.Close(ctx, e, last)
}
