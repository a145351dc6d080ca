package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// The headers of a dead letter. All others, and the body, are from the message. The letter leaves out headers of the message
// that do not fit, and those that begin with rehome- or nats-.
const (
	HeaderError     = "Rehome-Error"     // the error, on one line
	HeaderSubject   = "Rehome-Subject"   // the channel of the message
	HeaderStream    = "Rehome-Stream"    // its stream, for other programs: Rehome reads it from the subject
	HeaderSequence  = "Rehome-Sequence"  // its sequence, with the epoch of the stream
	HeaderTruncated = "Rehome-Truncated" // the length of its body, if the body was cut

	HeaderHeadersTruncated = "Rehome-Headers-Truncated" // the number of its headers that did not fit, if any
)

const (
	// maxErrorText keeps an error that quotes its input from making the letter larger than the message.
	maxErrorText = 1024
	// letterHeaders is the least space for the additional headers of a dead letter. They need more only if the channel is long.
	letterHeaders = 4096
	// maxHeaders is the largest size of all headers together. JetStream refuses a message whose headers have 64 KiB.
	maxHeaders = 63 << 10
)

// deadSubject returns the subject of dead letters. Either argument may be a wildcard.
func deadSubject(stream, by string) string { return schemas.Prefix + ".dead." + stream + "." + by }

// Bury stores a copy of an event of a stream on rehome.dead.STREAM.BY with the headers above. BY is the strategy of a
// scope, and the role of this process for other events. The event stays in its stream. [Bus.Work], [Bus.Listen], and
// [Bus.FollowIntents] bury events by themselves.
func (b *Bus) Bury(ctx context.Context, stream string, e schemas.Event, why error) error {
	m, err := encode(e, compressAbove)
	if err != nil {
		m = &nats.Msg{Data: e.Data}
	}
	l := letter{Stream: stream, Subject: e.Channel, Sequence: e.Sequence, Stored: e.Time, Header: m.Header, Data: m.Data}
	by := b.name
	if token := strategyOf(e.Channel); stream == StreamScopes && token != "" {
		by, _ = schemas.FromToken(token)
	}
	return b.bury(ctx, l, cmp.Or(by, b.name), why)
}

// bury stores a dead letter. Burying the same message again within two minutes does nothing.
func (b *Bus) bury(ctx context.Context, l letter, by string, why error) error {
	m := deadLetter(l, by, why, int(b.nc.MaxPayload()))
	if _, err := b.publish(ctx, m); err != nil {
		return fmt.Errorf("bury message %d of %s: %w", l.Sequence, l.Stream, err)
	}
	b.log.Error("a message went to the dead letters", "stream", l.Stream, "channel", l.Subject,
		"sequence", l.number(), "by", by, "error", why)
	return nil
}

// deadLetter returns the message to publish, at most maxPayload bytes long unless that is 0.
func deadLetter(l letter, by string, why error, maxPayload int) *nats.Msg {
	m := nats.NewMsg(deadSubject(l.Stream, schemas.Token(by)))
	number := strconv.FormatUint(l.number(), 10)
	m.Header.Set(HeaderError, line(why.Error(), maxErrorText))
	m.Header.Set(HeaderSubject, l.Subject)
	m.Header.Set(HeaderStream, l.Stream)
	m.Header.Set(HeaderSequence, number)
	m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("%s|%s|%d|%s", l.Stream, number, l.Stored.UnixNano(), schemas.Token(by)))

	size, most := 256, maxHeaders // the first bytes are for the headers that say what was cut
	for key, values := range m.Header {
		size += headerSize(key, values)
	}
	size = max(size, letterHeaders)
	if maxPayload > 0 {
		most = min(most, maxPayload)
	}
	cut, theirs := 0, withoutOurs(l.Header) // headers for the server would be commands to it
	for _, key := range slices.Sorted(maps.Keys(theirs)) {
		n := headerSize(key, theirs[key])
		if size+n > most {
			cut++
			continue
		}
		m.Header[key] = theirs[key]
		size += n
	}
	if cut > 0 {
		m.Header.Set(HeaderHeadersTruncated, strconv.Itoa(cut))
	}
	m.Data = l.Data
	if rest := max(0, maxPayload-size); maxPayload > 0 && len(m.Data) > rest {
		m.Data = m.Data[:rest]
		m.Header.Set(HeaderTruncated, strconv.Itoa(len(l.Data)))
	}
	return m
}

