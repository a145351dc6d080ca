package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

const (
	// DefaultParallel keeps the cores of a small machine busy while answers wait for the disk.
	DefaultParallel = 4
	// DefaultRetryAfter is the first delay. Doubling, six tries take half a minute: longer than a server or a function
	// takes to restart, so that what passes by itself does not make dead letters.
	DefaultRetryAfter = time.Second
	// maxRetryAfter is above what the default number of tries gets to. A newer scope of the key does not wait for it.
	maxRetryAfter = 5 * time.Minute
	// drainWithin is how long handlers may go on after the end: less than the 30 seconds that Kubernetes gives a pod, of
	// which the others need some too. What is cut short is handed out again at once.
	drainWithin = 10 * time.Second
)

// Work says which scopes to work on, and how.
type Work struct {
	// Strategy is whose scopes.
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
// A handler has 10 seconds to finish after the end of ctx, before its own context ends. Until then it can do everything
// as before. It must return when its context ends. What it has not done by the end of ctx, as it says with an error that
// wraps [context.Canceled], is handed out to others at once.
//
// handle returns nil when the scope is answered and the answer is stored. With an error that wraps
// [schemas.ErrInvalid], the scope goes to the dead letters; so does a message that is no event. After any other error
// the scope is handed out again after a growing delay, or a longer one if the error is a *delivery.Later that asks for it,
// and goes to the dead letters after the last time. A handler that runs long is not disturbed, and its scope not given to
// others.
//
// Two scopes of one key are never handled at once by one call of Work: the newer one waits for the older, and of
// several that wait only the newest is handled. Scopes of different keys come in no particular order.
func (b *Bus) Work(ctx context.Context, w Work, handle func(context.Context, schemas.Event) error) error {
	parallel := cmp.Or(w.Parallel, DefaultParallel)
	k := &worker{
		bus: b, what: "scopes of " + w.Strategy, by: w.Strategy, handle: handle,
		consumer: func(ctx context.Context) (jetstream.Consumer, error) { return b.scopesOf(ctx, w, parallel) },
		key:      func(d delivery) string { return d.message.Subject() },
		tries:    func(d delivery, _ error) (times uint64, most int) { return d.meta.NumDelivered, d.config.MaxDeliver },
		delays:   backoff{first: cmp.Or(w.RetryAfter, DefaultRetryAfter), most: maxRetryAfter},
		slots:    make(chan struct{}, parallel),
		flights:  make(map[string]*flight),
	}
	k.work(ctx)
	return nil
}

// worker is one call of [Bus.Work] or [Bus.Listen].
type worker struct {
	bus  *Bus
	what string // it works on, for people
	by   string // whose dead letters they become
	// consumer finds where the messages come from.
	consumer func(context.Context) (jetstream.Consumer, error)
	// key is what a message has in common with those that must not be handled at the same time.
	key func(delivery) string
	// tries says how often a message was tried that its handler returned err for, and how often it may be; 0: without end.
	tries   func(d delivery, err error) (times uint64, most int)
	handle  func(context.Context, schemas.Event) error
	delays  backoff
	ended   func() bool   // nothing is to be begun any more
	slots   chan struct{} // holds one item for each handler that runs
	running sync.WaitGroup

	mu      sync.Mutex
	flights map[string]*flight // by key
}

// work pulls and handles until ctx ends, and then waits for the handlers that run.
func (k *worker) work(ctx context.Context) {
	k.ended = func() bool { return ctx.Err() != nil }
	handling, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	k.bus.forever(ctx, k.what, func(ctx context.Context) error { return k.session(ctx, handling) })
	late := time.AfterFunc(drainWithin, stop)
	defer late.Stop()
	k.running.Wait()
}

// session pulls messages while there is a slot for them. One is only pulled when it can be handled at once: a scope that
// waits here could neither be replaced by a newer one nor be taken by another process.
func (k *worker) session(ctx, handling context.Context) error {
	c, err := k.consumer(ctx)
	if err != nil {
		return err
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(1),
		jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
	if err != nil {
		return fmt.Errorf("consumer of %s: %w", k.what, err)
	}
	defer giveBack(messages)
	for {
		select {
		case k.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		m, err := next(ctx, messages)
		if err == nil {
			err = k.start(handling, m, c.CachedInfo().Config)
		}
		if err != nil {
			<-k.slots
			return err
		}
	}
}

// scopesOf is the consumer of the strategy.
func (b *Bus) scopesOf(ctx context.Context, w Work, parallel int) (jetstream.Consumer, error) {
	c, err := b.js.Consumer(ctx, StreamScopes, schemas.Token(w.Strategy))
	missing := errors.Is(err, jetstream.ErrConsumerNotFound)
	if err != nil && (!w.Make || !missing) {
		return nil, notSetUp("stream "+StreamScopes+" or its consumer of "+w.Strategy, err)
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
	began := time.Now()
	c, err = b.js.CreateOrUpdateConsumer(ctx, StreamScopes, config)
	if err != nil {
		return nil, b.explain(began, fmt.Errorf("make the consumer of %s: %w", w.Strategy, err))
	}
	return c, nil
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

// giveBack ends the pulling, and returns what came too late to be handled.
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

// start begins to handle a message, and with its last step frees the slot that was taken for it.
func (k *worker) start(ctx context.Context, m jetstream.Msg, config jetstream.ConsumerConfig) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	d := delivery{message: m, meta: meta, config: config}
	if !k.admit(d) {
		<-k.slots
		return nil
	}
	k.running.Go(func() {
		defer func() { <-k.slots }()
		for more := true; more; {
			k.fly(ctx, d)
			d, more = k.land(d)
		}
	})
	return nil
}

// fly handles one message and settles it, while the server is told to be patient.
func (k *worker) fly(ctx context.Context, d delivery) {
	defer k.keep(d)()
	l := letterOf(d.message, d.meta)
	e, err := l.event()
	if err == nil {
		err = k.handle(ctx, e)
	}
	d = k.newest(d)
	times, most := k.tries(d, err)
	a := attempt{err: err, stopping: k.ended(), times: times, most: most}
	what, delay := outcome(a, k.delays, rand.Float64())
	if what == bury && !k.buried(ctx, l, err) {
		what = nak // it is told to stop, and the letter is not stored: the next worker has to try
	}
	if err := settle(d.message, what, delay, err); err != nil {
		k.bus.log.Warn("a message could not be settled, it is handed out again", "what", k.what, "channel", l.Subject, "error", err)
	} else if what == nak {
		k.bus.log.Warn("a message could not be handled, trying again", "what", k.what, "channel", l.Subject,
			"attempt", d.meta.NumDelivered, "after", delay, "error", a.err)
	}
}

// buried tries to store a dead letter until that works or ctx ends.
func (k *worker) buried(ctx context.Context, l letter, why error) bool {
	for failures := 1; ; failures++ {
		err := k.bus.bury(ctx, l, k.by, why)
		if err == nil {
			return true
		}
		if failures == 1 {
			k.bus.log.Error("a dead letter could not be stored, trying again", "error", err)
		}
		pause(ctx, sessions().after(failures))
		if ctx.Err() != nil {
			return false
		}
	}
}

// settle tells the server what becomes of a message. It has been settled already if it was replaced in the meantime.
func settle(m jetstream.Msg, what verb, delay time.Duration, why error) error {
	var err error
	switch what {
	case ack:
		err = m.Ack()
	case bury:
		err = m.TermWithReason(line(why.Error(), maxErrorText))
	case nak:
		if delay == 0 {
			err = m.Nak()
		} else {
			err = m.NakWithDelay(delay)
		}
	}
	if errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return nil
	}
	return err
}
