package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

const (
	// DefaultParallel keeps the cores of a small machine busy while answers wait for the disk.
	DefaultParallel = 4
	// DefaultRetryAfter is the first delay. Doubling, six tries take half a minute: longer than a server or a function
	// takes to restart, so that a short failure makes no dead letters.
	DefaultRetryAfter = time.Second
	// maxRetryAfter is above the delays of the default number of tries. A newer scope of the key does not wait for it.
	maxRetryAfter = 5 * time.Minute
	// drainWithin is how long handlers may go on after the end: less than the 30 seconds that Kubernetes gives a pod, of
	// which the others need some too. Work that is cut short is handed out again at once.
	drainWithin = 10 * time.Second
	// DefaultTries is how often a listener tries an event that may be at fault itself, which takes about an hour: the receiver is
	// another program, and may be wrong for longer than a server needs to start.
	DefaultTries = 100
	// maxListenAfter is how long an event waits at most to be tried again, and so how late it is when its receiver is back.
	maxListenAfter = time.Minute
	// listenAhead is how many events of one listener may be handed out and not done: those that are handled, and those
	// that wait to be tried again. When there are as many, nothing new is handed out.
	listenAhead = 256
)

// Work says which scopes to work on, and how.
type Work struct {
	// Strategy is the strategy of the scopes.
	Strategy string
	// Parallel is how many handlers run at once. Zero: [DefaultParallel].
	Parallel int
	// Make: the consumer of the strategy is made where it is missing, and changed where it hands out too few scopes for
	// Parallel. Otherwise it is waited for. It needs the right to do so only when there is something to do.
	Make bool
	// RetryAfter is the delay after the first failure of a scope; it doubles with each further one. Zero:
	// [DefaultRetryAfter].
	RetryAfter time.Duration
}

// Work hands the scopes of one strategy to handle until ctx ends; then it waits for the handlers that run and returns
// nil. While the connection or the consumer is missing it waits. Several processes may work on the same strategy.
//
// A handler has 10 seconds to finish after the end of ctx, before its own context ends. It must return when its context ends.
// A scope that it gives up after the end of ctx, with an error that wraps [context.Canceled], is handed out to others at once.
//
// handle returns nil when the scope is answered and the answer is stored. With an error that wraps
// [schemas.ErrInvalid], the scope goes to the dead letters; so does a message that is no event. After any other error
// the scope is handed out again after a growing delay, or a longer one if the error is a *delivery.Later that asks for it,
// and goes to the dead letters after the last time. A handler that runs long is not disturbed, and its scope not given to
// others.
//
// Of several scopes of one key that wait, only the newest is handed out. Scopes come in no particular order, and a newer one of a
// key may be handled while an older one is: [Bus.Answer] keeps the answer to the newer one.
func (b *Bus) Work(ctx context.Context, w Work, handle func(context.Context, schemas.Event) error) error {
	parallel := cmp.Or(w.Parallel, DefaultParallel)
	c := &consumption{
		bus: b, stream: StreamScopes, about: "scopes of " + w.Strategy, by: w.Strategy, handle: handle,
		consumer: func(ctx context.Context, s jetstream.Stream) (jetstream.Consumer, error) {
			return b.scopesOf(ctx, s, w, parallel)
		},
		tries:  func(r received, _ error) (times uint64, most int) { return r.meta.NumDelivered, r.config.MaxDeliver },
		delays: backoff{first: cmp.Or(w.RetryAfter, DefaultRetryAfter), most: maxRetryAfter},
		slots:  make(chan struct{}, parallel),
	}
	c.run(ctx)
	return nil
}

// scopesOf is the consumer of the strategy.
func (b *Bus) scopesOf(ctx context.Context, s jetstream.Stream, w Work, parallel int) (jetstream.Consumer, error) {
	c, err := s.Consumer(ctx, schemas.Token(w.Strategy))
	missing := errors.Is(err, jetstream.ErrConsumerNotFound)
	if err != nil && (!w.Make || !missing) {
		return nil, notSetUp("the consumer of "+w.Strategy, err)
	}
	want := handedOut(parallel)
	if !w.Make || !missing && c.CachedInfo().Config.MaxAckPending >= want {
		return c, nil
	}
	config := Setup{AckWait: DefaultAckWait, MaxDeliver: DefaultMaxDeliver}.consumer(w.Strategy)
	if !missing {
		config = c.CachedInfo().Config
	}
	config.MaxAckPending = want
	if c, err = s.CreateOrUpdateConsumer(ctx, config); err != nil {
		return nil, fmt.Errorf("make the consumer of %s: %w", w.Strategy, err)
	}
	return c, nil
}