// headerSize returns the number of bytes of a header in a message.
func headerSize(key string, values []string) (n int) {
	for _, v := range values {
		n += len(key) + len(v) + len(": \r\n")
	}
	return n
}

// line returns text on one line, cut to at most n bytes.
func line(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "")
	}
	return text
}

// DeadQuery selects dead letters. The zero value selects all.
type DeadQuery struct {
	// Stream is the stream of the message, such as [StreamScopes]. Empty means any.
	Stream string
	// By is the strategy, listener, or role that stored the letter. Empty means any.
	By string
	// Since excludes older letters, by the clock of the server. Zero excludes none.
	Since time.Time
}

// DeadLetter is a message that could not be read or handled, with the reason.
type DeadLetter struct {
	// Number identifies the letter. A later letter has a higher number; none is repeated until the stream is lost.
	Number uint64
	// Buried is when the letter was stored, by the clock of the server.
	Buried time.Time
	// By is the strategy, listener, or role that stored the letter.
	By string
	// Error is the error, on one line.
	Error string

	// Stream is the stream of the message. It comes from the subject of the letter, and only roles that read the stream can
	// publish there. Sequence is the number of the message with the epoch of the stream, and Channel is its channel; both are
	// claims of the letter. The three fields are empty in a message that another program stored among the letters.
	Stream   string
	Sequence uint64
	Channel  string
	// Header and Body are from the message.
	Header map[string][]string
	Body   []byte
	// WholeSize is the size of a body that was too large for a letter and was cut. Zero means that Body is complete.
	WholeSize int
	// HeadersCut is the number of headers that did not fit into the letter. Zero means that Header is complete.
	HeadersCut int
}

// Event reads the message as an event. It fails with an error that wraps [schemas.ErrInvalid] if it is not one.
func (d DeadLetter) Event() (schemas.Event, error) {
	l := letter{Stream: d.Stream, Subject: d.Channel, Sequence: d.Sequence, Header: d.Header, Data: d.Body}
	return l.event()
}

// DeadNumbers returns the numbers of the dead letters of a query, newest first. [Bus.DeadLetter] reads one of them. Its
// errors include [ErrNotConnected] and [ErrNotSetUp].
func (b *Bus) DeadNumbers(ctx context.Context, q DeadQuery) ([]uint64, error) {
	s := source{stream: StreamDead, since: q.Since}
	if q.Stream != "" || q.By != "" {
		by := "*"
		if q.By != "" {
			by = schemas.Token(q.By)
		}
		s.channels = []string{deadSubject(cmp.Or(q.Stream, "*"), by)}
	}
	numbers := []uint64{}
	err := b.do("list dead letters", func() error {
		if len(s.channels) == 0 {
			all, err := b.sequences(ctx, s)
			numbers = append(numbers, all...)
			return err
		}
		return b.list(ctx, s, func(l letter) error {
			numbers = append(numbers, l.Sequence)
			return nil
		})
	})
	slices.Reverse(numbers)
	return numbers, err
}

