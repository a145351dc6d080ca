package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// FollowRequests hands over every open request, oldest first, and then each new one, one at a time, until ctx ends. Then it
// returns nil. stored is when the server stored it, by the server's clock.
//
// After a loss of the connection, or of anything else in between, it begins with the whole table again: a request can be
// handed over more than once, and one that was dropped in the meantime never. The Sequence of the event is that of the table.
//
// Of the event only Channel and Sequence are known until handle calls read, which returns all of it: what is dropped unread
// costs next to nothing, however large it is when it is unpacked. A message that is no event is handed over too, since
// whoever sent it waits for an answer: as an event without a type, with the body as it is and an ID of its own, which is the
// same every time. One that comes to more than 1 MiB when it is unpacked is none.
//
// handle returns nil when it has taken the request over. After an error it is handed over again after a growing delay, up to
// 10 s; others are not held up. The context of handle is ctx.
func (b *Bus) FollowRequests(
	ctx context.Context, handle func(ctx context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error,
) error {
	b.followTable(ctx, StreamRequests, "a request", func(_ context.Context, l letter) error {
		return handle(ctx, schemas.Event{Channel: l.Subject, Sequence: l.Sequence}, l.Stored, l.request)
	})
	return nil
}

// request reads a letter that is a request.
func (l letter) request() schemas.Event {
	e, err := l.eventOf(mostRequest)
	if err != nil {
		id := fmt.Sprintf("%s.%d", strings.ToLower(StreamRequests), l.Sequence)
		e = schemas.Event{ID: id, CorrelationID: id, Channel: l.Subject, Sequence: l.Sequence, Data: l.Data}
	}
	return e
}

// DropRequest takes the request e, as [Bus.FollowRequests] handed it over, out of the table. It does nothing when it is gone
// already.
func (b *Bus) DropRequest(ctx context.Context, e schemas.Event) error {
	if err := b.drop(ctx, StreamRequests, e.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("drop request %s on %s: %w", e.ID, e.Channel, err)
	}
	return nil
}

// HasRequest says whether the request e, as [Bus.FollowRequests] handed it over, is still open.
func (b *Bus) HasRequest(ctx context.Context, e schemas.Event) (bool, error) {
	m, err := b.last(ctx, StreamRequests, e.Channel)
	if err != nil {
		return false, fmt.Errorf("look for the request on %s: %w", e.Channel, err)
	}
	return m != nil && m.Sequence == e.Sequence, nil
}

// Receipt reads the last receipt for a sender and a name from the history. The zero Event: there is none, or it is no event.
func (b *Bus) Receipt(ctx context.Context, sender, name string) (schemas.Event, error) {
	channel := schemas.Receipt{Sender: sender, Name: name}.Channel()
	m, err := b.last(ctx, StreamEvents, channel)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("read the receipt on %s: %w", channel, err)
	}
	if m == nil {
		return schemas.Event{}, nil
	}
	e, err := decode(m.Header, m.Data)
	if err != nil {
		b.log.Warn("a receipt of the history cannot be read", "channel", channel, "error", err)
		return schemas.Event{}, nil
	}
	e.Channel, e.Sequence = m.Subject, m.Sequence
	return e, nil
}

// AcceptedRequest reads an open request as its sender stored it, and the receipt with which the watcher accepted it. Only the
// sender can publish the one, and only the watcher the other. ok is false if there is no such request, or if it has another
// last receipt.
func (b *Bus) AcceptedRequest(
	ctx context.Context, sender, name string,
) (request schemas.Request, accepted schemas.Receipt, ok bool, err error) {
	told, err := b.Receipt(ctx, sender, name)
	if err != nil || told.ID == "" {
		return request, accepted, false, err
	}
	accepted, err = schemas.Decode[schemas.Receipt](told)
	if err != nil || accepted.State != schemas.RequestAccepted {
		return request, accepted, false, nil // the watcher writes no receipt that cannot be read
	}
	m, err := b.last(ctx, StreamRequests, schemas.Request{Sender: sender, Name: name}.Channel())
	if err != nil {
		return request, accepted, false, fmt.Errorf("read request %s of %s: %w", name, sender, err)
	}
	if m == nil {
		return request, accepted, false, nil
	}
	e := letter{Stream: StreamRequests, Subject: m.Subject, Sequence: m.Sequence, Header: m.Header, Data: m.Data}.request()
	request, err = schemas.Decode[schemas.Request](e)
	return request, accepted, err == nil && e.ID == told.CausationID, nil
}

// refused names the kind of the error by which the server does not take a request. nil: it is of no such kind. The server
// has one code for all of them, and tells them apart by words.
func refused(err error) error {
	var refusal *jetstream.APIError
	if !errors.As(err, &refusal) {
		return nil
	}
	switch {
	case strings.Contains(refusal.Description, "messages per subject exceeded"):
		return fmt.Errorf("%w: %w", ErrOpen, err)
	case strings.Contains(refusal.Description, "maximum messages exceeded"),
		strings.Contains(refusal.Description, "maximum bytes exceeded"):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return nil
}
