package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

const (
	// DefaultTries is how often a listener tries an event that may be invalid, which takes about an hour, because the
	// receiver is another program.
	DefaultTries = 100
	// maxListenAfter is the longest delay of an event, and of its delivery after its receiver has returned.
	maxListenAfter = time.Minute
	// listenAhead is the number of events of one listener that the server delivers at once, including events that wait for their
	// next try.
	listenAhead = 256
)

// Listener selects the events for [Bus.Listen].
type Listener struct {
	// Name identifies the listener: the next listener of the name continues where the last one stopped. Several
	// processes with one name share the events.
	Name string
	// Existing is for a key that may not create consumers: Listen waits until [Bus.AddListener] has created the name,
	// and does not change it. It then ignores the next two fields.
	Existing bool
	// Channels are NATS subjects, with wildcards, that must not overlap. Empty means the whole history. They may change;
	// older events on a new channel may be omitted.
	Channels []string
	// Since is the time of the first event for a new name. Zero starts with new events.
	Since time.Time
	// Parallel is the number of parallel handlers. Zero means [DefaultParallel].
	Parallel int
	// RetryAfter is the delay after the first failure of an event; each further failure doubles it, up to a minute.
	// Zero means [DefaultRetryAfter].
	RetryAfter time.Duration
	// Tries is how often an event that may be invalid is tried. Zero means [DefaultTries].
	Tries int
}

// Listen calls handle with events of the history until ctx ends; then it waits for the running handlers and returns
// nil. Events that are published while no process listens under the name come later, if the history still has them.
// Each event comes at least once, in no reliable order: events with the same Source and ID are the same event.
//
// The function [outcome] defines the meaning of an error of handle, as for [Bus.Work]. Errors that wrap
// delivery.ErrUnreachable or delivery.ErrUnauthorized do not count as tries. Each process starts its own count of
// tries.
//
// A durable consumer of the history stores the progress of the name until [Bus.RemoveListener]. Listen creates it, and
// updates its channels. If another process removes it, Listen returns an error that wraps [ErrNoListener]. If the
// history was lost, Listen continues at the start of the new one.
func (b *Bus) Listen(ctx context.Context, l Listener, handle func(context.Context, schemas.Event) error) error {
	if l.Name == "" {
		return errors.New("listen: want a Name, got none")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &listening{listener: l.withChannels(b.js.prefix), removed: cancel}
	c := &consumption{
		bus: b, stream: StreamEvents, about: "events for " + l.Name, by: l.Name, handle: handle, consumer: h.consumer, tries: h.tries,
		delays: backoff{first: cmp.Or(l.RetryAfter, DefaultRetryAfter), most: maxListenAfter},
		slots:  make(chan struct{}, cmp.Or(l.Parallel, DefaultParallel)),
	}
	c.run(ctx)
	return h.err
}

// withChannels returns l with the channels on the server, or all channels if it names none.
func (l Listener) withChannels(p Prefix) Listener {
	if len(l.Channels) == 0 {
		l.Channels = history()
	}
	l.Channels = p.subjects(l.Channels)
	return l
}

// AddListener creates a listener, or updates its channels, for processes that listen with Existing. Its errors include
// [ErrNotConnected] and [ErrNotSetUp].
func (b *Bus) AddListener(ctx context.Context, l Listener) error {
	return b.do("add listener "+l.Name, func() error {
		s, err := b.open(ctx, StreamEvents)
		if err != nil {
			return err
		}
		_, err = (&listening{listener: l.withChannels(b.js.prefix)}).consumer(ctx, s)
		return err
	})
}

// listening is one call of [Bus.Listen].
type listening struct {
	listener Listener
	removed  func()    // ends it
	err      error     // of a removed listener; written by one session at a time
	made     time.Time // the creation time of the history; zero if unknown
	failed   tally     // of events that may be invalid
}

// consumer returns the durable consumer. It creates the consumer of a new name, and sets its channels.
func (h *listening) consumer(ctx context.Context, s jetstream.Stream) (jetstream.Consumer, error) {
	made, known := s.CachedInfo().Created, h.made
	c, err := s.Consumer(ctx, schemas.Token(h.listener.Name))
	switch {
	case err == nil && !h.listener.Existing && !h.isAsWanted(c.CachedInfo().Config):
		old := c.CachedInfo().Config
		c, err = s.UpdateConsumer(ctx, h.config(old.DeliverPolicy, old.OptStartTime))
	case errors.Is(err, jetstream.ErrConsumerNotFound) && known.Equal(made):
		h.err = fmt.Errorf("listen as %s: %w: it was removed", h.listener.Name, ErrNoListener)
		h.removed()
		return nil, h.err
	case errors.Is(err, jetstream.ErrConsumerNotFound) && h.listener.Existing:
		err = fmt.Errorf("%w: run rehome forward --add --name %s with the setup key", ErrNoListener, h.listener.Name)
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		switch {
		case !known.IsZero(): // the history was created again
			c, err = s.CreateConsumer(ctx, h.config(jetstream.DeliverAllPolicy, nil))
		case h.listener.Since.IsZero():
			c, err = s.CreateConsumer(ctx, h.config(jetstream.DeliverNewPolicy, nil))
		default:
			c, err = s.CreateConsumer(ctx, h.config(jetstream.DeliverByStartTimePolicy, &h.listener.Since))
		}
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process with the name has just created it
			c, err = s.Consumer(ctx, schemas.Token(h.listener.Name))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("consumer of %s: %w", h.listener.Name, err)
	}
	h.made = made
	return c, nil
}

// config returns the configuration of the consumer. The listener, not the server, limits the tries of a message.
func (h *listening) config(from jetstream.DeliverPolicy, since *time.Time) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:        schemas.Token(h.listener.Name),
		Description:    "events for " + h.listener.Name,
		DeliverPolicy:  from,
		OptStartTime:   since,
		FilterSubjects: h.listener.Channels,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        DefaultAckWait,
		MaxDeliver:     -1,
		MaxAckPending:  listenAhead,
	}
}

