package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// DeadQuery says which dead letters are meant. The zero value: all of them.
type DeadQuery struct {
	// Stream is the stream that the message was in, such as [StreamScopes]. Empty: any.
	Stream string
	// By is who buried it: a strategy, or the name of a bus. Empty: anyone.
	By string
	// Since leaves out what was buried before, by the clock of the server. Zero: nothing is left out.
	Since time.Time
}

// DeadLetter is a message that could not be read or worked on, and why.
type DeadLetter struct {
	// Number names the letter. A later letter has a higher one; none is given twice until the stream is lost.
	Number uint64
	// Buried is when the letter was stored, by the clock of the server.
	Buried time.Time
	// By is the strategy that could not work on the message, or the name of the bus that could not.
	By string
	// Error is what was wrong, on one line.
	Error string

	// Stream is the stream that the message was in, as the subject of the letter says, on which only roles that read that
	// stream can publish. Sequence is the message's number there, and Channel where it was published; both are claims of the
	// letter. They are empty in what another program stored among the letters.
	Stream   string
	Sequence uint64
	Channel  string
	// Header and Body are those of the message.
	Header map[string][]string
	Body   []byte
	// WholeSize is how many bytes the body had when it was too large for a letter and was cut. Zero: Body is whole.
	WholeSize int
}

// Event reads the message as an event. It fails with an error that wraps [schemas.ErrInvalid] when it is none.
func (d DeadLetter) Event() (schemas.Event, error) {
	l := letter{Stream: d.Stream, Subject: d.Channel, Sequence: d.Sequence, Header: d.Header, Data: d.Body}
	return l.event()
}

// DeadNumbers returns the numbers of the dead letters that q means, newest first. The letters themselves are read one at
// a time with [Bus.DeadLetter], as many as are wanted, so that a list can be shown a page at a time.
//
// It fails with [ErrNotConnected] and [ErrNotSetUp] among others.
func (b *Bus) DeadNumbers(ctx context.Context, q DeadQuery) ([]uint64, error) {
	if !b.nc.IsConnected() {
		return nil, fmt.Errorf("list dead letters: %w", b.link.disconnected())
	}
	began := time.Now()
	numbers := []uint64{}
	err := b.readWhole(ctx, StreamDead, q.config(), 0, func(l letter) error {
		numbers = append(numbers, l.Sequence)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", b.explain(began, err))
	}
	slices.Reverse(numbers)
	return numbers, nil
}

// config asks for the letters without their bodies: there can be a hundred megabytes of them.
func (q DeadQuery) config() jetstream.ConsumerConfig {
	filter := DeadChannels
	if q.Stream != "" || q.By != "" {
		by := "*"
		if q.By != "" {
			by = schemas.Token(q.By)
		}
		filter = deadSubjects + cmp.Or(q.Stream, "*") + "." + by
	}
	c := jetstream.ConsumerConfig{FilterSubjects: []string{filter}, HeadersOnly: true}
	if !q.Since.IsZero() {
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
	}
	return c
}

// DeadLetter reads one dead letter. It fails with [ErrNoDeadLetter] when there is none of that number, or none any more,
// and with [ErrNotConnected] and [ErrNotSetUp] among others.
func (b *Bus) DeadLetter(ctx context.Context, number uint64) (DeadLetter, error) {
	if !b.nc.IsConnected() {
		return DeadLetter{}, fmt.Errorf("dead letter %d: %w", number, b.link.disconnected())
	}
	began := time.Now()
	m, err := b.dead(ctx, number)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return DeadLetter{}, fmt.Errorf("dead letter %d: %w", number, ErrNoDeadLetter)
	}
	if err != nil {
		return DeadLetter{}, fmt.Errorf("dead letter %d: %w", number, b.explain(began, err))
	}
	return deadLetterOf(m), nil
}

func (b *Bus) dead(ctx context.Context, number uint64) (*jetstream.RawStreamMsg, error) {
	if number == 0 { // the server does not understand the question
		return nil, jetstream.ErrMsgNotFound
	}
	stream, err := b.stream(ctx, StreamDead)
	if err != nil {
		return nil, err
	}
	m, err := stream.GetMsg(ctx, number)
	if err != nil {
		return nil, notSetUp("stream "+StreamDead, err)
	}
	return m, nil
}

// deadLetterOf takes the message out of the letter that it was put into by [deadLetter].
func deadLetterOf(m *jetstream.RawStreamMsg) DeadLetter {
	d := DeadLetter{
		Number: m.Sequence, Buried: m.Time.UTC(), Body: m.Data, Header: map[string][]string{},
		Error: m.Header.Get(HeaderError), Channel: m.Header.Get(HeaderSubject),
	}
	// What is not a number was not written by Rehome: it stays 0.
	d.Sequence, _ = strconv.ParseUint(m.Header.Get(HeaderSequence), 10, 64)
	d.WholeSize, _ = strconv.Atoi(m.Header.Get(HeaderTruncated))
	if stream, by, ok := strings.Cut(strings.TrimPrefix(m.Subject, deadSubjects), "."); ok {
		d.Stream, d.By = stream, by
		if name, ok := schemas.FromToken(by); ok {
			d.By = name
		}
	}
	for key, values := range m.Header {
		if !isOfLetter(key) {
			d.Header[key] = values
		}
	}
	return d
}

// isOfLetter says whether a header is one of the letter, and not of the message in it.
func isOfLetter(key string) bool {
	key = strings.ToLower(key)
	return strings.HasPrefix(key, "rehome-") || strings.HasPrefix(key, "nats-")
}

// DropDead removes a dead letter. It fails with [ErrNoDeadLetter] when there is none of that number, or none any more, and
// with [ErrNotConnected] and [ErrNotSetUp] among others.
func (b *Bus) DropDead(ctx context.Context, number uint64) error {
	err := ErrNoDeadLetter
	if number > 0 {
		err = b.drop(ctx, StreamDead, number)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = ErrNoDeadLetter
	}
	if err != nil {
		return fmt.Errorf("drop dead letter %d: %w", number, err)
	}
	return nil
}
