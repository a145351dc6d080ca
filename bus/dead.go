package bus

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// The headers of a dead letter. All others, and the body, are those of the message.
const (
	HeaderError     = "Rehome-Error"     // what was wrong, on one line
	HeaderSubject   = "Rehome-Subject"   // where the message was published
	HeaderStream    = "Rehome-Stream"    // the stream it was in, for other programs: Rehome takes it from the subject
	HeaderSequence  = "Rehome-Sequence"  // its number in that stream
	HeaderTruncated = "Rehome-Truncated" // how long its body was, if it had to be cut
)

// deadSubjects is what the subject of a dead letter begins with.
const deadSubjects = schemas.Prefix + ".dead."

const (
	// maxErrorText keeps an error that quotes its input from making the letter larger than the message was.
	maxErrorText = 1024
	// letterRoom is what the headers of a dead letter may need beyond those of the message.
	letterRoom = 4096
)

// Bury stores a copy of the event e, as it came from stream, on rehome.dead.STREAM.BY with the headers above. BY is the
// strategy of a scope, and the name of this bus for every other event. It does not remove e from its stream. [Bus.Work] and
// [Bus.FollowIntents] bury by themselves what their handlers call invalid.
func (b *Bus) Bury(ctx context.Context, stream string, e schemas.Event, why error) error {
	m, err := encode(e)
	if err != nil {
		m = &nats.Msg{Data: e.Data}
	}
	l := letter{
		Stream: stream, Subject: e.Channel, Sequence: e.Sequence, Stored: e.Time, Header: m.Header, Data: m.Data,
	}
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
		"sequence", l.Sequence, "by", by, "error", why)
	return nil
}

// deadLetter is the message to publish, at most maxPayload bytes long if that is not 0.
func deadLetter(l letter, by string, why error, maxPayload int) *nats.Msg {
	m := nats.NewMsg(deadSubjects + l.Stream + "." + schemas.Token(by))
	maps.Copy(m.Header, l.Header)
	for key := range m.Header {
		if strings.HasPrefix(strings.ToLower(key), "nats-") { // they would tell the server what to do
			delete(m.Header, key)
		}
	}
	m.Data = l.Data
	if room := max(0, maxPayload-letterRoom-headerSize(l.Header)); maxPayload > 0 && len(m.Data) > room {
		m.Data = m.Data[:room]
		m.Header.Set(HeaderTruncated, strconv.Itoa(len(l.Data)))
	}
	m.Header.Set(HeaderError, line(why.Error(), maxErrorText))
	m.Header.Set(HeaderSubject, l.Subject)
	m.Header.Set(HeaderStream, l.Stream)
	m.Header.Set(HeaderSequence, strconv.FormatUint(l.Sequence, 10))
	m.Header.Set(jetstream.MsgIDHeader,
		fmt.Sprintf("%s|%d|%d|%s", l.Stream, l.Sequence, l.Stored.UnixNano(), schemas.Token(by)))
	return m
}

func headerSize(h nats.Header) int {
	size := 0
	for key, values := range h {
		for _, v := range values {
			size += len(key) + len(v) + len(": \r\n")
		}
	}
	return size
}

// line is text on one line, cut to at most n bytes.
func line(text string, n int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "")
	}
	return text
}
