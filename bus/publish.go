package bus

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

const (
	// ackWithin limits one publish.
	ackWithin = 5 * time.Second
	// silence is how long a publish waits before it sends a message again, and then twice that. A stopping stream
	// leader loses messages; a disk needs 20 ms.
	silence = time.Second
	// inFlight is how many events [Bus.PublishAll] sends before it waits, so that the disk is never idle.
	inFlight = 256
	// allWithin limits each of these events: a slow disk needs 20 ms for one, and so 5 s for the last one.
	allWithin = 15 * time.Second
	// answerTries limits how often an answer is compared again because another one came in between. Each time one
	// writer wins.
	answerTries = 16
)

// errSuperseded means that the table changed between a read and a write.
var errSuperseded = errors.New("another answer was stored meanwhile")

// Publish stores e on its channel and returns its sequence: for a scope or intents, the number that readers see.
//
// The error wraps [schemas.ErrInvalid] if e is incomplete or too large, and [ErrNotPermitted] if this role has no right
// to publish it. Publish fails at once without a connection, and after 5 seconds without an answer. The server may have
// stored e nevertheless; publishing it again is safe: it stores events of the history and requests once within 2
// minutes, and a scope replaces its first copy.
//
// The error of a request wraps [ErrOpen] if one with its name is open, and [ErrFull] if too many are.
func (b *Bus) Publish(ctx context.Context, e schemas.Event) (sequence uint64, err error) {
	m, err := b.message(e)
	if err != nil {
		return 0, err
	}
	ack, err := b.publish(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("publish event %s on %s: %w", e.ID, e.Channel, err)
	}
	b.emitted(e)
	if stream := streamOf(e.Channel); stream == StreamScopes || stream == StreamIntents {
		s, err := b.open(ctx, stream)
		if err != nil {
			return 0, err
		}
		return ack.Sequence + epoch(s.CachedInfo()), nil
	}
	return ack.Sequence, nil
}

// PublishAll stores many events, and sends one while the server stores others. It keeps the order of the events of one
// channel, as long as none fails, and sends none after ctx has ended. The error joins a *delivery.Undelivered for each
// event that may not be stored, around an error of [Bus.Publish].
func (b *Bus) PublishAll(ctx context.Context, events []schemas.Event) error {
	var stored []schemas.Event
	var errs []error
	for some := range slices.Chunk(events, inFlight) {
		began := time.Now()
		fail := func(e schemas.Event, err error) {
			err = fmt.Errorf("publish event %s on %s: %w", e.ID, e.Channel, b.publishError(ctx, e.Channel, err))
			errs = append(errs, &delivery.Undelivered{ID: e.ID, Err: b.explain(began, err)})
		}
		acks := make([]jetstream.PubAckFuture, len(some))
		for i, e := range some {
			m, err := b.message(e)
			if err != nil {
				errs = append(errs, &delivery.Undelivered{ID: e.ID, Err: err})
				continue
			}
			switch {
			case ctx.Err() != nil: // the caller may not lead anymore
				err = ctx.Err()
			case !b.nc.IsConnected():
				err = ErrNotConnected
			default:
				acks[i], err = b.js.PublishMsgAsync(m)
			}
			if err != nil {
				fail(e, err)
			}
		}
		for i, ack := range acks {
			if ack == nil {
				continue
			}
			select {
			case <-ack.Ok():
				stored = append(stored, some[i])
			case err := <-ack.Err():
				fail(some[i], err)
			case <-ctx.Done():
				fail(some[i], ctx.Err())
			}
		}
	}
	b.emitted(stored...)
	return errors.Join(errs...)
}

// publish sends one message and waits until it is stored. It sends it again if the server does not answer, so storing
// it twice must be harmless.
func (b *Bus) publish(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if !b.nc.IsConnected() { // otherwise the client would send it when the connection is back, long after this call has failed
		return nil, b.health.disconnected()
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
		silent := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		if !silent || !b.nc.IsConnected() || b.health.deniedSince(began) != nil {
			return nil, b.explain(began, b.publishError(ctx, m.Subject, err))
		}
	}
}

// message encodes e. Events of the history and requests have a message ID, and their stream drops a second copy with the same ID.
// Scopes have none, because their stream remembers an ID longer than the scope. Intents are ordered by their sequence.
func (b *Bus) message(e schemas.Event) (*nats.Msg, error) {
	e.Installation = cmp.Or(b.installation.Load().ID(), e.Installation)
	m, err := encode(e, compressAbove)
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

// publishError classifies an error of the NATS client.
func (b *Bus) publishError(ctx context.Context, channel string, err error) error {
	stream := streamOf(channel)
	var refusal *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w, which is %d bytes", schemas.ErrInvalid, err, b.nc.MaxPayload())
	case errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum), errors.Is(err, nats.ErrBadSubject):
		return fmt.Errorf("%w: %w", schemas.ErrInvalid, err)
	case stream == StreamRequests && errors.As(err, &refusal): // the server has one code, and distinguishes the reasons by words
		switch text := refusal.Description; {
		case strings.Contains(text, "messages per subject exceeded"):
			return fmt.Errorf("%w: %w", ErrOpen, err)
		case strings.Contains(text, "maximum messages exceeded"), strings.Contains(text, "maximum bytes exceeded"):
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
		return err
	case !errors.Is(err, jetstream.ErrNoStreamResponse) && !errors.Is(err, nats.ErrNoResponders):
		return err
	case stream == "":
		return fmt.Errorf("%w: no stream takes this channel", schemas.ErrInvalid)
	}
	if _, missing := b.js.Stream(ctx, stream); errors.Is(missing, jetstream.ErrStreamNotFound) {
		return notSetUp("stream "+stream, missing)
	}
	return fmt.Errorf("stream %s has no leader at this moment: %w", stream, err)
}