// DeadCounts returns the number of dead letters by the stream of their messages, without streams that have none. Its
// errors include [ErrNotConnected] and [ErrNotSetUp].
func (b *Bus) DeadCounts(ctx context.Context) (map[string]uint64, error) {
	counts := map[string]uint64{}
	err := b.do("count dead letters", func() error {
		subjects, err := b.subjects(ctx, StreamDead)
		for subject, n := range subjects {
			if _, tokens, ok := nounOf(subject); ok {
				counts[tokens[0]] += n
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// DeadLetter reads one dead letter. It fails with [ErrNoDeadLetter] if the number does not exist or was removed. Its
// errors include [ErrNotConnected] and [ErrNotSetUp].
func (b *Bus) DeadLetter(ctx context.Context, number uint64) (d DeadLetter, err error) {
	err = b.do(fmt.Sprintf("dead letter %d", number), func() error {
		l, err := b.get(ctx, StreamDead, number)
		if err != nil {
			return noDeadLetter(err)
		}
		d = deadLetterOf(l)
		return nil
	})
	return d, err
}

// DropDead removes a dead letter. It fails with [ErrNoDeadLetter] if the number does not exist or was removed. Its
// errors include [ErrNotConnected] and [ErrNotSetUp].
func (b *Bus) DropDead(ctx context.Context, number uint64) error {
	if err := b.drop(ctx, StreamDead, number); err != nil {
		return fmt.Errorf("drop dead letter %d: %w", number, noDeadLetter(err))
	}
	return nil
}

func noDeadLetter(err error) error {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return ErrNoDeadLetter
	}
	return err
}

// deadLetterOf restores the message from a letter of [deadLetter].
func deadLetterOf(l *letter) DeadLetter {
	d := DeadLetter{
		Number: l.Sequence, Buried: l.Stored.UTC(), Body: l.Data, Header: withoutOurs(l.Header),
		Error: l.Header.Get(HeaderError), Channel: l.Header.Get(HeaderSubject),
	}
	// Rehome did not write invalid numbers: they stay 0.
	d.Sequence, _ = strconv.ParseUint(l.Header.Get(HeaderSequence), 10, 64)
	d.WholeSize, _ = strconv.Atoi(l.Header.Get(HeaderTruncated))
	d.HeadersCut, _ = strconv.Atoi(l.Header.Get(HeaderHeadersTruncated))
	if _, tokens, ok := nounOf(l.Subject); ok && len(tokens) > 1 {
		d.Stream, d.By = tokens[0], strings.Join(tokens[1:], ".")
		if name, ok := schemas.FromToken(d.By); ok {
			d.By = name
		}
	}
	return d
}

// withoutOurs omits the headers of the letter, and of the server.
func withoutOurs(h nats.Header) map[string][]string {
	all := map[string][]string{}
	for key, values := range h {
		if lower := strings.ToLower(key); !strings.HasPrefix(lower, "rehome-") && !strings.HasPrefix(lower, "nats-") {
			all[key] = values
		}
	}
	return all
}

// RetryDead publishes the message of a dead letter again on its channel, removes the letter, and returns the new
// sequence. Repeating an interrupted retry is safe: the server stores the message once within two minutes.
//
// The stream comes from the subject of the letter, which the server has checked against the rights of the writer. A
// scope must belong to the strategy that buried it. An event of the history is copied from the history, not from the
// letter. Requests and maintenances are never published again, because their overrides would depend only on the letter.
//
// The error wraps [ErrNewer] if the stream has a newer scope or answer of the key, or if the table has the answer to a
// newer scope. It wraps [ErrNoDeadLetter], [ErrCut], or, if the message may not be published from a letter,
// [schemas.ErrInvalid]. Other errors are errors of [Bus.Publish]. The letter stays after any error.
func (b *Bus) RetryDead(ctx context.Context, number uint64) (sequence uint64, err error) {
	d, err := b.DeadLetter(ctx, number)
	if err != nil {
		return 0, fmt.Errorf("retry: %w", err)
	}
	if err := d.retriable(); err != nil {
		return 0, fmt.Errorf("retry dead letter %d: %w", number, err)
	}
	if err := b.do(fmt.Sprintf("retry dead letter %d", number), func() error {
		sequence, err = b.republish(ctx, d)
		return err
	}); err != nil {
		return 0, err
	}
	if err := b.drop(ctx, StreamDead, number); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return sequence, fmt.Errorf("retry dead letter %d: it is published, and not removed: %w", number, err)
	}
	return sequence, nil
}

// retriable returns an error if the message may not be published again. The writer of a letter chooses its headers and
// its body, so the channel must be in the stream of the letter's subject.
func (d DeadLetter) retriable() error {
	n, _, _ := nounOf(d.Channel)
	strategy := strategyOf(d.Channel)
	switch {
	case d.WholeSize > 0:
		return fmt.Errorf("%w: %d of its %d bytes are left", ErrCut, len(d.Body), d.WholeSize)
	case d.HeadersCut > 0:
		return fmt.Errorf("%w: %d of its headers are missing", ErrCut, d.HeadersCut)
	case d.Stream != StreamScopes && d.Stream != StreamIntents && d.Stream != StreamEvents, n.Stream != d.Stream,
		strings.ContainsAny(d.Channel, " \t\r\n*>"):
		return fmt.Errorf("%w: no event of stream %q is published on %q", schemas.ErrInvalid, d.Stream, d.Channel)
	case strategy == schemas.RequestStrategy, strategy == schemas.MaintenanceStrategy, n.Type == schemas.MaintenanceType:
		return fmt.Errorf("%w: cannot retry requests or maintenances (channel %q): create them again",
			schemas.ErrInvalid, d.Channel)
	case d.Stream == StreamScopes && strategy != schemas.Token(d.By):
		return fmt.Errorf("%w: the letter is from strategy %q, but channel %q belongs to another strategy",
			schemas.ErrInvalid, d.By, d.Channel)
	}
	return nil
}

// republish stores the message again, unless that was done before.
func (b *Bus) republish(ctx context.Context, d DeadLetter) (sequence uint64, err error) {
	if d.Stream == StreamEvents { // which keeps all messages of a subject
		l, err := b.get(ctx, StreamEvents, d.Sequence)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound), err == nil && l.Subject != d.Channel:
			return 0, fmt.Errorf("%w: the history has no message %d on %q (any more)", schemas.ErrInvalid, d.Sequence, d.Channel)
		case err != nil:
			return 0, err
		}
		d.Header, d.Body = withoutOurs(l.Header), l.Data
		ack, err := b.publish(ctx, d.message())
		if err != nil {
			return 0, err
		}
		return ack.Sequence, nil
	}
	s, err := b.open(ctx, d.Stream)
	if err != nil {
		return 0, err
	}
	from := epoch(s.CachedInfo())
	var already uint64
	sequence, err = b.insert(ctx, d.Stream, d.Channel, func(last *letter) (*nats.Msg, error) {
		switch {
		case last != nil && last.Header.Get(jetstream.MsgIDHeader) == d.retryID():
			already = last.Sequence
			return nil, nil
		case last != nil && last.Sequence+from > d.Sequence:
			return nil, fmt.Errorf("%w: %s has %d on %s, this was %d", ErrNewer, d.Stream, last.Sequence+from, d.Channel, d.Sequence)
		case d.Stream == StreamScopes:
			return d.message(), b.isUnanswered(ctx, d)
		}
		return d.message(), nil
	})
	if err != nil {
		return 0, err
	}
	return max(sequence, already) + from, nil
}

// isUnanswered fails with ErrNewer if a newer scope than the one of d is answered.
func (b *Bus) isUnanswered(ctx context.Context, d DeadLetter) error {
	answered := strings.TrimSuffix(IntentsChannels, ">") + strings.TrimPrefix(d.Channel, strings.TrimSuffix(ScopeChannels, ">"))
	e, err := b.Intents(ctx, answered)
	if err != nil {
		return err
	}
	if a, err := schemas.Decode[schemas.Intents](e); err == nil && a.Scope.Sequence > d.Sequence {
		return fmt.Errorf("%w: scope %d is answered, this was %d", ErrNewer, a.Scope.Sequence, d.Sequence)
	}
	return nil
}

// message returns the message with its own ID: the stream may still know the old ID, and would not store it.
func (d DeadLetter) message() *nats.Msg {
	m := &nats.Msg{Subject: d.Channel, Header: nats.Header{}, Data: d.Body}
	maps.Copy(m.Header, d.Header)
	m.Header.Set(jetstream.MsgIDHeader, d.retryID())
	return m
}

// retryID returns the same ID for every retry of this letter, and for no other letter.
func (d DeadLetter) retryID() string {
	return fmt.Sprintf("retried|%d|%d", d.Number, d.Buried.UnixNano())
}
