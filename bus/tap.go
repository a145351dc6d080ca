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
	return b.Hear(ctx, channels, func(context.Context) error { return nil }, handle)
}

// Hear is [Bus.Tap] for who does something and wants to hear what comes of it. It calls listening once it listens, so that
// nothing is missed of what listening sets off, and again each time that the connection was lost and is back: what was
// published in between was missed. handle does not run meanwhile. It returns the error of listening as it is.
func (b *Bus) Hear(
	ctx context.Context, channels []string, listening func(context.Context) error, handle func(schemas.Event) error,
) error {
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
	var back <-chan struct{} // nil: it is not waited for
	_, lost := b.link.changes()
	if b.nc.IsConnected() { // which the link may be told in a moment
		lost, _ = b.link.wait(ctx)
	}
	if err := listening(ctx); err != nil {
		return err
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
		case <-lost:
			lost = nil
			back, _ = b.link.changes()
		case <-back:
			back = nil
			_, lost = b.link.changes()
			if err := listening(ctx); err != nil {
				return err
			}
		case m := <-messages:
			if err := b.heard(m, handle); err != nil {
				return err
			}
		}
	}
}

// heard hands over what a message carries, or leaves it out when that cannot be read.
func (b *Bus) heard(m *nats.Msg, handle func(schemas.Event) error) error {
	e, err := decode(m.Header, m.Data)
	if errors.Is(err, schemas.ErrInvalid) {
		b.log.Warn("an event cannot be read", "channel", m.Subject, "error", err)
		return nil
	}
	e.Channel = m.Subject
	return handle(e)
}