// Answer stores the intents message a in the event e in the table. It stores nothing, and returns nil, if the table has
// the answer to a newer scope of the same key, or this answer, or if neither has intents. Answers may race; the one to
// the newest scope remains.
//
// The table does not know answers that were not stored or were dropped, so an older one could follow. If several
// processes work on one strategy, they call [Bus.Current] first.
//
// Errors are errors of [Bus.Publish]. Calling it again is safe.
func (b *Bus) Answer(ctx context.Context, e schemas.Event, a schemas.Intents) error {
	_, err := b.insert(ctx, StreamIntents, e.Channel, func(last *letter) (*nats.Msg, error) {
		if !wanted(last, e, a) { // which is most of them
			return nil, nil
		}
		return b.message(e)
	})
	if err != nil {
		return fmt.Errorf("answer scope %s on %s: %w", a.Scope.Event, e.Channel, err)
	}
	b.emitted(e) // even if it was not needed: it was handled
	return nil
}

// wanted reports whether to overwrite the stored answer with the answer a in the event e.
func wanted(stored *letter, e schemas.Event, a schemas.Intents) bool {
	if stored == nil {
		return len(a.Intents) > 0
	}
	was, err := stored.event()
	if err != nil { // it is replaced like the answer to the oldest scope; otherwise the actuator buries it
		return true
	}
	old, err := schemas.Decode[schemas.Intents](was)
	switch {
	case err != nil:
		return true
	case old.Scope.Sequence > a.Scope.Sequence:
		return false
	case old.Scope.Sequence == a.Scope.Sequence && bytes.Equal(was.Data, e.Data):
		return false
	}
	return len(a.Intents)+len(old.Intents) > 0
}

// insert publishes the message that next makes from the last one of a channel, which may be nil, and returns its
// sequence. It calls next again if another message came in between. If next returns no message, insert publishes
// nothing.
func (b *Bus) insert(
	ctx context.Context, stream, channel string, next func(last *letter) (*nats.Msg, error),
) (sequence uint64, err error) {
	for range answerTries {
		last, err := b.last(ctx, stream, channel)
		if err != nil {
			return 0, err
		}
		m, err := next(last)
		if m == nil || err != nil {
			return 0, err
		}
		after := uint64(0)
		if last != nil {
			after = last.Sequence
		}
		ack, err := b.publish(ctx, m, jetstream.WithExpectLastSequencePerSubject(after))
		if err == nil {
			return ack.Sequence, nil
		}
		if !isRefusal(err, server.JSStreamWrongLastSequenceErrF, server.JSStreamWrongLastSequenceConstantErr) {
			return 0, err
		}
	}
	return 0, errSuperseded
}

// Current reports whether a scope from [Bus.Work] still waits for its answer: no newer scope of its key has been
// published, and no other worker has answered it.
func (b *Bus) Current(ctx context.Context, scope schemas.Event) (current bool, err error) {
	return b.has(ctx, StreamScopes, scope)
}

// get reads the message of a stream by its number. The error is [jetstream.ErrMsgNotFound] if it is gone.
func (b *Bus) get(ctx context.Context, name string, number uint64) (*letter, error) {
	s, sequence, err := b.find(ctx, name, number)
	if err != nil {
		return nil, err
	}
	m, err := s.GetMsg(ctx, sequence)
	if err != nil {
		return nil, notSetUp("stream "+name, err)
	}
	return b.js.prefix.rawLetter(name, m, number-sequence), nil
}

// find returns the stream, and the sequence in it of a number. The error is [jetstream.ErrMsgNotFound] if the number is of a
// stream that was lost.
func (b *Bus) find(ctx context.Context, name string, number uint64) (s jetstream.Stream, sequence uint64, err error) {
	s, err = b.open(ctx, name) // which may be another one than before
	if err != nil {
		return nil, 0, err
	}
	from := epoch(s.CachedInfo())
	if number <= from { // the server does not understand the question for 0
		return nil, 0, jetstream.ErrMsgNotFound
	}
	return s, number - from, nil
}

// last reads the last message of a stream on a channel, without its epoch, or returns nil.
func (b *Bus) last(ctx context.Context, name, channel string) (l *letter, err error) {
	err = b.do("last message on "+channel, func() error {
		s, err := b.stream(ctx, name)
		if err != nil {
			return err
		}
		m, err := s.GetLastMsgForSubject(ctx, b.js.prefix.subject(channel))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return notSetUp("stream "+name, err)
		}
		l = b.js.prefix.rawLetter(name, m, 0)
		return nil
	})
	return l, err
}

func (p Prefix) rawLetter(stream string, m *jetstream.RawStreamMsg, epoch uint64) *letter {
	return &letter{
		Stream: stream, Subject: p.cut(m.Subject), Sequence: m.Sequence, epoch: epoch, Stored: m.Time, Header: m.Header, Data: m.Data,
	}
}

// drop deletes the message of a stream by its number. The error is [jetstream.ErrMsgNotFound] if it is gone.
func (b *Bus) drop(ctx context.Context, name string, number uint64) error {
	return b.do("drop", func() error {
		s, sequence, err := b.find(ctx, name, number)
		if err != nil {
			return err
		}
		err = s.DeleteMsg(ctx, sequence)
		if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) { // the client gives the reason only as text: check whether it is gone
			if _, gone := s.GetMsg(ctx, sequence); gone != nil {
				return gone
			}
		}
		return err
	})
}
