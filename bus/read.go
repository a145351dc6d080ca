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
)

const (
	// pullFor is how long a pull waits at the server before it is renewed. pullBeat is the time between heartbeats of the server;
	// after two missing ones the client pulls again, so a reader notices that a server was killed.
	pullFor  = 30 * time.Second
	pullBeat = 2 * time.Second
	// readAhead is the number of messages that a consumer gets at once.
	readAhead = 256
	// forgotten is how long the server keeps the consumer of a dead reader.
	forgotten = time.Minute
	// tidyWithin limits cleanup that is optional.
	tidyWithin = time.Second
	// mostSilent limits the consecutive requests without a response. Then reading fails.
	mostSilent = 5
)

// source selects messages of a stream.
type source struct {
	stream   string
	channels []string  // empty means all
	since    time.Time // leaves out older messages; zero means none
	after    uint64    // leaves out messages up to this sequence, whatever since is
	// pollOnly reads new messages only at the next regular poll, up to a second later, and needs no right to subscribe.
	pollOnly bool
}

// reader reads a stream in order and without gaps. It is not safe for concurrent use.
type reader interface {
	// next waits for the next message and returns it.
	next(context.Context) (letter, error)
	close()
}

// read returns a reader that begins after a sequence, or at the beginning of the source if the sequence is 0.
func (b *Bus) read(ctx context.Context, s source, after uint64, stream jetstream.Stream) (reader, error) {
	if Role(b.name).polls() {
		return b.polling(s, after, stream)
	}
	return b.consuming(ctx, s, after, stream)
}

// consuming reads through a consumer of its own. After any gap it fails, and [Bus.follow] begins again. An ordered consumer of
// the client library would replace itself instead, and skip the first messages of a stream that was created again meanwhile.
type consuming struct {
	bus       *Bus
	stream    jetstream.Stream
	consumer  jetstream.Consumer
	messages  jetstream.MessagesContext
	delivered uint64 // messages of the consumer
}

func (b *Bus) consuming(ctx context.Context, s source, after uint64, stream jetstream.Stream) (reader, error) {
	config := jetstream.ConsumerConfig{
		FilterSubjects: b.js.prefix.subjects(s.channels), InactiveThreshold: forgotten, DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
	}
	switch {
	case after > 0:
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after+1
	case !s.since.IsZero():
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &s.since
	}
	c, err := stream.CreateConsumer(ctx, config)
	if err != nil {
		return nil, notSetUp("stream "+s.stream, err)
	}
	r := &consuming{bus: b, stream: stream, consumer: c}
	if r.messages, err = c.Messages(jetstream.PullMaxMessages(readAhead), jetstream.PullExpiry(pullFor),
		jetstream.PullHeartbeat(pullBeat)); err != nil {
		return nil, fmt.Errorf("stream %s: %w", s.stream, err)
	}
	return r, nil
}

func (r *consuming) next(ctx context.Context) (letter, error) {
	m, err := r.messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return letter{}, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return letter{}, err
	}
	if r.delivered++; meta.Sequence.Consumer != r.delivered {
		return letter{}, fmt.Errorf("stream %s: message %d of the consumer is missing", r.stream.CachedInfo().Config.Name, r.delivered)
	}
	return r.bus.js.prefix.letterOf(m, meta, epoch(r.stream.CachedInfo())), nil
}

func (r *consuming) close() {
	r.messages.Stop()
	if !r.bus.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tidyWithin)
	defer cancel()
	_ = r.stream.DeleteConsumer(ctx, r.consumer.CachedInfo().Name) // else the server does it in a minute
}

// list calls take with the current messages of a source, oldest first. A table may change meanwhile: then list
// continues until it has the newest message of each subject. It retries a request that the server does not answer, and
// returns the error of take unchanged.
func (b *Bus) list(ctx context.Context, s source, take func(letter) error) error {
	stream, err := b.open(ctx, s.stream)
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	end, isTable := info.State.LastSeq, info.Config.MaxMsgsPerSubject == 1
	r, began := b.poll(s, s.after, stream), time.Now()
	for silent := 0; isTable || r.from <= end; {
		before := r.from
		err := r.fill(ctx)
		switch {
		case err == nil && r.from == before:
			return nil
		case err == nil:
			silent = 0
		case !errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil, silent == mostSilent, b.health.deniedSince(began) != nil:
			return err
		default:
			silent++
		}
		for _, l := range r.ready {
			if err := take(l); err != nil {
				return err
			}
		}
		r.ready = nil
	}
	return nil
}

// sequences returns the sequences of all current messages of a source of all channels, in order. It does not read the messages.
func (b *Bus) sequences(ctx context.Context, s source) (all []uint64, err error) {
	stream, err := b.open(ctx, s.stream)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, notSetUp("stream "+s.stream, err)
	}
	from := info.State.FirstSeq
	if !s.since.IsZero() {
		if from, err = b.poll(s, 0, stream).first(ctx, info.State.LastSeq); err != nil {
			return nil, fmt.Errorf("stream %s: %w", s.stream, err)
		}
	}
	deleted := make(map[uint64]bool, len(info.State.Deleted))
	for _, n := range info.State.Deleted {
		deleted[n] = true
	}
	for n := max(from, 1); n <= info.State.LastSeq; n++ {
		if !deleted[n] {
			all = append(all, n)
		}
	}
	return all, nil
}