// consumption is one call of [Bus.Work] or [Bus.Listen].
type consumption struct {
	bus    *Bus
	stream string
	about  string // its messages, for people
	by     string // whose dead letters they become
	// consumer finds the consumer of the messages.
	consumer func(context.Context, jetstream.Stream) (jetstream.Consumer, error)
	// tries returns how often a message was tried whose handler returned err, and how often it may be; 0: without end.
	tries   func(r received, err error) (times uint64, most int)
	handle  func(context.Context, schemas.Event) error
	delays  backoff
	slots   chan struct{} // holds one item for each handler that runs
	running sync.WaitGroup
}

// received is a message that the server handed out.
type received struct {
	message jetstream.Msg
	meta    *jetstream.MsgMetadata
	config  jetstream.ConsumerConfig // of its consumer
	epoch   uint64
}

// run pulls and handles until ctx ends, and then waits for the handlers that run.
func (c *consumption) run(ctx context.Context) {
	handling, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	c.bus.forever(ctx, c.about, func(session context.Context) error { return c.session(ctx, session, handling) })
	late := time.AfterFunc(drainWithin, stop)
	defer late.Stop()
	c.running.Wait()
}

// session pulls messages while there is a slot for them. One is only pulled when it can be handled at once: a scope that
// waits here could neither be replaced by a newer one nor be taken by another process. ended is over when no handler is to be
// begun, handling when none may go on.
func (c *consumption) session(ended, ctx, handling context.Context) error {
	s, err := c.bus.js.Stream(ctx, c.stream)
	if err != nil {
		return notSetUp("stream "+c.stream, err)
	}
	from, err := c.consumer(ctx, s)
	if err != nil {
		return err
	}
	config := from.CachedInfo().Config
	messages, err := from.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
	if err != nil {
		return fmt.Errorf("consumer of %s: %w", c.about, err)
	}
	defer giveBack(messages)
	for {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		m, err := next(ctx, messages)
		if err != nil {
			<-c.slots
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			<-c.slots
			return err
		}
		c.running.Go(func() {
			defer func() { <-c.slots }()
			c.take(ended, handling, received{m, meta, config, epoch(s.CachedInfo())})
		})
	}
}

// next waits for the next message until ctx ends, at first for a moment only, then for longer. The client asks the server
// for a message when Next is called, but not while it is still busy with having asked for the one before; if that one
// comes quicker than the client is done, it asks for no other until Next is called again.
func next(ctx context.Context, messages jetstream.MessagesContext) (jetstream.Msg, error) {
	for wait := time.Millisecond; wait < pullBeat; wait *= 4 {
		short, cancel := context.WithTimeout(ctx, wait)
		m, err := messages.Next(jetstream.NextContext(short))
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return m, err
		}
	}
	return messages.Next(jetstream.NextContext(ctx))
}

// giveBack ends the pulling, and returns the messages that came too late to be handled.
func giveBack(messages jetstream.MessagesContext) {
	messages.Drain()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(tidyWithin))
		if err != nil {
			return
		}
		_ = m.Nak() // else the server hands it out again when AckWait is over
	}
}

