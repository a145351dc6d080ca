package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pullFor is how long a pull waits at the server before it is renewed, and pullBeat how often the server says that it
	// still has it: after two of these without a word the pull is made anew. It is the time that a reader needs to notice
	// a server that was killed without its connection being cut.
	pullFor  = 30 * time.Second
	pullBeat = 2 * time.Second
	// readAhead is how many messages a reader asks for at once.
	readAhead = 256
	// forgotten is when the server drops the consumer of a reader that went without saying so.
	forgotten = time.Minute
	// tidyWithin bounds what is only done to be tidy.
	tidyWithin = time.Second
)

// sessions says how long to wait before something that broke is begun anew. It can be the very server that just came
// back and has not loaded its streams yet, hence the short first delay.
func sessions() backoff { return backoff{first: 100 * time.Millisecond, most: 5 * time.Second} }

var (
	errGap  = errors.New("a message was missed")
	errLost = errors.New("the connection was lost")
)

// forever runs session anew whenever it returns, until ctx ends, which also ends the session. So does the loss of the
// connection. A session is only begun while there is one.
//
// What goes wrong is logged once until something else goes wrong. A session that worked for a while clears the delay.
func (b *Bus) forever(ctx context.Context, what string, session func(context.Context) error) {
	failures, logged := 0, ""
	for {
		down, err := b.link.wait(ctx)
		if err != nil {
			return
		}
		began := time.Now()
		err = until(ctx, down, session)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > sessions().most {
			failures, logged = 0, ""
		}
		if text := err.Error(); text != logged && !errors.Is(err, errLost) {
			b.complaints.write(b.log, what, err)
			logged = text
		}
		failures++
		pause(ctx, sessions().after(failures))
	}
}

// until runs session with a context that also ends when down is closed.
func until(ctx context.Context, down <-chan struct{}, session func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-down:
			cancel(errLost)
		case <-ctx.Done():
		}
	}()
	err := session(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		err = errors.New("it ended by itself")
	}
	return err
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// reader reads a stream in order and without a gap, or fails. It acknowledges nothing. Not for concurrent use.
type reader struct {
	bus      *Bus
	stream   string
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
	read     uint64 // messages handed out so far
	pending  uint64 // messages that were there when the reader was made

	guarded context.Context // ends when the server does not let it read
	done    func()
}

// everything is where a reader begins that wants all that a stream has.
func everything() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
}

// read makes a reader. Of config only filters, the start, and whether bodies are wanted are looked at.
func (b *Bus) read(ctx context.Context, stream string, config jetstream.ConsumerConfig) (*reader, error) {
	config.AckPolicy = jetstream.AckNonePolicy
	config.MemoryStorage = true
	config.Replicas = 1
	config.InactiveThreshold = forgotten
	c, err := b.js.CreateConsumer(ctx, stream, config)
	if err != nil {
		return nil, notSetUp("stream "+stream, err)
	}
	guarded, done := b.link.guard(ctx, pulls(stream, c.CachedInfo().Name))
	m, err := c.Messages(jetstream.PullMaxMessages(readAhead),
		jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
	if err != nil {
		done()
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	return &reader{
		bus: b, stream: stream, consumer: c, messages: m, pending: c.CachedInfo().NumPending, guarded: guarded, done: done,
	}, nil
}

// next returns the next message. Any error but the end of ctx means that the reader is of no more use.
func (r *reader) next(ctx context.Context) (jetstream.Msg, *jetstream.MsgMetadata, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.guarded, cancel)()
	m, err := r.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return nil, nil, because(r.guarded, err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return nil, nil, err
	}
	r.read++
	if meta.Sequence.Consumer != r.read {
		return nil, nil, errGap
	}
	return m, meta, nil
}

// pulls is the subject on which the messages of a consumer are asked for.
func pulls(stream, consumer string) string {
	return api + "CONSUMER.MSG.NEXT." + stream + "." + consumer
}

func (r *reader) close() {
	r.done()
	r.messages.Stop()
	if !r.bus.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tidyWithin)
	defer cancel()
	_ = r.bus.js.DeleteConsumer(ctx, r.stream, r.consumer.CachedInfo().Name) // else the server does it in a minute
}
