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
	"github.com/rehome-dev/rehome/schemas/delivery"
)

const (
	// DefaultParallel keeps the cores of a small machine busy while answers wait for the disk.
	DefaultParallel = 4
	// DefaultScopeTries is how often a worker tries a scope. With the default delays that takes about half a minute.
	DefaultScopeTries = 6
	// maxDeliveries is how often the server delivers a scope, with the deliveries that a handler does not end: its worker died, or
	// stopped. It limits how often a scope can end a process, and lets eight workers try a scope six times each.
	maxDeliveries = 50
	// maxCounted is how many messages a [tally] counts at once.
	maxCounted = 1024
	// DefaultRetryAfter is the first delay. Six tries take half a minute, longer than a restart of a server or a
	// function.
	DefaultRetryAfter = time.Second
	// maxRetryAfter exceeds the delays of the default number of tries. A newer scope of the key does not wait for it.
	maxRetryAfter = 5 * time.Minute
	// drainWithin is how long handlers may run after the end: less than the default 30-second grace period of a pod.
	drainWithin = 10 * time.Second
	// longWait is the wait for a free handler after which a session checks whether its stream was created again. During the wait
	// it has no request at the server, so it does not notice that by itself. A stream is hardly ever created again in less time.
	longWait = 100 * time.Millisecond
)

// errUnfinished is the error of a scope that was delivered [maxDeliveries] times.
var errUnfinished = fmt.Errorf("delivered %d times, and no worker has finished it: "+
	"it may end the process, or many workers failed", maxDeliveries)

// Work selects the scopes for [Bus.Work].
type Work struct {
	Strategy string
	// Parallel is the number of parallel handlers. Zero means [DefaultParallel].
	Parallel int
	// Make creates the consumer of the strategy if it is missing, and updates it if it delivers too few scopes for
	// Parallel. Otherwise Work waits for it. If the server refuses the update, Work uses the consumer
	// unchanged.
	Make bool
	// RetryAfter is the delay after the first failure of a scope; each further failure doubles it. Zero means
	// [DefaultRetryAfter].
	RetryAfter time.Duration
	// Tries is how often a scope is tried before it becomes a dead letter. Zero means [DefaultScopeTries].
	Tries int
}

// Work calls handle with the scopes of one strategy until ctx ends; then it waits for the running handlers and returns
// nil. It waits while the connection or the consumer is missing. Several processes may work on the same strategy.
//
// The function [outcome] defines the meaning of an error of handle. Each call of Work counts these errors by itself. A scope that
// was delivered 50 times and that no worker has finished becomes a dead letter too. After the end of ctx a handler has 10 seconds
// before its own context ends; then it must return. While it runs, no other process gets its scope.
//
// If several scopes of one key wait, only the newest is delivered. Scopes come in no particular order. One call handles one scope
// of a key at a time; the next one waits without a handler. Two processes may handle two scopes of one key at the same time:
// [Bus.Answer] keeps the answer to the newer one.
func (b *Bus) Work(ctx context.Context, w Work, handle func(context.Context, schemas.Event) error) error {
	parallel := cmp.Or(w.Parallel, DefaultParallel)
	failed, most := tally{}, cmp.Or(w.Tries, DefaultScopeTries)
	c := &consumption{
		bus: b, stream: StreamScopes, about: "scopes of " + w.Strategy, by: w.Strategy, handle: handle,
		consumer: func(ctx context.Context, s jetstream.Stream) (jetstream.Consumer, error) {
			return b.scopesOf(ctx, s, &w, parallel)
		},
		tries:  func(r *received, err error) (int, int) { return failed.count(r, err, most), most },
		most:   maxDeliveries,
		delays: backoff{first: cmp.Or(w.RetryAfter, DefaultRetryAfter), most: maxRetryAfter},
		slots:  make(chan struct{}, parallel),
		busy:   make(map[string]*received),
	}
	c.run(ctx)
	return nil
}

// scopesOf returns the consumer of the strategy. After a refused update it clears w.Make, because each refusal makes the process
// not ready for a minute.
func (b *Bus) scopesOf(ctx context.Context, s jetstream.Stream, w *Work, parallel int) (jetstream.Consumer, error) {
	c, err := s.Consumer(ctx, schemas.Token(w.Strategy))
	missing := errors.Is(err, jetstream.ErrConsumerNotFound)
	if err != nil && (!w.Make || !missing) {
		return nil, notSetUp("the consumer of "+w.Strategy, err)
	}
	want := handedOut(parallel)
	config := Setup{AckWait: DefaultAckWait}.consumer(w.Strategy)
	if !missing {
		config = c.CachedInfo().Config
	}
	if !w.Make || !missing && config.MaxAckPending >= want {
		return c, nil
	}
	delivered, began := config.MaxAckPending, time.Now()
	config.MaxAckPending = max(delivered, want)
	made, err := b.js.CreateOrUpdateConsumer(ctx, StreamScopes, config)
	if err == nil {
		return made, nil
	}
	err = b.explain(began, err)
	if missing || !errors.Is(err, ErrNotPermitted) {
		return nil, fmt.Errorf("make the consumer of %s: %w", w.Strategy, err)
	}
	w.Make = false
	b.log.Warn("too few scopes are delivered at once: run rehome setup",
		"strategy", w.Strategy, "delivered", delivered, "want", want, "error", err)
	return c, nil
}

