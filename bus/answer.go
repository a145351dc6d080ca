package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// answerTries bounds how often an answer is compared anew because another one came in between. Each time one of the
// writers wins, so only a key that many write to at once gets near it.
const answerTries = 16

// errOvertaken says that the table changed between reading and writing it.
var errOvertaken = errors.New("another answer came in between")

// Answer puts the answer a, which e carries, into the table, unless the table has the answer to a newer scope of the
// same key, or this very answer. An answer without intents is only put there where it withdraws
// something. None of these is an error: the answer is not needed. Answers may race; the one to the
// newest scope stands.
//
// The table keeps nothing of an answer that was not needed or was dropped, so it cannot tell that an answer that comes
// after those is older. Where several processes work on one strategy, ask [Bus.Current] before.
//
// Errors are those of [Bus.Publish]. That e cannot be published is only noticed when the answer is needed. Calling
// it again is safe.
func (b *Bus) Answer(ctx context.Context, e schemas.Event, a schemas.Intents) error {
	var err error
	for range answerTries {
		if err = b.answer(ctx, e, a); !errors.Is(err, errOvertaken) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("answer scope %s on %s: %w", a.Scope.Event, e.Channel, err)
	}
	return nil
}

// Current says whether a scope, as [Bus.Work] handed it over, still waits for its answer: no newer scope of its key has
// been published, and it was not answered by another worker.
func (b *Bus) Current(ctx context.Context, scope schemas.Event) (bool, error) {
	if !b.nc.IsConnected() {
		return false, b.link.disconnected()
	}
	scopes, err := b.stream(ctx, StreamScopes)
	if err != nil {
		return false, fmt.Errorf("look for scope %s: %w", scope.ID, err)
	}
	began := time.Now()
	_, err = scopes.GetMsg(ctx, scope.Sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, b.explain(began, fmt.Errorf("look for scope %s: %w", scope.ID, err))
	}
	return true, nil
}

func (b *Bus) answer(ctx context.Context, e schemas.Event, a schemas.Intents) error {
	stored, err := b.row(ctx, e.Channel)
	if err != nil {
		return err
	}
	if !needed(stored, e, a) { // which is most of them
		return nil
	}
	m, err := message(e)
	if err != nil {
		return err
	}
	_, err = b.publishAfter(ctx, m, stored.Sequence)
	return err
}

// publishAfter publishes m if the last message of its subject is that of a number; 0: if there is none. It fails with
// errOvertaken if it is another.
func (b *Bus) publishAfter(ctx context.Context, m *nats.Msg, last uint64) (*jetstream.PubAck, error) {
	ack, err := b.publish(ctx, m, jetstream.WithExpectLastSequencePerSubject(last))
	var refusal *jetstream.APIError
	if errors.As(err, &refusal) && (refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refusal.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return nil, errOvertaken
	}
	return ack, err
}

// row reads the answer that the table has on a channel. The zero Event: none. An answer that cannot be read has nothing
// but its sequence.
func (b *Bus) row(ctx context.Context, channel string) (schemas.Event, error) {
	m, err := b.last(ctx, StreamIntents, channel)
	if err != nil || m == nil {
		return schemas.Event{}, err
	}
	e, err := decode(m.Header, m.Data)
	if err != nil {
		e = schemas.Event{} // it is replaced like the answer to the oldest of scopes; whoever follows the table buries it
	}
	e.Channel, e.Sequence = m.Subject, m.Sequence
	return e, nil
}

// last is the last message that a stream has on a channel. nil: none.
func (b *Bus) last(ctx context.Context, name, channel string) (*jetstream.RawStreamMsg, error) {
	if !b.nc.IsConnected() {
		return nil, b.link.disconnected()
	}
	stream, err := b.stream(ctx, name)
	if err != nil {
		return nil, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, channel)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, notSetUp("stream "+name, err)
	}
	return m, nil
}

// needed says whether the answer a, carried by e, has to be written over what is stored.
func needed(stored, e schemas.Event, a schemas.Intents) bool {
	if stored.Sequence == 0 {
		return len(a.Intents) > 0
	}
	old, err := schemas.Decode[schemas.Intents](stored)
	switch {
	case err != nil:
		return true
	case old.Scope.Sequence > a.Scope.Sequence:
		return false
	case old.Scope.Sequence == a.Scope.Sequence && bytes.Equal(stored.Data, e.Data):
		return false
	}
	return len(a.Intents)+len(old.Intents) > 0
}
