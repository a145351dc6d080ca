package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
	handover "github.com/rehome-dev/rehome/schemas/delivery"
)

const (
	// DefaultTries is how often a listener tries an event that it has the wrong of, which takes about an hour: what takes
	// events is a program of somebody else, and may be wrong for longer than a server needs to start.
	DefaultTries = 100
	// maxListenAfter is how long an event waits to be tried again at most, and so how late it is when what takes it is back.
	maxListenAfter = time.Minute
	// listenAhead is how many events of one listener may be handed out and not done: those that are handled, and those
	// that wait to be tried again. When there are as many, nothing new is handed out.
	listenAhead = 256
)

// Listener says which events somebody wants who must miss none, and how they are handed over.
type Listener struct {
	// Name tells listeners apart, and lasts: who listens again under the name goes on where the name left off. Several
	// processes of one name share the events.
	Name string
	// Channels are NATS subjects, with wildcards, that must not overlap. Empty: all deltas, answers, verdicts and maintenances.
	// They may be other ones the next time; what was stored before that on one that is new may be left out.
	Channels []string
	// Since is where a name begins that is new: what was stored before is left out. Zero: at what is stored from then on.
	Since time.Time
	// Parallel is how many handlers run at once. Zero: [DefaultParallel].
	Parallel int
	// RetryAfter is the delay after the first failure of an event; it doubles with each further one, up to a minute. Zero:
	// [DefaultRetryAfter].
	RetryAfter time.Duration
	// Tries is how often an event is tried that can be at fault itself. Zero: [DefaultTries].
	Tries int
}

// Listen hands over events of the history to handle, each at least once, until ctx ends; then it waits for the handlers
// that run and returns nil. What happens while nobody listens under the name, or nobody can be reached, is handed over
// later, as long as the history has it. An event can come again, also when it was handled: the same Source and ID is the
// same event. Events come about in the order in which they were stored, and in no order that can be relied on, not even
// those of one channel: several are handled at once, and one that failed comes after later ones.
//
// A handler has 10 seconds to finish after the end of ctx, before its own context ends. It must return when that ends.
//
// handle returns nil when the event is done. With an error that wraps [schemas.ErrInvalid], the event goes to the dead
// letters under the name; so does a message that is no event. With one that wraps delivery.ErrUnreachable or
// delivery.ErrUnauthorized, which says nothing about the event, it is handed over again after a growing delay, however
// often. After any other error it is handed over again, too, and goes to the dead letters after the last time, counted
// anew by each process. A delay is no shorter than a *delivery.Later asks for.
//
// What is known about the name is a durable consumer of the history, which Listen makes when it is missing, and changes when
// it hands out other channels. It lasts until [Bus.RemoveListener]. If it is removed while somebody listens, Listen returns
// an error that wraps [ErrNoListener]. If the history itself was lost, it goes on at the start of the new one.
func (b *Bus) Listen(ctx context.Context, l Listener, handle func(context.Context, schemas.Event) error) error {
	if l.Name == "" {
		return errors.New("listen: want a Name, got none")
	}
	if len(l.Channels) == 0 {
		l.Channels = []string{DeltaChannels, IntentsChannels, VerdictChannels, MaintenanceChannels}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &hearing{bus: b, listener: l, removed: cancel, failed: make(map[uint64]uint64)}
	k := &worker{
		bus: b, what: "events for " + l.Name, by: l.Name, handle: handle, consumer: h.consumer,
		key:     func(d delivery) string { return strconv.FormatUint(d.sequence(), 10) }, // each is an event of its own
		tries:   h.tries,
		delays:  backoff{first: cmp.Or(l.RetryAfter, DefaultRetryAfter), most: maxListenAfter},
		slots:   make(chan struct{}, cmp.Or(l.Parallel, DefaultParallel)),
		flights: make(map[string]*flight),
	}
	k.work(ctx)
	return h.err
}

// hearing is one call of [Bus.Listen].
type hearing struct {
	bus      *Bus
	listener Listener
	removed  func()    // ends it
	err      error     // why it ended by itself; written by one session at a time
	made     time.Time // when the history was made that was listened to last; zero: none yet

	mu     sync.Mutex
	failed map[uint64]uint64 // how often an event failed that can be at fault itself, by its number
}

// consumer finds the durable consumer, makes it when the name is new, and gives it the channels that are wanted now.
func (h *hearing) consumer(ctx context.Context) (jetstream.Consumer, error) {
	s, err := h.bus.js.Stream(ctx, StreamEvents)
	if err != nil {
		return nil, notSetUp("stream "+StreamEvents, err)
	}
	made := s.CachedInfo().Created
	c, err := s.Consumer(ctx, schemas.Token(h.listener.Name))
	switch {
	case err == nil && !h.isAsWanted(c.CachedInfo().Config):
		c, err = s.UpdateConsumer(ctx, h.config(c.CachedInfo().Config))
	case errors.Is(err, jetstream.ErrConsumerNotFound) && h.made.Equal(made):
		h.err = fmt.Errorf("listen as %s: %w: it was removed", h.listener.Name, ErrNoListener)
		h.removed()
		return nil, h.err
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		c, err = s.CreateConsumer(ctx, h.config(h.start()))
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process of the name has just made it
			c, err = s.Consumer(ctx, schemas.Token(h.listener.Name))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("consumer of %s: %w", h.listener.Name, err)
	}
	h.made = made
	return c, nil
}

// start is where a name begins in the history that there is: at the start of one that took the place of another.
func (h *hearing) start() jetstream.ConsumerConfig {
	switch {
	case !h.made.IsZero():
		return everything()
	case h.listener.Since.IsZero():
		return jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}
	}
	return jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &h.listener.Since}
}