// consumption is one call of [Bus.Work] or [Bus.Listen].
type consumption struct {
	bus      *Bus
	stream   string
	about    string // its messages, for the log
	by       string // the last token of the subject of its dead letters
	consumer func(context.Context, jetstream.Stream) (jetstream.Consumer, error)
	// tries returns how often a message was tried whose handler returned err, and its limit; 0 means no limit.
	tries   func(r *received, err error) (times, most int)
	most    uint64 // how often a message may be delivered before a handler must have ended; 0 means without end
	handle  func(context.Context, schemas.Event) error
	delays  backoff
	slots   chan struct{} // holds one item for each running handler
	running sync.WaitGroup

	mu sync.Mutex
	// busy has the channels with a running handler, each with the message that waits for the end of this handler, if any.
	// If busy is nil, several messages of one channel are handled at the same time.
	busy map[string]*received
}

// received is a message that the server delivered.
type received struct {
	message jetstream.Msg
	meta    *jetstream.MsgMetadata
	ackWait time.Duration // of its consumer
	epoch   uint64
	release func() // ends the reports of [consumption.keep]
}

// run pulls and handles until ctx ends, and then waits for the running handlers.
func (c *consumption) run(ctx context.Context) {
	handling, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	c.bus.forever(ctx, c.about, func(session context.Context) error { return c.session(ctx, session, handling) })
	c.returnWaiting()
	late := time.AfterFunc(drainWithin, stop)
	defer late.Stop()
	c.running.Wait()
}

// session pulls a message only when a handler is free, so that newer scopes replace older ones in the stream. It ends if the
// stream was created again, because the numbers of the messages depend on the stream. No handler starts after the end of ended,
// and none runs after the end of handling.
func (c *consumption) session(ended, ctx, handling context.Context) error {
	s, err := c.bus.open(ctx, c.stream)
	if err != nil {
		return err
	}
	from, err := c.consumer(ctx, s)
	if err != nil {
		return err
	}
	of := s.CachedInfo()
	messages, err := from.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
	if err != nil {
		return fmt.Errorf("consumer of %s: %w", c.about, err)
	}
	defer giveBack(messages)
	for {
		if err := c.takeSlot(ctx, s, of.Created); err != nil {
			return err
		}
		m, err := next(ctx, messages)
		if err == nil && ended.Err() != nil { // the select and next take either, if both are ready
			_ = m.Nak()
			err = ended.Err()
		}
		if err != nil {
			<-c.slots
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			<-c.slots
			return err
		}
		r := &received{message: m, meta: meta, ackWait: from.CachedInfo().Config.AckWait, epoch: epoch(of)}
		r.release = c.keep(r)
		if c.postpone(r) {
			<-c.slots
			continue
		}
		c.running.Go(func() {
			defer func() { <-c.slots }()
			for ; r != nil; r = c.following(ended, handling, m.Subject()) {
				c.take(ended, handling, r)
			}
		})
	}
}

// takeSlot waits until a handler is free. After a long wait it fails if the stream was created again.
func (c *consumption) takeSlot(ctx context.Context, s jetstream.Stream, made time.Time) error {
	began := time.Now()
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if time.Since(began) > longWait {
		if err := madeAt(ctx, s, made); err != nil {
			<-c.slots
			return err
		}
	}
	return nil
}

// madeAt fails if a stream was created again since the given time, or if the server does not answer.
func madeAt(ctx context.Context, s jetstream.Stream, made time.Time) error {
	info, err := s.Info(ctx)
	if err == nil && !info.Created.Equal(made) {
		err = errLost
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", s.CachedInfo().Config.Name, err)
	}
	return nil
}

// postpone reports whether the channel of a message is busy, and then keeps the message for [consumption.following]. It drops an
// older message that waits: the stream has replaced it. Otherwise the channel becomes busy.
func (c *consumption) postpone(r *received) bool {
	if c.busy == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	older, busy := c.busy[r.message.Subject()]
	if older != nil {
		older.release()
	}
	if busy {
		c.busy[r.message.Subject()] = r
	} else {
		c.busy[r.message.Subject()] = nil
	}
	return busy
}

// returnWaiting returns the messages that wait for busy channels to the server, for other workers.
func (c *consumption) returnWaiting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for channel, r := range c.busy {
		if r != nil {
			r.release()
			_ = r.message.Nak()
			c.busy[channel] = nil
		}
	}
}

