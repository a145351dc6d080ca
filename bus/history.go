package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"github.com/rehome-dev/rehome/schemas"
)

// subscribeBuffer is the number of messages that a subscriber may be behind: the scopes of 1,000 nodes that are all evaluated at
// once.
const subscribeBuffer = 1024

// warnedAtOnce is the number of warnings about unreadable messages at once, and warnedAgain is the time until the next one. A
// participant can publish any number of them.
const (
	warnedAtOnce = 20
	warnedAgain  = time.Minute
)

// unreadable logs that a message is not an event of its channel.
func (b *Bus) unreadable(channel string, err error) {
	level := slog.LevelDebug
	if b.warnings.Allow() {
		level = slog.LevelWarn
	}
	b.log.Log(context.Background(), level, "cannot read an event", "channel", channel, "error", err)
}

// Query selects events of the history.
type Query struct {
	// Channels are NATS subjects, with wildcards, that must not overlap. Empty means all of the history.
	Channels []string
	// Since excludes older events. Zero selects everything, or with Follow only events that are stored from now on.
	Since time.Time
	// After excludes events up to this sequence. Zero excludes none. If it is set, Since has no effect.
	After uint64
	// Follow continues with new events.
	Follow bool
}

// history returns the channels of all events of the history.
func history() []string { return append(subjectsOf(StreamEvents), IntentsChannels) }

// Events calls handle with events of the history, one at a time, in the order in which they were stored. The server copies
// intents to the history: they can come after their first verdict, and a message that was replaced before is missing.
//
// Without Follow it returns after the events that the history has. With Follow it returns nil when ctx ends, waits while there is
// no connection, and calls handle once for each event. If the history was lost, it begins at the start of the new one.
//
// It returns the error of handle unchanged. It logs unreadable messages, and events whose type belongs on another channel;
// [Bus.Proofread] and [Bus.FollowIntents] bury them.
func (b *Bus) Events(ctx context.Context, q Query, handle func(schemas.Event) error) error {
	if len(q.Channels) == 0 {
		q.Channels = history()
	}
	s := source{stream: StreamEvents, channels: q.Channels, since: q.Since, after: q.After}
	var refused error
	take := func(l letter) error {
		e, err := l.event()
		if err != nil {
			b.unreadable(l.Subject, err)
			return nil
		}
		refused = handle(e)
		return refused
	}
	if !q.Follow {
		err := b.do("read events", func() error { return b.list(ctx, s, take) })
		if refused != nil {
			return refused
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.follow(ctx, s, func(_ context.Context, l letter) error {
		err := take(l)
		if err != nil {
			cancel()
		}
		return err
	})
	return refused
}

// Verdicts calls handle with the verdicts since a time, like [Bus.Events] without Follow.
func (b *Bus) Verdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error {
	return b.Events(ctx, Query{Channels: []string{VerdictChannels}, Since: since}, func(e schemas.Event) error {
		handle(b.taken(e))
		return nil
	})
}

// FollowVerdicts calls handle with every verdict since a time, and then with each new one, in order. It returns nil when ctx
// ends.
func (b *Bus) FollowVerdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error {
	return b.Events(ctx, Query{Channels: []string{VerdictChannels}, Since: since, Follow: true}, func(e schemas.Event) error {
		handle(b.taken(e))
		return nil
	})
}

// These limit the messages that [Bus.Proofread] buries, so a flood does not push other letters out of their stream.
const (
	mostBuried  = 300         // immediately
	buriedAgain = time.Second // and after that, one per second
)

// Proofread copies invalid messages of the history to the dead letters: messages that are not events, and events for which flaw
// returns an error. It reads all events but intents since a given time, and returns nil when ctx ends. It buries at most 300
// invalid messages at once, and logs the others. Run it in only one process.
func (b *Bus) Proofread(ctx context.Context, since time.Time, flaw func(schemas.Event) error) error {
	budget := rate.NewLimiter(rate.Every(buriedAgain), mostBuried)
	s := source{stream: StreamEvents, channels: subjectsOf(StreamEvents), since: since, pollOnly: true}
	b.follow(ctx, s, func(ctx context.Context, l letter) error {
		e, err := l.event()
		if err == nil {
			err = flaw(e)
		}
		if err == nil {
			return nil
		}
		if !budget.Allow() {
			b.log.Debug("an event of the history is invalid; not storing it as a dead letter, because there are too many",
				"channel", l.Subject, "error", err)
			return nil
		}
		buried := b.bury(ctx, l, b.name, err)
		if errors.Is(buried, ErrNotPermitted) {
			b.log.Error("an event of the history is invalid; not permitted to store it as a dead letter; "+
				"update the rights with rehome auth init", "channel", l.Subject, "why", err, "error", buried)
			return nil
		}
		return buried
	})
	return nil
}

// Subscribe calls handle with the events that are published on the channels, one at a time, until ctx ends; then it returns nil.
// Channels may have wildcards and must not overlap. Only Subscribe shows scopes without taking them from their functions.
//
// Use it to show events, not to decide: it misses events while the connection is lost or handle is 1,024 messages behind, and
// shows events that the stream refused. The events have no Sequence.
//
// It calls subscribed, unless that is nil, when the subscriptions are active, and again after each loss of the connection. handle
// does not run meanwhile.
//
// It fails with [ErrNotPermitted] if the server refuses a channel, and returns errors of subscribed and handle unchanged. It logs
// unreadable messages, and events whose type belongs on another channel.
func (b *Bus) Subscribe(
	ctx context.Context, channels []string, subscribed func(context.Context) error, handle func(schemas.Event) error,
) error {
	messages := make(chan *nats.Msg, subscribeBuffer)
	for _, channel := range channels {
		s, err := b.nc.ChanSubscribe(b.js.prefix.subject(channel), messages)
		if err != nil {
			return fmt.Errorf("subscribe to %s: %w", channel, err)
		}
		defer func() { _ = s.Unsubscribe() }() // fails only when the connection has been closed
	}
	for again := false; ; again = true {
		var lost <-chan struct{}
		if again || b.nc.IsConnected() {
			var err error
			if lost, err = b.health.wait(ctx); err != nil {
				return nil // ctx has ended
			}
			_ = b.nc.FlushTimeout(askWithin) // a refusal arrives before this answer
			if subject, err := b.health.refusal(b.nc.LastError()); err != nil && slices.Contains(channels, b.js.prefix.cut(subject)) {
				return err
			}
		}
		if subscribed != nil {
			if err := subscribed(ctx); err != nil {
				return err
			}
		}
		if over, err := b.hear(ctx, lost, messages, handle); over {
			return err
		}
	}
}

// hear delivers messages until the connection is lost. over is true if the subscription has ended.
func (b *Bus) hear(
	ctx context.Context, lost <-chan struct{}, messages <-chan *nats.Msg, handle func(schemas.Event) error,
) (over bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case <-b.health.closed:
			return true, fmt.Errorf("subscribe: %w", nats.ErrConnectionClosed)
		case <-lost:
			return false, nil
		case m := <-messages:
			e, err := decodeOn(b.js.prefix.cut(m.Subject), m.Header, m.Data)
			if err != nil {
				b.unreadable(m.Subject, err)
				continue
			}
			if err := handle(e); err != nil {
				return true, err
			}
		}
	}
}
