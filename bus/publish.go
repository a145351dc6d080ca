package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	handover "github.com/rehome-dev/rehome/schemas/delivery"
)

const (
	// ackWithin is how long one publish waits for the server.
	ackWithin = 5 * time.Second
	// silence is after what time without word a message is sent again, and then after twice that. It was lost if the
	// leader of its stream was just stopped; a disk takes 20 ms.
	silence = time.Second
	// inFlight is how many events [Bus.PublishAll] sends before it waits, so that the disk is never idle.
	inFlight = 256
	// allWithin is how long each of these may take: a slow disk needs 20 ms for one, and so 5 s for the last of them.
	allWithin = 15 * time.Second
)

// Publish stores e on its channel and returns the number that its stream gave it.
//
// It fails with an error that wraps [schemas.ErrInvalid] when e cannot be published as it is, being incomplete or too
// large; trying again would not help. It fails at once when there is no connection, with [ErrNotPermitted] when the server
// does not let this role publish there, and when nothing is heard of the server until ctx ends, or for 5 seconds. Then e may
// have been stored all the same; publishing it again is safe: a delta, a verdict, a request, a receipt or a maintenance is
// stored once within 2 minutes, a scope takes the place of its first copy.
//
// Of a request the error wraps [ErrOpen] when one of its name is open, and [ErrFull] when there is no room for it.
func (b *Bus) Publish(ctx context.Context, e schemas.Event) (sequence uint64, err error) {
	m, err := message(e)
	if err != nil {
		return 0, err
	}
	ack, err := b.publish(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("publish event %s on %s: %w", e.ID, e.Channel, err)
	}
	return ack.Sequence, nil
}

// PublishAll stores many events, sending one while others are being stored. Events of one channel are stored in the
// order given, as long as none fails. The error joins one for each event that is not known to be stored, a
// *delivery.Undelivered around one of the kinds that [Bus.Publish] returns.
func (b *Bus) PublishAll(ctx context.Context, events []schemas.Event) error {
	var errs []error
	for len(events) > 0 {
		n := min(inFlight, len(events))
		errs = append(errs, b.publishSome(ctx, events[:n])...)
		events = events[n:]
	}
	return errors.Join(errs...)
}

func (b *Bus) publishSome(ctx context.Context, events []schemas.Event) (errs []error) {
	began := time.Now()
	fail := func(e schemas.Event, err error) {
		err = fmt.Errorf("publish event %s on %s: %w", e.ID, e.Channel, b.publishError(ctx, e.Channel, err))
		errs = append(errs, &handover.Undelivered{ID: e.ID, Err: b.explain(began, err)})
	}
	acks, permissions := make([]jetstream.PubAckFuture, len(events)), make([]context.Context, len(events))
	for i, e := range events {
		m, err := message(e)
		if err != nil {
			errs = append(errs, &handover.Undelivered{ID: e.ID, Err: err})
			continue
		}
		if !b.nc.IsConnected() {
			fail(e, ErrNotConnected)
			continue
		}
		guarded, done := b.link.guard(ctx, e.Channel)
		defer done()
		permissions[i] = guarded
		if acks[i], err = b.js.PublishMsgAsync(m); err != nil {
			fail(e, err)
		}
	}
	for i, ack := range acks {
		if ack == nil {
			continue
		}
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			fail(events[i], err)
		case <-permissions[i].Done():
			fail(events[i], because(permissions[i], permissions[i].Err()))
		}
	}
	return errs
}

// publish sends one message and waits until it is stored. It sends it again when nothing is heard of it, so storing it
// twice must do no harm.
func (b *Bus) publish(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if !b.nc.IsConnected() { // otherwise it would be sent when the connection is back, long after this call has failed
		return nil, b.link.disconnected()
	}
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	began := time.Now()
	for wait := silence; ; wait *= 2 {
		once, cancel := context.WithTimeout(ctx, wait)
		ack, err := b.js.PublishMsg(once, m, o...)
		cancel()
		if err == nil {
			return ack, nil
		}
		unheard := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		if !unheard || !b.nc.IsConnected() || b.link.deniedSince(began) != nil {
			return nil, b.explain(began, b.publishError(ctx, m.Subject, err))
		}
	}
}

// message is e ready to be sent. Those of the history and requests carry an ID by which their stream recognises a second
// copy. Scopes must not: their stream forgets nothing of an ID when it forgets the scope. Answers have their own order.
func message(e schemas.Event) (*nats.Msg, error) {
	m, err := encode(e)
	if err != nil {
		return nil, err
	}
	if e.Channel == "" || strings.ContainsAny(e.Channel, " \t\r\n*>") {
		return nil, fmt.Errorf("publish event %s: %w: channel %q", e.ID, schemas.ErrInvalid, e.Channel)
	}
	if stream := streamOf(e.Channel); stream == StreamEvents || stream == StreamRequests {
		m.Header.Set(jetstream.MsgIDHeader, cloudevent.HeaderValue(e.Source+"|"+e.ID))
	}
	return m, nil
}

// hasPrefix says whether a channel is one of those that a filter ending in > matches.
func hasPrefix(channel, filter string) bool {
	return strings.HasPrefix(channel, strings.TrimSuffix(filter, ">"))
}

// publishError names the kind of an error of the NATS client.
func (b *Bus) publishError(ctx context.Context, channel string, err error) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w, which is %d bytes", schemas.ErrInvalid, err, b.nc.MaxPayload())
	case errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum), errors.Is(err, nats.ErrBadSubject):
		return fmt.Errorf("%w: %w", schemas.ErrInvalid, err)
	case streamOf(channel) == StreamRequests && refused(err) != nil:
		return refused(err)
	case !errors.Is(err, jetstream.ErrNoStreamResponse) && !errors.Is(err, nats.ErrNoResponders):
		return err
	}
	stream := streamOf(channel)
	if stream == "" {
		return fmt.Errorf("%w: no stream takes this channel", schemas.ErrInvalid)
	}
	if _, missing := b.js.Stream(ctx, stream); errors.Is(missing, jetstream.ErrStreamNotFound) {
		return notSetUp("stream "+stream, missing)
	}
	return fmt.Errorf("stream %s has no leader at this moment: %w", stream, err)
}

// streamOf is the stream that takes a channel. Empty: there is none.
func streamOf(channel string) string {
	switch {
	case hasPrefix(channel, ScopeChannels):
		return StreamScopes
	case hasPrefix(channel, IntentsChannels):
		return StreamIntents
	case hasPrefix(channel, DeltaChannels), hasPrefix(channel, VerdictChannels), hasPrefix(channel, ReceiptChannels),
		hasPrefix(channel, MaintenanceChannels):
		return StreamEvents
	case hasPrefix(channel, RequestChannels):
		return StreamRequests
	case hasPrefix(channel, DeadChannels):
		return StreamDead
	case strings.HasPrefix(channel, ledgerSubjects):
		return StreamLedger
	case strings.HasPrefix(channel, maintenanceSubjects):
		return StreamMaintenances
	}
	return ""
}
