package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/trace"
)

// BusAdapter gives the roles what they ask for in their own words. Every event that a role makes leaves through it, and
// every one that a role answers to comes in through it: what happens in between is a span.
type BusAdapter struct {
	*bus.Bus
	spans *trace.Exporter // nil: there are none
}

func (p *process) adapter() BusAdapter { return BusAdapter{p.bus, p.spans} }

// taken sets the time at which an event was read, for its span.
func (b BusAdapter) taken(e schemas.Event) schemas.Event {
	if b.spans != nil {
		e.Taken = time.Now()
	}
	return e
}

// Publish implements actuator.Bus.
func (b BusAdapter) Publish(ctx context.Context, e schemas.Event) (sequence uint64, err error) {
	if sequence, err = b.Bus.Publish(ctx, e); err == nil {
		b.spans.Emitted(e)
	}
	return sequence, err
}

// PublishAll implements watcher.Bus. Of events that are not all stored it is not known which are: they have no spans.
func (b BusAdapter) PublishAll(ctx context.Context, events []schemas.Event) error {
	err := b.Bus.PublishAll(ctx, events)
	if err == nil {
		b.spans.Emitted(events...)
	}
	return err
}

// Answer implements functions.Bus. An answer that turns out not to be needed has a span: it was worked on.
func (b BusAdapter) Answer(ctx context.Context, e schemas.Event, answer schemas.Intents) error {
	err := b.Bus.Answer(ctx, e, answer)
	if err == nil {
		b.spans.Emitted(e)
	}
	return err
}

// Work implements functions.Bus.
func (b BusAdapter) Work(ctx context.Context, strategy string, handle func(context.Context, schemas.Event) error) error {
	return b.Bus.Work(ctx, bus.Work{Strategy: strategy}, func(ctx context.Context, e schemas.Event) error {
		return handle(ctx, b.taken(e))
	})
}

// FollowIntents implements actuator.Bus. Intents of a request are handed over only if they are those of an accepted request.
func (b BusAdapter) FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error {
	return b.Bus.FollowIntents(ctx, func(ctx context.Context, e schemas.Event) error {
		open, err := b.requested(ctx, e)
		if err != nil {
			return err
		}
		if !open {
			return b.DropIntents(ctx, e)
		}
		return handle(ctx, b.taken(e))
	})
}

// requested compares the intents of a request with the request. open is false if the request is not open.
func (b BusAdapter) requested(ctx context.Context, e schemas.Event) (open bool, err error) {
	a, err := schemas.Decode[schemas.Intents](e)
	if err != nil || a.Strategy != schemas.RequestStrategy || len(a.Intents) == 0 {
		return true, nil //nolint:nilerr // the actuator reads the event again and says what is wrong with it
	}
	sender, name, _ := strings.Cut(a.Scope.Key, "/")
	request, accepted, open, err := b.AcceptedRequest(ctx, sender, name)
	if err != nil || !open {
		return false, err
	}
	if err := actuator.CheckRequested(a, request, accepted); err != nil {
		return false, fmt.Errorf("event %s: %w", e.ID, err)
	}
	return true, nil
}

// FollowRequests implements requests.Bus of the watcher.
func (b BusAdapter) FollowRequests(
	ctx context.Context, handle func(ctx context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error,
) error {
	return b.Bus.FollowRequests(ctx, func(
		ctx context.Context, e schemas.Event, stored time.Time, read func() schemas.Event,
	) error {
		return handle(ctx, e, stored, func() schemas.Event { return b.taken(read()) })
	})
}

// Verdicts implements watcher.Bus.
func (b BusAdapter) Verdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error {
	return b.Events(ctx, bus.Query{Channels: []string{bus.VerdictChannels}, Since: since}, func(e schemas.Event) error {
		handle(b.taken(e))
		return nil
	})
}

// FollowVerdicts implements watcher.Bus.
func (b BusAdapter) FollowVerdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error {
	query := bus.Query{Channels: []string{bus.VerdictChannels}, Since: since, Follow: true}
	return b.Events(ctx, query, func(e schemas.Event) error {
		handle(b.taken(e))
		return nil
	})
}