// following returns the message that waits for the end of the last handler of a channel. If there is none, it returns nil, and
// the channel is not busy any more. It drops a message that the stream has replaced, and returns messages to the server after the
// end.
func (c *consumption) following(ended, handling context.Context, channel string) *received {
	for {
		c.mu.Lock()
		r := c.busy[channel]
		if r == nil {
			delete(c.busy, channel)
			c.mu.Unlock()
			return nil
		}
		c.busy[channel] = nil
		c.mu.Unlock()
		if ended.Err() != nil {
			r.release()
			_ = r.message.Nak()
			continue
		}
		_, err := c.bus.get(handling, c.stream, r.meta.Sequence.Stream+r.epoch)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			r.release()
			continue
		}
		return r // after another error the handler will notice it
	}
}

// next waits for the next message until ctx ends. It calls Next again after a moment: the client sends no request to
// the server if the message of the previous request came before that request was complete.
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

// giveBack ends the pulling, and returns messages without a handler.
func giveBack(messages jetstream.MessagesContext) {
	messages.Drain()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(tidyWithin))
		if err != nil {
			return
		}
		_ = m.Nak() // else the server delivers it again after AckWait
	}
}

// keep reports to the server three times per AckWait that a message is not lost, until release is called.
func (c *consumption) keep(r *received) (release func()) {
	working, stop := context.WithCancel(context.Background())
	go func() {
		tick := time.NewTicker(max(r.ackWait/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = r.message.InProgress() // without a connection the message is delivered again
			case <-working.Done():
				return
			}
		}
	}()
	return stop
}

// take handles and settles one message.
func (c *consumption) take(ended, handling context.Context, r *received) {
	defer r.release()
	l := c.bus.js.prefix.letterOf(r.message, r.meta, r.epoch)
	e, err := l.event()
	if err == nil && c.most > 0 && r.meta.NumDelivered > c.most {
		err = errUnfinished
	}
	if err == nil {
		err = c.handle(handling, c.bus.taken(e))
	}
	times, most := c.tries(r, err)
	verb, delay := outcome(attempt{err: err, stopping: ended.Err() != nil, times: times, most: most}, c.delays, rand.Float64())
	if verb == bury && !c.buried(handling, l, err) {
		verb = nak // the process stops and the letter is not stored: the next worker must try
	}
	r.release()
	if failed := settle(r.message, verb, delay, err); failed != nil {
		c.bus.log.Warn("cannot settle a message; it will be delivered again", "what", c.about, "channel", l.Subject,
			"error", failed)
	} else if verb == nak {
		c.bus.log.Warn("cannot handle a message; retrying", "what", c.about, "channel", l.Subject,
			"attempt", times, "after", delay, "error", err)
	}
}

// buried retries to store a dead letter until it succeeds or ctx ends.
func (c *consumption) buried(ctx context.Context, l letter, why error) bool {
	for failures := 1; ; failures++ {
		err := c.bus.bury(ctx, l, c.by, why)
		if err == nil {
			return true
		}
		if failures == 1 {
			c.bus.log.Error("cannot store a dead letter; retrying", "error", err)
		}
		pause(ctx, sessions().after(failures))
		if ctx.Err() != nil {
			return false
		}
	}
}

// settle reports the outcome of a message to the server. A scope that a newer one replaced is settled already.
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

// tally counts the failures of messages by their numbers in the stream. It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	failed map[uint64]int
}

// count returns how often a message has failed, with err. It forgets a message that is done, or that has failed as often as most.
func (t *tally) count(r *received, err error, most int) (times int) {
	number := r.meta.Sequence.Stream + r.epoch
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || errors.Is(err, schemas.ErrInvalid) || errors.Is(err, errUnfinished) {
		delete(t.failed, number)
		return 0
	}
	if t.failed == nil || len(t.failed) > maxCounted { // most of them are done by other processes or replaced
		t.failed = make(map[uint64]int)
	}
	t.failed[number]++
	if times = t.failed[number]; times >= most {
		delete(t.failed, number)
	}
	return times
}

// verb is the outcome of a handled message.
type verb string

const (
	ack  verb = "ack"  // it is done
	nak  verb = "nak"  // it is delivered again after a delay
	bury verb = "bury" // it goes to the dead letters, and is done
)

// attempt is one run of a handler.
type attempt struct {
	err      error
	stopping bool // ctx has ended: a handler may be canceled before it is done
	times    int  // how often the message was tried, this time included
	most     int  // how often it may be; 0 means without end
}

// outcome returns the one place that decides the outcome of a message.
//
//	handler returned                       last time    otherwise
//	nil                                    ack          ack
//	an error that is schemas.ErrInvalid    bury         bury
//	errUnfinished, without a handler       bury         bury
//	context.Canceled after the end         nak at once  nak at once
//	any other error                        bury         nak after a delay that doubles, or a longer one that it requests
//
// random is in [0, 1).
func outcome(a attempt, delays backoff, random float64) (verb, time.Duration) {
	switch {
	case a.err == nil:
		return ack, 0
	case errors.Is(a.err, schemas.ErrInvalid), errors.Is(a.err, errUnfinished):
		return bury, 0
	case a.stopping && errors.Is(a.err, context.Canceled):
		return nak, 0
	case a.most > 0 && a.times >= a.most:
		return bury, 0
	}
	return nak, max(delays.delay(a.times, random), delivery.After(a.err))
}
