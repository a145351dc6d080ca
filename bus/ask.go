package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// The headers of a function that has no answer. [HeaderError] has the reason, for users.
const (
	// HeaderRetryAfter has a number of seconds. It is set if a retry after that time can succeed.
	HeaderRetryAfter = "Retry-After"
	// headerServiceError is the error header of the NATS services framework. It has no delay.
	headerServiceError = "Nats-Service-Error"
)

// mostSaid limits the quotation from a response without an answer, in bytes.
const mostSaid = 200

// attributesRoom is the space in a message that is reserved for the headers of an event.
const attributesRoom = 8 << 10

// Ask sends e to the function that listens on a subject, in the binary mode of the CloudEvents NATS binding, and returns the
// event in its response, which can have any mode. has is false if the response is empty. A body that does not fit into a message
// is compressed, with the header Content-Encoding: gzip. ctx limits the wait; without a deadline Ask waits until the connection
// is lost.
//
// Errors are the errors of package delivery: delivery.ErrUnreachable if no function listens on the subject or answers before the
// deadline of ctx; delivery.ErrUnauthorized if the server does not let this client publish there; a *delivery.Later if the
// response has the headers Rehome-Error and Retry-After; and an error that wraps [schemas.ErrInvalid] if it has only the first
// header or is not an event, or if e is invalid or too large. Ask returns [ErrNotConnected] without a connection, and the error
// of ctx after a cancellation.
func (b *Bus) Ask(ctx context.Context, subject string, e schemas.Event) (reply schemas.Event, has bool, err error) {
	if !b.nc.IsConnected() {
		return schemas.Event{}, false, b.health.disconnected()
	}
	if subject == "" || strings.ContainsAny(subject, " \t\r\n*>") {
		return schemas.Event{}, false, fmt.Errorf("ask: %w: subject %q", schemas.ErrInvalid, subject)
	}
	e.Channel = subject
	m, err := encode(e, int(b.nc.MaxPayload())-attributesRoom)
	if err != nil {
		return schemas.Event{}, false, err
	}
	began := time.Now()
	answer, err := b.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return schemas.Event{}, false, b.unanswered(ctx, began, subject, err)
	}
	if reply, has, err = readReply(answer, time.Now()); err != nil {
		return schemas.Event{}, false, fmt.Errorf("answer on %s: %w", subject, err)
	}
	return reply, has, nil
}

// unanswered returns the reason for a missing answer, from the error of the NATS client.
func (b *Bus) unanswered(ctx context.Context, began time.Time, subject string, err error) error {
	switch {
	case b.health.deniedSince(began) != nil:
		return fmt.Errorf("ask on %s: %w: %w", subject, delivery.ErrUnauthorized, b.health.deniedSince(began))
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no function listens on %s", delivery.ErrUnreachable, subject)
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject):
		return fmt.Errorf("ask on %s: %w: %w", subject, schemas.ErrInvalid, err)
	case errors.Is(err, context.DeadlineExceeded) && b.nc.IsConnected():
		return fmt.Errorf("%w: no function answers on %s in time", delivery.ErrUnreachable, subject)
	case ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("ask on %s: %w", subject, ctx.Err())
	}
	return b.explain(began, fmt.Errorf("ask on %s: %w", subject, err))
}

// readReply reads a response that arrived at the time now.
func readReply(m *nats.Msg, now time.Time) (e schemas.Event, has bool, err error) {
	v, err := headers(m.Header, HeaderError, HeaderRetryAfter, headerServiceError, cloudevent.HeaderPrefix+"specversion", contentHeader)
	if err != nil {
		return e, false, fmt.Errorf("%w: %w", schemas.ErrInvalid, err)
	}
	why, after, service, version, content := v[0], v[1], v[2], v[3], v[4]
	if why == "" && service != "" {
		why, after = service, "0"
	}
	switch {
	case why != "" && after != "":
		return e, false, &delivery.Later{After: delivery.ReadAfter(after, now), Err: errors.New(line(why, mostSaid))}
	case why != "":
		return e, false, fmt.Errorf("%w: %s", schemas.ErrInvalid, line(why, mostSaid))
	case len(m.Data) == 0 && version == "" && content == "":
		return e, false, nil
	}
	e, err = decode(m.Header, m.Data, maxData)
	return e, err == nil, err
}
