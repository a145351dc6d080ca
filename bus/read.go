package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

const (
	// pullFor is how long a pull waits at the server before it is renewed. pullBeat is the time between heartbeats of the server;
	// after two missing ones the client pulls again, so a reader notices that a server was killed.
	pullFor  = 30 * time.Second
	pullBeat = 2 * time.Second
	// readAhead is the number of messages that a consumer gets at once.
	readAhead = 256
	// polledAtOnce is the number of sequences that a reader without a consumer looks up at once, with that many requests.
	polledAtOnce, questions = 1024, 16
	// forgotten is how long the server keeps the consumer of a dead reader.
	forgotten = time.Minute
	// tidyWithin limits cleanup that is optional.
	tidyWithin = time.Second
	// mostSilent limits the consecutive requests without a response. Then reading fails.
	mostSilent = 5
)

// pollDelays returns when a reader without a consumer looks for new messages: soon after a message was published, because the
// stream may not have stored it yet, and later because it may belong to another stream.
func pollDelays() backoff { return backoff{first: 5 * time.Millisecond, most: time.Second} }

// source selects messages of a stream.
type source struct {
	stream   string
	channels []string  // empty means all
	since    time.Time // leaves out older messages; zero means none
	after    uint64    // leaves out messages up to this sequence, whatever since is
	// unheard reads new messages only at the next regular poll, up to a second later, and needs no right to subscribe.
	unheard bool
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

// consuming reads through a consumer of its own. After any gap it fails, and [Bus.follow] begins again. An ordered consumer of the
// client library would replace itself instead, and skip the first messages of a stream that was created again meanwhile.
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

// polling reads without a consumer and requests single messages, see [Role.polls].
type polling struct {
	bus      *Bus
	stream   jetstream.Stream
	made     time.Time // when the stream was made
	source   source
	channels []string // of the source
	from     uint64   // the sequence to look for next. 0 means the first one since the time of the source
	ready    []letter // were read, and not returned yet
	heard    chan struct{}
	live     []*nats.Subscription // signal to heard
}

// polling returns a reader that also notices when a message is published.
func (b *Bus) polling(s source, after uint64, stream jetstream.Stream) (reader, error) {
	r := b.poll(s, after, stream)
	channels := s.channels
	if len(channels) == 0 {
		channels = subjectsOf(s.stream)
	}
	if s.unheard {
		channels = nil
	}
	for _, channel := range channels {
		sub, err := b.nc.Subscribe(b.js.prefix.subject(channel), func(*nats.Msg) {
			select {
			case r.heard <- struct{}{}:
			default:
			}
		})
		if err != nil {
			r.close()
			return nil, fmt.Errorf("subscribe to %s: %w", channel, err)
		}
		r.live = append(r.live, sub)
	}
	return r, nil
}

// poll returns a reader that begins after a sequence, or at the beginning of the source if the sequence is 0.
func (b *Bus) poll(s source, after uint64, stream jetstream.Stream) *polling {
	r := &polling{bus: b, stream: stream, made: stream.CachedInfo().Created, source: s, channels: s.channels, heard: make(chan struct{}, 1)}
	if len(r.channels) == 0 {
		r.channels = []string{">"}
	}
	if after > 0 || s.since.IsZero() {
		r.from = after + 1
	}
	return r
}

func (r *polling) next(ctx context.Context) (letter, error) {
	for waits := 1; len(r.ready) == 0; waits++ {
		before := r.from
		if err := r.fill(ctx); err != nil {
			return letter{}, err
		}
		if r.from > before {
			waits = 0
			continue
		}
		wait := time.NewTimer(pollDelays().after(waits))
		select {
		case <-r.heard:
			waits = 0
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return letter{}, ctx.Err()
		}
		wait.Stop()
	}
	l := r.ready[0]
	r.ready = r.ready[1:]
	return l, nil
}

// fill reads the next messages, if there are any. It fails if the stream was created again or restored to an older state.
func (r *polling) fill(ctx context.Context) error {
	info, err := r.stream.Info(ctx)
	switch {
	case err != nil:
		return notSetUp("stream "+r.source.stream, err)
	case !info.Created.Equal(r.made), info.State.LastSeq+1 < r.from:
		return fmt.Errorf("stream %s: %w", r.source.stream, errLost)
	}
	if r.from == 0 {
		if r.from, err = r.first(ctx, info.State.LastSeq); err != nil {
			return fmt.Errorf("stream %s: find the first message since %s: %w", r.source.stream, r.source.since.UTC().Format(time.RFC3339), err)
		}
	}
	r.from = max(r.from, info.State.FirstSeq)
	if r.from > info.State.LastSeq {
		return nil
	}
	first, err := r.earliest(ctx)
	if err != nil {
		return err
	}
	if first == nil || first.Sequence > info.State.LastSeq {
		r.from = info.State.LastSeq + 1
		return nil
	}
	from, to := first.Sequence+1, min(info.State.LastSeq, first.Sequence+polledAtOnce-1)
	size := (to - first.Sequence + questions - 1) / questions
	var parts [questions][]letter
	group, ctx := errgroup.WithContext(ctx)
	for i := range parts {
		begin := from + uint64(i)*size
		group.Go(func() (err error) {
			parts[i], err = r.between(ctx, begin, min(begin+size-1, to))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.ready, r.from = append([]letter{*first}, slices.Concat(parts[:]...)...), to+1
	return nil
}

// earliest returns the next message of the channels, or nil. A gap in a stream costs one request.
func (r *polling) earliest(ctx context.Context) (first *letter, err error) {
	for _, channel := range r.channels {
		m, err := r.get(ctx, r.from, channel)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, notSetUp("stream "+r.source.stream, err)
		}
		if first == nil || m.Sequence < first.Sequence {
			first = r.bus.js.prefix.rawLetter(r.source.stream, m, epoch(r.stream.CachedInfo()))
		}
	}
	return first, nil
}

// first returns the sequence of the first message since the time of the source, or the sequence after the last message.
func (r *polling) first(ctx context.Context, last uint64) (uint64, error) {
	question, err := json.Marshal(map[string]any{"start_time": r.source.since, "next_by_subj": ">"}) // the client library has no request by time
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	m, err := r.bus.nc.RequestWithContext(ctx, r.bus.js.prefix.subject(api+"STREAM.MSG.GET."+r.source.stream), question)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return 0, err
	}
	switch {
	case answer.Error == nil:
		return answer.Message.Sequence, nil
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return last + 1, nil
	}
	return 0, answer.Error
}

// between reads the messages of the channels between two sequences, inclusively, in order.
func (r *polling) between(ctx context.Context, first, last uint64) (letters []letter, err error) {
	for _, channel := range r.channels {
		for at := first; at <= last; at++ {
			m, err := r.get(ctx, at, channel)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				return nil, notSetUp("stream "+r.source.stream, err)
			}
			if at = m.Sequence; at <= last {
				letters = append(letters, *r.bus.js.prefix.rawLetter(r.source.stream, m, epoch(r.stream.CachedInfo())))
			}
		}
	}
	slices.SortFunc(letters, func(a, b letter) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return letters, nil
}

func (r *polling) get(ctx context.Context, from uint64, channel string) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	m, err := r.stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(r.bus.js.prefix.subject(channel)))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("get the message of %s from %d: %w", channel, from, err)
	}
	return m, err
}

func (r *polling) close() {
	for _, s := range r.live {
		_ = s.Unsubscribe() // fails only when the connection has been closed
	}
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
		case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil || silent == mostSilent || b.health.deniedSince(began) != nil:
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
		case !made.IsZero() && (!made.Equal(info.Created) || info.State.LastSeq < last): // the stream was created again or restored to an older state
			last = 0
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
