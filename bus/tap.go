package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/schemas"
)

// tapBuffer is how many messages a tap may be behind: the scopes of 1,000 nodes that are all evaluated at once.
const tapBuffer = 1024

// Tap hands over what is published on the channels while it listens, one event at a time in the order in which the
// server sent it, until ctx ends; then it returns nil. Channels may hold wildcards and must not overlap. It is the only
// way to see scopes without taking them from the functions that work on them.
//
// It is for looking on, not for deciding: it begins with what comes, has nothing of the past, misses what is published
// while the connection is lost or handle is 1,024 messages behind, and also shows what the stream refused to store. The
// events have no Sequence.
//
// It fails with [ErrNotPermitted] when the server does not let this role listen, and returns the error of handle as it is.
// What cannot be read is logged and left out.
func (b *Bus) Tap(ctx context.Context, channels []string, handle func(schemas.Event) error) error {
	ctx, done := b.link.guard(ctx, channels...)
	defer done()
	messages := make(chan *nats.Msg, tapBuffer)
	for _, channel := range channels {
		s, err := b.nc.ChanSubscribe(channel, messages)
		if err != nil {
			return fmt.Errorf("tap %s: %w", channel, err)
		}
		defer func() { _ = s.Unsubscribe() }() // fails only when the connection has been closed
	}
	for {
		select {
		case <-ctx.Done():
			if err := because(ctx, ctx.Err()); errors.Is(err, ErrNotPermitted) {
				return fmt.Errorf("tap %v: %w", channels, err)
			}
			return nil
		case <-b.link.closed:
			return fmt.Errorf("tap %v: %w", channels, nats.ErrConnectionClosed)
		case m := <-messages:
			e, err := decode(m.Header, m.Data)
			if errors.Is(err, schemas.ErrInvalid) {
				b.log.Warn("an event cannot be read", "channel", m.Subject, "error", err)
				continue
			}
			e.Channel = m.Subject
			if err := handle(e); err != nil {
				return err
			}
		}
	}
}