// take handles one message and settles it, while the server is told three times in each AckWait that the work goes on.
func (c *consumption) take(ended, handling context.Context, r received) {
	working, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		tick := time.NewTicker(max(r.config.AckWait/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = r.message.InProgress() // without a connection the message is handed out again
			case <-working.Done():
				return
			}
		}
	}()
	l := letterOf(r.message, r.meta, r.epoch)
	e, err := l.event(maxData)
	if err == nil {
		err = c.handle(handling, c.bus.taken(e))
	}
	times, most := c.tries(r, err)
	verb, delay := outcome(attempt{err: err, stopping: ended.Err() != nil, times: times, most: most}, c.delays, rand.Float64())
	if verb == bury && !c.buried(handling, l, err) {
		verb = nak // it is told to stop, and the letter is not stored: the next worker has to try
	}
	stop()
	if failed := settle(r.message, verb, delay, err); failed != nil {
		c.bus.log.Warn("a message could not be settled, it is handed out again", "what", c.about, "channel", l.Subject,
			"error", failed)
	} else if verb == nak {
		c.bus.log.Warn("a message could not be handled, trying again", "what", c.about, "channel", l.Subject,
			"attempt", r.meta.NumDelivered, "after", delay, "error", err)
	}
}

// buried tries to store a dead letter until that works or ctx ends.
func (c *consumption) buried(ctx context.Context, l letter, why error) bool {
	for failures := 1; ; failures++ {
		err := c.bus.bury(ctx, l, c.by, why)
		if err == nil {
			return true
		}
		if failures == 1 {
			c.bus.log.Error("a dead letter could not be stored, trying again", "error", err)
		}
		pause(ctx, sessions().after(failures))
		if ctx.Err() != nil {
			return false
		}
	}
}

// settle tells the server the outcome of a message. It has been settled already if it was replaced in the meantime.
func settle(m jetstream.Msg, what verb, delay time.Duration, why error) error {
	var err error
	switch what {
	case ack:
		err = m.Ack()
	case bury:
		err = m.TermWithReason(line(why.Error(), maxErrorText))
	case nak:
		err = m.NakWithDelay(delay)
	}
	if errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return nil
	}
	return err
}

// verb is the outcome of a message after it was handled.
type verb string

const (
	ack  verb = "ack"  // it is done
	nak  verb = "nak"  // it is handed out again, after a delay
	bury verb = "bury" // it goes to the dead letters, and is done
)

// attempt is one run of a handler.
type attempt struct {
	err      error
	stopping bool   // the end has come: a handler may be told to stop before it is done
	times    uint64 // how often the message was tried, this time included
	most     int    // how often it may be; 0: without end
}

// outcome is the one place that decides the outcome of a message.
//
//	handler returned                       last time    otherwise
//	nil                                    ack          ack
//	an error that is schemas.ErrInvalid    bury         bury
//	one that is context.Canceled, as told  nak at once  nak at once
//	any other error                        bury         nak after a delay that doubles, or a longer one that it asks for
//
// random is in [0, 1).
func outcome(a attempt, delays backoff, random float64) (verb, time.Duration) {
	switch {
	case a.err == nil:
		return ack, 0
	case errors.Is(a.err, schemas.ErrInvalid):
		return bury, 0
	case a.stopping && errors.Is(a.err, context.Canceled):
		return nak, 0
	case a.most > 0 && a.times >= uint64(a.most):
		return bury, 0
	}
	return nak, max(delays.delay(int(a.times), random), delivery.After(a.err))
}

// Listener says which events to receive without missing one, and how they are handed over.
type Listener struct {
	// Name tells listeners apart, and lasts: a listener of the same name goes on where the last one left off. Several
	// processes of one name share the events.
	Name string
	// Channels are NATS subjects, with wildcards, that must not overlap. Empty: all deltas, answers, verdicts and maintenances.
	// They may be other ones the next time; older events on a new channel may be left out.
	Channels []string
	// Since is where a new name begins: older events are left out. Zero: at the events that are stored from then on.
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
// that run and returns nil. Events that are published while no process listens under the name, or none can be reached, are handed
// over later, as long as the history has them. An event can come again, also when it was handled: the same Source and ID is the
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
// The progress of the name is a durable consumer of the history, which Listen makes when it is missing, and changes when
// it hands out other channels. It lasts until [Bus.RemoveListener]. If it is removed during Listen, Listen returns
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
	h := &listening{listener: l, removed: cancel, failed: make(map[uint64]uint64)}
	c := &consumption{
		bus: b, stream: StreamEvents, about: "events for " + l.Name, by: l.Name, handle: handle, consumer: h.consumer, tries: h.tries,
		delays: backoff{first: cmp.Or(l.RetryAfter, DefaultRetryAfter), most: maxListenAfter},
		slots:  make(chan struct{}, cmp.Or(l.Parallel, DefaultParallel)),
	}
	c.run(ctx)
	return h.err
}