// isAsWanted reports whether a consumer has the configuration of the listener.
func (h *listening) isAsWanted(c jetstream.ConsumerConfig) bool {
	got, want := slices.Clone(c.FilterSubjects), slices.Clone(h.listener.Channels)
	if c.FilterSubject != "" {
		got = append(got, c.FilterSubject)
	}
	slices.Sort(got)
	slices.Sort(want)
	return slices.Equal(got, want) && c.AckWait == DefaultAckWait && c.MaxDeliver == -1 && c.MaxAckPending == listenAhead
}

// tries counts the failures of an event that may be invalid.
func (h *listening) tries(r *received, err error) (times, most int) {
	if errors.Is(err, delivery.ErrUnreachable) || errors.Is(err, delivery.ErrUnauthorized) {
		return int(r.meta.NumDelivered), 0
	}
	most = cmp.Or(h.listener.Tries, DefaultTries)
	return h.failed.count(r, err, most), most
}

// Backlog has the numbers of unfinished events of a listener.
type Backlog struct {
	// Waiting were not delivered yet.
	Waiting uint64
	// Open events were delivered: handlers run for them, or they wait for their next try.
	Open int
}

// Backlog returns the backlog of a listener, over all of its processes. Its errors include [ErrNoListener],
// [ErrNotConnected], and [ErrNotSetUp].
func (b *Bus) Backlog(ctx context.Context, name string) (l Backlog, err error) {
	err = b.do("listener "+name, func() error {
		c, err := b.js.Consumer(ctx, StreamEvents, schemas.Token(name))
		if err != nil {
			return noListener(err)
		}
		l = Backlog{Waiting: c.CachedInfo().NumPending, Open: c.CachedInfo().NumAckPending}
		return nil
	})
	return l, err
}

// RemoveListener removes a listener and its progress. Its errors include [ErrNoListener], [ErrNotConnected], and
// [ErrNotSetUp].
func (b *Bus) RemoveListener(ctx context.Context, name string) error {
	return b.do("remove listener "+name, func() error {
		return noListener(b.js.DeleteConsumer(ctx, StreamEvents, schemas.Token(name)))
	})
}

// noListener returns ErrNoListener for the error of a missing consumer.
func noListener(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return ErrNoListener
	}
	return notSetUp("stream "+StreamEvents, err)
}
