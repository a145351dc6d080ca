package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// RetryDead publishes the message of a dead letter again where it was, and then removes the letter. It returns the number that
// its stream gave the message. A retry that was interrupted can be repeated: within two minutes the message is stored once,
// also if it has been worked on in the meantime.
//
// A letter is only published where the role that wrote it works: the stream follows from the subject of the letter, which the
// NATS server has checked against the rights of the writer. A scope must be of the strategy that buried it. An event of the
// history is copied from the history, not from the letter. Requests and maintenances are never published again, in any form:
// their overrides would then rest on the word of the letter alone.
//
// The newest scope and the newest answer of a key stand. So one is refused with an error that wraps [ErrNewer] when its stream
// has a newer one, and a scope also when the table has the answer to a newer one. A newer one that has left no trace in the
// table is not known; then an old scope is evaluated, or an old answer put into the table.
//
// It fails with [ErrNoDeadLetter], [ErrCut] or [ErrNewer], and with an error that wraps [schemas.ErrInvalid] when the message
// may not be published from a letter. Then it has published nothing. Other errors are those of [Bus.Publish]. In any case the
// letter stays when it fails.
func (b *Bus) RetryDead(ctx context.Context, number uint64) (sequence uint64, err error) {
	d, err := b.DeadLetter(ctx, number)
	if err != nil {
		return 0, fmt.Errorf("retry: %w", err)
	}
	if err = d.retriable(); err == nil {
		sequence, err = b.republish(ctx, d)
	}
	if err != nil {
		return 0, fmt.Errorf("retry dead letter %d: %w", number, err)
	}
	if err := b.drop(ctx, StreamDead, number); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return sequence, fmt.Errorf("retry dead letter %d: it is published, and not removed: %w", number, err)
	}
	return sequence, nil
}

// retriable returns an error if the message of a letter may not be published again. The writer of a letter chooses its headers
// and its body, so that the channel is only taken if it lies in the stream of the letter's own subject.
func (d DeadLetter) retriable() error {
	strategy := strategyOf(d.Channel)
	switch {
	case d.WholeSize > 0:
		return fmt.Errorf("%w: %d of its %d bytes are left", ErrCut, len(d.Body), d.WholeSize)
	case d.Stream != StreamScopes && d.Stream != StreamIntents && d.Stream != StreamEvents, streamOf(d.Channel) != d.Stream,
		strings.ContainsAny(d.Channel, " \t\r\n*>"):
		return fmt.Errorf("%w: no event of stream %q is published on %q", schemas.ErrInvalid, d.Stream, d.Channel)
	case strategy == schemas.RequestStrategy, strategy == schemas.MaintenanceStrategy, hasPrefix(d.Channel, MaintenanceChannels):
		return fmt.Errorf("%w: requests and maintenances are not published from letters, on %q: make them again",
			schemas.ErrInvalid, d.Channel)
	case d.Stream == StreamScopes && strategy != schemas.Token(d.By):
		return fmt.Errorf("%w: the strategy %q buries no scope of another, on %q", schemas.ErrInvalid, d.By, d.Channel)
	}
	return nil
}

// strategyOf is the token of the strategy in the channel of a scope or of an answer. Empty: it is neither.
func strategyOf(channel string) string {
	for _, filter := range []string{ScopeChannels, IntentsChannels} {
		if rest, ok := strings.CutPrefix(channel, strings.TrimSuffix(filter, ">")); ok {
			token, _, _ := strings.Cut(rest, ".")
			return token
		}
	}
	return ""
}

