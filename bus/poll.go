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

// polledAtOnce is the number of sequences that a reader without a consumer looks up at once. questions is the number of parallel
// requests for them.
const polledAtOnce, questions = 1024, 16

// pollDelays returns when a reader without a consumer looks for new messages: soon after a message was published, because the
// stream may not have stored it yet, and later because it may belong to another stream.
func pollDelays() backoff { return backoff{first: 5 * time.Millisecond, most: time.Second} }

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
	if s.pollOnly {
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
	r := &polling{
		bus: b, stream: stream, made: stream.CachedInfo().Created, source: s, channels: s.channels, heard: make(chan struct{}, 1),
	}
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
			since := r.source.since.UTC().Format(time.RFC3339)
			return fmt.Errorf("stream %s: find the first message since %s: %w", r.source.stream, since, err)
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
	// The client library has no request by time.
	question, err := json.Marshal(map[string]any{"start_time": r.source.since, "next_by_subj": ">"})
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