// listening is one call of [Bus.Listen].
type listening struct {
	listener Listener
	removed  func()    // ends it
	err      error     // why it ended by itself; written by one session at a time
	made     time.Time // when the history was made; zero: not looked at yet

	mu     sync.Mutex
	failed map[uint64]uint64 // how often an event failed that can be at fault itself, by its number
}

// consumer finds the durable consumer, makes it when the name is new, and gives it the channels that are wanted now.
func (h *listening) consumer(ctx context.Context, s jetstream.Stream) (jetstream.Consumer, error) {
	made, known := s.CachedInfo().Created, h.made
	c, err := s.Consumer(ctx, schemas.Token(h.listener.Name))
	switch {
	case err == nil && !h.isAsWanted(c.CachedInfo().Config):
		old := c.CachedInfo().Config
		c, err = s.UpdateConsumer(ctx, h.config(old.DeliverPolicy, old.OptStartTime))
	case errors.Is(err, jetstream.ErrConsumerNotFound) && known.Equal(made):
		h.err = fmt.Errorf("listen as %s: %w: it was removed", h.listener.Name, ErrNoListener)
		h.removed()
		return nil, h.err
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		switch {
		case !known.IsZero(): // the history took the place of another
			c, err = s.CreateConsumer(ctx, h.config(jetstream.DeliverAllPolicy, nil))
		case h.listener.Since.IsZero():
			c, err = s.CreateConsumer(ctx, h.config(jetstream.DeliverNewPolicy, nil))
		default:
			c, err = s.CreateConsumer(ctx, h.config(jetstream.DeliverByStartTimePolicy, &h.listener.Since))
		}
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

// config is the configuration of the consumer. The server hands out a message without end; it is the listener that gives up, once
// the message is among the dead letters.
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

// isAsWanted returns whether a consumer hands out the events that are wanted.
func (h *listening) isAsWanted(c jetstream.ConsumerConfig) bool {
	got, want := slices.Clone(c.FilterSubjects), slices.Clone(h.listener.Channels)
	if c.FilterSubject != "" {
		got = append(got, c.FilterSubject)
	}
	slices.Sort(got)
	slices.Sort(want)
	return slices.Equal(got, want) && c.AckWait == DefaultAckWait && c.MaxDeliver == -1 && c.MaxAckPending == listenAhead
}

// tries counts the failures of an event that can be its own. Other failures say nothing about it.
func (h *listening) tries(r received, err error) (times uint64, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := r.meta.Sequence.Stream
	switch {
	case err == nil, errors.Is(err, schemas.ErrInvalid): // it is done
		delete(h.failed, number)
		return r.meta.NumDelivered, 0
	case errors.Is(err, delivery.ErrUnreachable), errors.Is(err, delivery.ErrUnauthorized):
		return r.meta.NumDelivered, 0
	}
	if len(h.failed) > 4*listenAhead { // most of them were handed to other processes since; it only costs some tries
		clear(h.failed)
	}
	most = cmp.Or(h.listener.Tries, DefaultTries)
	h.failed[number]++
	if times = h.failed[number]; times >= uint64(most) {
		delete(h.failed, number)
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

// Backlog returns how far a listener is behind, in all of its processes. It fails with [ErrNoListener], [ErrNotConnected] and
// [ErrNotSetUp] among others.
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

// RemoveListener forgets a listener and how far it was. It fails with [ErrNoListener], [ErrNotConnected] and [ErrNotSetUp]
// among others.
func (b *Bus) RemoveListener(ctx context.Context, name string) error {
	return b.do("remove listener "+name, func() error { return noListener(b.js.DeleteConsumer(ctx, StreamEvents, schemas.Token(name))) })
}

// noListener says ErrNoListener of a consumer that does not exist.
func noListener(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return ErrNoListener
	}
	return notSetUp("stream "+StreamEvents, err)
}