// fromHistory is d with the header and the body that the history has under its number.
func (b *Bus) fromHistory(ctx context.Context, d DeadLetter) (DeadLetter, error) {
	stream, err := b.stream(ctx, StreamEvents)
	if err != nil {
		return d, err
	}
	var stored *jetstream.RawStreamMsg
	if d.Sequence > 0 { // the server does not understand the question for 0
		if stored, err = stream.GetMsg(ctx, d.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return d, notSetUp("stream "+StreamEvents, err)
		}
	}
	if stored == nil || stored.Subject != d.Channel {
		return d, fmt.Errorf("%w: the history has no message %d on %q (any more)", schemas.ErrInvalid, d.Sequence, d.Channel)
	}
	d.Header, d.Body = map[string][]string{}, stored.Data
	for key, values := range stored.Header {
		if !isOfLetter(key) {
			d.Header[key] = values
		}
	}
	return d, nil
}

// republish stores the message again, unless that was done before.
func (b *Bus) republish(ctx context.Context, d DeadLetter) (sequence uint64, err error) {
	if d.Stream == StreamEvents { // which keeps all messages of a subject
		began := time.Now()
		if d, err = b.fromHistory(ctx, d); err != nil {
			return 0, b.explain(began, err)
		}
		ack, err := b.publish(ctx, d.message())
		if err != nil {
			return 0, err
		}
		return ack.Sequence, nil
	}
	m := d.message()
	for range answerTries {
		last, err := b.last(ctx, d.Stream, d.Channel)
		if err != nil {
			return 0, err
		}
		if last == nil {
			last = &jetstream.RawStreamMsg{}
		}
		if last.Header.Get(jetstream.MsgIDHeader) == d.retryID() {
			return last.Sequence, nil
		}
		if err := b.isNewest(ctx, d, last); err != nil {
			return 0, err
		}
		ack, err := b.publishAfter(ctx, m, last.Sequence)
		if err == nil {
			return ack.Sequence, nil
		}
		if !errors.Is(err, errOvertaken) {
			return 0, err
		}
	}
	return 0, errOvertaken
}

// isNewest fails with ErrNewer when the last message on the channel of d is newer than that of d, or the scope of d is
// older than one that was answered.
func (b *Bus) isNewest(ctx context.Context, d DeadLetter, last *jetstream.RawStreamMsg) error {
	if n := bornAs(last); n > d.Sequence {
		return fmt.Errorf("%w: %s has %d on %s, this was %d", ErrNewer, d.Stream, last.Sequence, d.Channel, d.Sequence)
	}
	if d.Stream != StreamScopes {
		return nil
	}
	answered := strings.TrimSuffix(IntentsChannels, ">") + strings.TrimPrefix(d.Channel, strings.TrimSuffix(ScopeChannels, ">"))
	e, err := b.row(ctx, answered)
	if err != nil {
		return err
	}
	if a, err := schemas.Decode[schemas.Intents](e); err == nil && a.Scope.Sequence > d.Sequence {
		return fmt.Errorf("%w: scope %d is answered, this was %d", ErrNewer, a.Scope.Sequence, d.Sequence)
	}
	return nil
}

// message is the message of the letter, as it was but for the ID by which its stream knows it again: it still knows the
// old one, if there was one, and would not store it.
func (d DeadLetter) message() *nats.Msg {
	m := &nats.Msg{Subject: d.Channel, Header: nats.Header{}, Data: d.Body}
	maps.Copy(m.Header, d.Header)
	m.Header.Set(jetstream.MsgIDHeader, d.retryID())
	return m
}

// retried is what the ID of a message that was published again begins with.
const retried = "retried|"

// retryID is the same for every retry of this letter, and for no other letter. It ends with the number that the message
// had at first.
func (d DeadLetter) retryID() string {
	return fmt.Sprintf("%s%d|%d|%d", retried, d.Number, d.Buried.UnixNano(), d.Sequence)
}

// bornAs is the number that a message had when it was published for the first time, which says how old it is.
func bornAs(m *jetstream.RawStreamMsg) uint64 {
	if id := m.Header.Get(jetstream.MsgIDHeader); strings.HasPrefix(id, retried) {
		if n, err := strconv.ParseUint(id[strings.LastIndex(id, "|")+1:], 10, 64); err == nil {
			return n
		}
	}
	return m.Sequence
}
