package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// mostBarren is how many readers in a row may be given nothing of what there is, each for at least a second, before reading
// fails.
const mostBarren = 5

// readWhole hands over what a stream has for config, oldest first and each message once, and returns when there is no more.
// end is the number of the last message that is wanted; with 0, what is stored meanwhile is handed over as well. Where a
// reader falls silent, since the server is slow or since the rest was dropped, another one goes on after the last message.
//
// It returns the error of take as it is.
func (b *Bus) readWhole(
	ctx context.Context, stream string, config jetstream.ConsumerConfig, end uint64, take func(letter) error,
) error {
	var refused error
	taken := func(l letter) error {
		refused = take(l)
		return refused
	}
	for barren := 0; ; barren++ {
		last, err := b.readRest(ctx, stream, config, end, taken)
		if ctx.Err() != nil || refused != nil || !isSilence(err) || barren == mostBarren {
			return err
		}
		if last > 0 {
			barren = 0
			config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartSequencePolicy, nil
			config.OptStartSeq = last + 1
		}
	}
}

// readRest is one reader's part of [Bus.readWhole]. It returns the number of the last message that was handed over.
func (b *Bus) readRest(
	ctx context.Context, stream string, config jetstream.ConsumerConfig, end uint64, take func(letter) error,
) (last uint64, err error) {
	r, err := b.read(ctx, stream, config)
	if err != nil {
		return 0, err
	}
	defer r.close()
	return r.rest(ctx, end, take)
}

// rest hands over what r has to give, and returns the number of the last message that was.
func (r *reader) rest(ctx context.Context, end uint64, take func(letter) error) (last uint64, err error) {
	for left := r.pending; left > 0 && (end == 0 || last < end); {
		l, err := r.soon(ctx)
		if err != nil {
			return last, err
		}
		if end > 0 && l.Sequence > end {
			return last, nil
		}
		if err := take(l.letter); err != nil {
			return last, err
		}
		last, left = l.Sequence, l.after
	}
	return last, nil
}

// isSilence says whether there may be more to read for another reader.
func isSilence(err error) bool {
	return errors.Is(err, errSilence) || errors.Is(err, errGap) || errors.Is(err, jetstream.ErrNoHeartbeat) ||
		errors.Is(err, context.DeadlineExceeded) // the server did not answer in time
}

// errSilence says that no message came for a while.
var errSilence = errors.New("no message came")

// pendingLetter is a message of a stream that is read to its end, and how many come after it.
type pendingLetter struct {
	letter
	after uint64
}

// soon returns the next message. It fails with errSilence when none comes.
func (r *reader) soon(ctx context.Context) (*pendingLetter, error) {
	short, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	m, meta, err := r.next(short)
	if err == nil {
		return &pendingLetter{letterOf(m, meta), meta.NumPending}, nil
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return nil, errSilence
	}
	return nil, err
}
