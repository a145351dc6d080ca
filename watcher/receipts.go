package watcher

import (
	"context"
	"fmt"

	req "github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// answer stores a receipt for the request of the event.
func (r *requests) answer(ctx context.Context, e schemas.Event, receipt schemas.Receipt) error {
	out, err := req.Receipt(r.l.w.config.Source, receipt, r.l.w.now(), e)
	if err != nil {
		return err
	}
	if err := r.l.w.config.Bus.PublishAll(ctx, []schemas.Event{out}); err != nil {
		return fmt.Errorf("receipt for request %s: %w", e.ID, err)
	}
	r.count(receipt.Sender, receipt.State)
	return nil
}

// reject answers that nothing is done, and drops the request.
func (r *requests) reject(ctx context.Context, e schemas.Event, answer schemas.Receipt, no *objection) error {
	answer.State, answer.Reason, answer.Message = schemas.RequestRejected, no.Reason, no.Message
	r.l.w.log.Info("request rejected", "sender", answer.Sender, "name", answer.Name, "reason", no.Reason, "message", no.Message)
	return r.close(ctx, e, answer)
}

// close gives the last answer to a request, and drops it.
func (r *requests) close(ctx context.Context, e schemas.Event, last schemas.Receipt) error {
	if err := r.answer(ctx, e, last); err != nil {
		return err
	}
	return r.bus.DropRequest(ctx, e)
}

// receipt reads the last receipt for a name. ok is false when there is none that can be read.
func (r *requests) receipt(ctx context.Context, sender, name string) (e schemas.Event, last schemas.Receipt, ok bool, err error) {
	e, err = r.bus.Receipt(ctx, sender, name)
	if err != nil || e.ID == "" {
		return e, last, false, err
	}
	last, err = schemas.Decode[schemas.Receipt](e)
	return e, last, err == nil, nil
}

// repeat answers a request whose name was used by one that is finished: it is the same request, and nothing more is done. Over
// HTTP all users share a sender, so that it is the same only if user and content are; else it is rejected.
func (r *requests) repeat(ctx context.Context, e schemas.Event, answer schemas.Receipt) (done bool, err error) {
	before, last, ok, err := r.receipt(ctx, answer.Sender, answer.Name)
	switch {
	case err != nil || !ok || last.State != schemas.RequestFinished:
		return false, err
	case before.CausationID == e.ID: // it was answered, and not dropped
		return true, r.bus.DropRequest(ctx, e)
	case last.Fingerprint != answer.Fingerprint:
		return true, r.reject(ctx, e, answer, refuse(schemas.ReceiptConflict, "a finished request has this name: choose another"))
	}
	return true, r.close(ctx, e, last)
}
