package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// handAgain says when an answer that could not be handled is handed over again.
func handAgain() backoff { return backoff{first: 200 * time.Millisecond, most: 10 * time.Second} }

// FollowIntents hands over every answer of the table, oldest first, and then each new one as it is written, one at a
// time, until ctx ends. Then it returns nil.
//
// After a loss of the connection, or of anything else in between, it begins with the whole table again: an answer can
// be handed over more than once, and one that was replaced or dropped in the meantime never. The Sequence of the event
// is that of the table.
//
// handle returns nil when it has taken the answer over. With an error that wraps [schemas.ErrInvalid], the answer goes
// to the dead letters and is dropped from the table; so does a message that is no event at all. After any other error
// the answer is handed over again after a growing delay, up to 10 s, unless a newer one has come; others are not held
// up. The context of handle is ctx.
func (b *Bus) FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error {
	undisturbed := func(e schemas.Event) error { return handle(ctx, e) } // by the loss of the connection
	b.forever(ctx, "answers", func(ctx context.Context) error {
		r, err := b.read(ctx, StreamIntents, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
		if err != nil {
			return err
		}
		defer r.close()
		t := table{bus: b, handle: undisturbed, again: make(map[string]row)}
		for {
			if err := t.step(ctx, r); err != nil {
				return err
			}
		}
	})
	return nil
}

// table is one pass of [Bus.FollowIntents].
type table struct {
	bus    *Bus
	handle func(schemas.Event) error
	again  map[string]row // answers to hand over again, by channel
}

// row is one answer, and how often handling it has failed.
type row struct {
	letter   letter
	failures int
	due      time.Time
}

// step handles the next answer that comes, or one that is due again.
func (t *table) step(ctx context.Context, r *reader) error {
	wait, cancel := ctx, context.CancelFunc(func() {})
	first, due := t.first()
	if due {
		wait, cancel = context.WithDeadline(ctx, first.due)
	}
	defer cancel()
	m, meta, err := r.next(wait)
	switch {
	case due && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		t.take(ctx, first)
		return nil
	case err != nil:
		return err
	}
	t.take(ctx, row{letter: letterOf(m, meta)})
	return nil
}

// first is the answer that is due first, if any is to be handed over again.
func (t *table) first() (first row, found bool) {
	for _, r := range t.again {
		if !found || r.due.Before(first.due) {
			first, found = r, true
		}
	}
	return first, found
}

// take hands an answer over and sees to what comes of it.
func (t *table) take(ctx context.Context, r row) {
	delete(t.again, r.letter.Subject)
	err := t.try(ctx, r.letter)
	if err == nil || ctx.Err() != nil {
		return
	}
	r.failures++
	r.due = time.Now().Add(handAgain().after(r.failures))
	t.again[r.letter.Subject] = r
	t.bus.log.Warn("an answer could not be handled, trying again",
		"channel", r.letter.Subject, "failures", r.failures, "error", err)
}

func (t *table) try(ctx context.Context, l letter) error {
	e, err := l.event()
	if err == nil {
		err = t.handle(e)
	}
	if !errors.Is(err, schemas.ErrInvalid) {
		return err
	}
	if err := t.bus.bury(ctx, l, t.bus.name, err); err != nil {
		return err
	}
	return t.bus.DropIntents(ctx, schemas.Event{Channel: l.Subject, Sequence: l.Sequence})
}

// DropIntents takes the answer e, as [Bus.FollowIntents] handed it over, out of the table. It does nothing when the
// answer is gone already or a newer one has taken its place.
func (b *Bus) DropIntents(ctx context.Context, e schemas.Event) error {
	if err := b.drop(ctx, StreamIntents, e.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("drop answer %s on %s: %w", e.ID, e.Channel, err)
	}
	return nil
}

// drop deletes a message of a stream. The error is [jetstream.ErrMsgNotFound] when it is not there.
func (b *Bus) drop(ctx context.Context, name string, sequence uint64) error {
	if !b.nc.IsConnected() {
		return b.link.disconnected()
	}
	began := time.Now()
	stream, err := b.stream(ctx, name)
	if err != nil {
		return b.explain(began, err)
	}
	err = stream.DeleteMsg(ctx, sequence)
	if !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return b.explain(began, err)
	}
	// The client gives the server's reason only as text, so ask whether the reason is that there is nothing to delete.
	_, getErr := stream.GetMsg(ctx, sequence)
	if errors.Is(getErr, jetstream.ErrMsgNotFound) {
		return getErr
	}
	return b.explain(began, errors.Join(err, getErr))
}

// letter is a message of a stream as it is, whether or not it can be read.
type letter struct {
	Stream   string
	Subject  string
	Sequence uint64
	Stored   time.Time
	Header   nats.Header
	Data     []byte
}

func letterOf(m jetstream.Msg, meta *jetstream.MsgMetadata) letter {
	return letter{
		Stream: meta.Stream, Subject: m.Subject(), Sequence: meta.Sequence.Stream, Stored: meta.Timestamp,
		Header: m.Headers(), Data: m.Data(),
	}
}

// event reads the letter.
func (l letter) event() (schemas.Event, error) {
	e, err := decode(l.Header, l.Data)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("%s at %d of %s: %w", l.Subject, l.Sequence, l.Stream, err)
	}
	e.Channel, e.Sequence = l.Subject, l.Sequence
	return e, nil
}