// config is the configuration of the consumer that begins where from says. The server hands out a message without end; it
// is the listener that gives up, once the message is among the dead letters.
func (h *hearing) config(from jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:        schemas.Token(h.listener.Name),
		Description:    "events for " + h.listener.Name,
		DeliverPolicy:  from.DeliverPolicy,
		OptStartTime:   from.OptStartTime,
		OptStartSeq:    from.OptStartSeq,
		FilterSubjects: h.listener.Channels,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        DefaultAckWait,
		MaxDeliver:     -1,
		MaxAckPending:  listenAhead,
	}
}

// isAsWanted says whether a consumer hands out what is wanted.
func (h *hearing) isAsWanted(c jetstream.ConsumerConfig) bool {
	got, want := slices.Clone(c.FilterSubjects), slices.Clone(h.listener.Channels)
	if c.FilterSubject != "" {
		got = append(got, c.FilterSubject)
	}
	slices.Sort(got)
	slices.Sort(want)
	return slices.Equal(got, want) && c.AckWait == DefaultAckWait && c.MaxDeliver == -1 && c.MaxAckPending == listenAhead
}

// tries counts the failures of an event that can be its own. Whatever else failed says nothing about it.
func (h *hearing) tries(d delivery, err error) (times uint64, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, schemas.ErrInvalid): // it is done
		delete(h.failed, d.sequence())
		return d.meta.NumDelivered, 0
	case errors.Is(err, handover.ErrUnreachable), errors.Is(err, handover.ErrUnauthorized):
		return d.meta.NumDelivered, 0
	}
	if len(h.failed) > 4*listenAhead { // most of them were handed to other processes since; it only costs some tries
		clear(h.failed)
	}
	most = cmp.Or(h.listener.Tries, DefaultTries)
	h.failed[d.sequence()]++
	if times = h.failed[d.sequence()]; times >= uint64(most) {
		delete(h.failed, d.sequence())
	}
	return times, most
}

// Backlog is how far a listener is behind.
type Backlog struct {
	// Waiting is how many events were not handed out yet.
	Waiting uint64
	// Open is how many were handed out and are not done: those that are handled, and those that wait to be tried again.
	Open int
}

// Backlog says how far a listener is behind, whoever listens. It fails with [ErrNoListener], [ErrNotConnected] and
// [ErrNotSetUp] among others.
func (b *Bus) Backlog(ctx context.Context, name string) (Backlog, error) {
	if !b.nc.IsConnected() {
		return Backlog{}, fmt.Errorf("listener %s: %w", name, b.link.disconnected())
	}
	began := time.Now()
	c, err := b.js.Consumer(ctx, StreamEvents, schemas.Token(name))
	if err != nil {
		return Backlog{}, fmt.Errorf("listener %s: %w", name, b.explain(began, noListener(err)))
	}
	info := c.CachedInfo()
	return Backlog{Waiting: info.NumPending, Open: info.NumAckPending}, nil
}

// RemoveListener forgets a listener and how far it was. It fails with [ErrNoListener], [ErrNotConnected] and [ErrNotSetUp]
// among others.
func (b *Bus) RemoveListener(ctx context.Context, name string) error {
	if !b.nc.IsConnected() {
		return fmt.Errorf("remove listener %s: %w", name, b.link.disconnected())
	}
	began := time.Now()
	if err := b.js.DeleteConsumer(ctx, StreamEvents, schemas.Token(name)); err != nil {
		return fmt.Errorf("remove listener %s: %w", name, b.explain(began, noListener(err)))
	}
	return nil
}

// noListener says ErrNoListener of a consumer that does not exist.
func noListener(err error) error {
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return ErrNoListener
	}
	return notSetUp("stream "+StreamEvents, err)
}