// follow calls take with the messages of a source and then with each new one, one at a time, until ctx ends. After a loss of the
// connection it continues after the last message, or at the beginning of a new stream. A source without a time begins with new
// messages. After an error of take the message comes again.
func (b *Bus) follow(ctx context.Context, s source, take func(context.Context, letter) error) {
	var made time.Time
	var last uint64
	b.forever(ctx, "stream "+s.stream, func(ctx context.Context) error {
		stream, err := b.open(ctx, s.stream)
		if err != nil {
			return err
		}
		info := stream.CachedInfo()
		switch {
		case made.IsZero() && s.after > 0:
			last = min(s.after, info.State.LastSeq)
		case made.IsZero() && s.since.IsZero():
			last = info.State.LastSeq
		case !made.IsZero() && (!made.Equal(info.Created) || info.State.LastSeq < last):
			last = 0 // the stream was created again or restored to an older state
		}
		made = info.Created
		r, err := b.read(ctx, s, last, stream)
		if err != nil {
			return err
		}
		defer r.close()
		for {
			l, err := r.next(ctx)
			if err == nil {
				err = take(ctx, l)
			}
			if err != nil {
				return err
			}
			last = l.Sequence
		}
	})
}

// StreamStatus is the content of a stream.
type StreamStatus struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	// MaxBytes is its limit in bytes. 0 means no limit.
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// MaxMessages is its limit of messages. 0 means no limit.
	MaxMessages int64 `json:"maxMessages,omitempty"`
	// Workers are the durable consumers that share its messages, by name: one for each strategy or listener.
	Workers []WorkerStatus `json:"workers,omitempty"`
}

// WorkerStatus is the progress of one durable consumer, over all its processes.
type WorkerStatus struct {
	// Strategy is the name of the strategy or the listener.
	Strategy string `json:"strategy"`
	// Pending is the number of undelivered messages, and AckPending of delivered and unacknowledged ones.
	Pending    uint64 `json:"waiting"`
	AckPending int    `json:"inHand"`
	// Redelivered is the number of messages in AckPending that were delivered more than once.
	Redelivered int `json:"again"`
	// Idle is the number of waiting pull requests: at most one per process. If it and AckPending are 0, no process works on it.
	Idle int `json:"idle"`
}

// Status returns the content of each stream, with all of its workers. Its errors include [ErrNotConnected] and
// [ErrNotSetUp].
func (b *Bus) Status(ctx context.Context) ([]StreamStatus, error) {
	return b.status(ctx, func(s jetstream.Stream) (workers []*jetstream.ConsumerInfo, err error) {
		list := s.ListConsumers(ctx)
		for c := range list.Info() {
			if c.Config.Durable != "" {
				workers = append(workers, c)
			}
		}
		if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return nil, err
		}
		return workers, nil
	})
}

// StatusFor is [Bus.Status] with only the workers of these strategies, if they have a consumer. It needs only the
// rights of a process that works on their scopes.
func (b *Bus) StatusFor(ctx context.Context, strategies []string) ([]StreamStatus, error) {
	return b.status(ctx, func(s jetstream.Stream) (workers []*jetstream.ConsumerInfo, err error) {
		if b.js.prefix.cut(s.CachedInfo().Config.Name) != StreamScopes {
			return nil, nil
		}
		for _, strategy := range strategies {
			c, err := s.Consumer(ctx, schemas.Token(strategy))
			if err == nil {
				workers = append(workers, c.CachedInfo())
			} else if !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return nil, err
			}
		}
		return workers, nil
	})
}

// status returns the content of each stream, with the consumers that workers returns.
func (b *Bus) status(
	ctx context.Context, workers func(jetstream.Stream) ([]*jetstream.ConsumerInfo, error),
) (all []StreamStatus, err error) {
	err = b.do("status of the streams", func() error {
		for _, name := range streams() {
			sent := b.clock.reading()
			s, err := b.open(ctx, name)
			if err != nil {
				return err
			}
			info := s.CachedInfo()
			b.compareClocks(sent, info.TimeStamp)
			status := StreamStatus{
				Name: name, Messages: info.State.Msgs, Bytes: info.State.Bytes, MaxBytes: max(info.Config.MaxBytes, 0),
				MaxMessages: max(info.Config.MaxMsgs, 0),
			}
			consumers, err := workers(s)
			if err != nil {
				return fmt.Errorf("consumers of stream %s: %w", name, err)
			}
			for _, c := range consumers {
				worker, ok := schemas.FromToken(c.Name)
				if !ok {
					worker = c.Name
				}
				status.Workers = append(status.Workers, WorkerStatus{
					Strategy: worker, Pending: c.NumPending, AckPending: c.NumAckPending, Redelivered: c.NumRedelivered, Idle: c.NumWaiting,
				})
			}
			slices.SortFunc(status.Workers, func(a, b WorkerStatus) int { return cmp.Compare(a.Strategy, b.Strategy) })
			all = append(all, status)
		}
		return nil
	})
	return all, err
}
