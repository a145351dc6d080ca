package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

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
	b.followTable(ctx, StreamIntents, "an answer", func(connected context.Context, l letter) error {
		e, err := l.event()
		if err == nil {
			err = handle(ctx, e) // undisturbed by the loss of the connection
		}
		if !errors.Is(err, schemas.ErrInvalid) {
			return err
		}
		if err := b.bury(connected, l, b.name, err); err != nil {
			return err
		}
		return b.DropIntents(connected, schemas.Event{Channel: l.Subject, Sequence: l.Sequence})
	})
	return nil
}

// DropIntents takes the answer e, as [Bus.FollowIntents] handed it over, out of the table. It does nothing when the
// answer is gone already or a newer one has taken its place.
func (b *Bus) DropIntents(ctx context.Context, e schemas.Event) error {
	if err := b.drop(ctx, StreamIntents, e.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("drop answer %s on %s: %w", e.ID, e.Channel, err)
	}
	return nil
}

// Intents reads the intents message that the table has on a channel. The zero Event: there is none. One that cannot be read has
// nothing but its sequence.
func (b *Bus) Intents(ctx context.Context, channel string) (schemas.Event, error) {
	e, err := b.row(ctx, channel)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("read intents on %s: %w", channel, err)
	}
	return e, nil
}

// IntentsSequence is the number of the last intents message that was stored. A message that is stored later has a higher one,
// also after the stream was lost and made anew.
func (b *Bus) IntentsSequence(ctx context.Context) (uint64, error) {
	if !b.nc.IsConnected() {
		return 0, b.link.disconnected()
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, ackWithin)
	defer cancel()
	s, err := b.js.Stream(ctx, StreamIntents)
	if err != nil {
		return 0, b.explain(began, notSetUp("stream "+StreamIntents, err))
	}
	return s.CachedInfo().State.LastSeq, nil
}
