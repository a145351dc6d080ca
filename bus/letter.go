package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// letter is a message of a stream as it is, whether or not it can be read.
type letter struct {
	Stream   string
	Subject  string
	Sequence uint64
	Stored   time.Time
	Header   nats.Header
	Data     []byte
}

func letterOf(m jetstream.Msg, meta *jetstream.MsgMetadata) letter {
	return letter{
		Stream: meta.Stream, Subject: m.Subject(), Sequence: meta.Sequence.Stream, Stored: meta.Timestamp,
		Header: m.Headers(), Data: m.Data(),
	}
}

// event reads the letter.
func (l letter) event() (schemas.Event, error) { return l.eventOf(mostData) }

// eventOf reads the letter, unless its data comes to more than most bytes when it is unpacked.
func (l letter) eventOf(most int) (schemas.Event, error) {
	e, err := decodeUpTo(most, l.Header, l.Data)
	if err != nil {
		return schemas.Event{}, fmt.Errorf("%s at %d of %s: %w", l.Subject, l.Sequence, l.Stream, err)
	}
	e.Channel, e.Sequence = l.Subject, l.Sequence
	return e, nil
}

// drop deletes a message of a stream. The error is [jetstream.ErrMsgNotFound] when it is not there.
func (b *Bus) drop(ctx context.Context, name string, sequence uint64) error {
	if !b.nc.IsConnected() {
		return b.link.disconnected()
	}
	began := time.Now()
	stream, err := b.stream(ctx, name)
	if err != nil {
		return b.explain(began, err)
	}
	err = stream.DeleteMsg(ctx, sequence)
	if !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return b.explain(began, err)
	}
	// The client gives the server's reason only as text, so ask whether the reason is that there is nothing to delete.
	_, getErr := stream.GetMsg(ctx, sequence)
	if errors.Is(getErr, jetstream.ErrMsgNotFound) {
		return getErr
	}
	return b.explain(began, errors.Join(err, getErr))
}
