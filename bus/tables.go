package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/schemas"
)

// tableRetries returns the delays before rows whose handler failed are delivered again.
func tableRetries() backoff { return backoff{first: 200 * time.Millisecond, most: 10 * time.Second} }

// followTable calls take with every message of a table, oldest first, and then with each new one, one at a time, until ctx ends.
// After a loss of the connection it begins with the whole table again. It logs an error of take, and the message comes again
// after a growing delay unless a newer one of its subject has come. The context of take ends with the connection.
func (b *Bus) followTable(ctx context.Context, stream string, take func(context.Context, letter) error) {
	b.forever(ctx, "stream "+stream, func(ctx context.Context) error {
		s, err := b.open(ctx, stream)
		if err != nil {
			return err
		}
		r, err := b.read(ctx, source{stream: stream}, 0, s)
		if err != nil {
			return err
		}
		defer r.close()
		failed, failures, due := map[string]letter{}, 0, time.Time{}
		try := func(l letter) {
			delete(failed, l.Subject)
			if err := take(ctx, l); err != nil && ctx.Err() == nil {
				failed[l.Subject] = l
				b.log.Warn("cannot handle a message; retrying", "stream", stream, "channel", l.Subject, "error", err)
			}
		}
		for {
			wait, cancel := ctx, func() {}
			if len(failed) > 0 {
				wait, cancel = context.WithDeadline(ctx, due)
			}
			l, err := r.next(wait)
			isDue := wait.Err() != nil
			cancel()
			switch {
			case err == nil:
				try(l)
			case ctx.Err() == nil && isDue:
				for _, l := range slices.Collect(maps.Values(failed)) {
					try(l)
				}
				due = time.Time{}
			default:
				return err
			}
			if len(failed) == 0 {
				failures, due = 0, time.Time{}
			} else if due.IsZero() {
				failures++
				due = time.Now().Add(tableRetries().after(failures))
			}
		}
	})
}

// FollowIntents calls handle with every intents message of the table, oldest first, and then with each new one, one at a time,
// until ctx ends. Then it returns nil. After a loss of the connection it begins with the whole table again: a message can come
// more than once.
//
// A message that is no event, or whose handler returns an error that wraps [schemas.ErrInvalid], goes to the dead letters and is
// dropped from the table. After any other error the message comes again after a growing delay, up to 10 s, unless a newer one has
// come; others do not wait. The context of handle is ctx.
//
// Intents of another installation go to the dead letters, and so do intents of a request that do not agree with an accepted
// request. Intents of a request that is not open are dropped.
func (b *Bus) FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error {
	b.followTable(ctx, StreamIntents, func(connected context.Context, l letter) error {
		e, err := l.event()
		open := true
		if want := b.installation.Load().ID(); err == nil && e.Installation != "" && want != "" && e.Installation != want {
			err = fmt.Errorf("event %s: %w: its installation is %.200s, want %s", e.ID, schemas.ErrInvalid, e.Installation, want)
		}
		if err == nil && strategyOf(l.Subject) == schemas.RequestStrategy {
			open, err = b.requested(connected, e)
		}
		if err == nil && open {
			err = handle(ctx, b.taken(e)) // undisturbed by the loss of the connection
		}
		if err != nil && !errors.Is(err, schemas.ErrInvalid) {
			return err
		}
		if err != nil {
			if err := b.bury(connected, l, b.name, err); err != nil {
				return err
			}
		} else if open {
			return nil
		}
		return b.DropIntents(connected, schemas.Event{Channel: l.Subject, Sequence: l.number()})
	})
	return nil
}

// requested compares the intents of a request with the stored request and with the receipt of the watcher. So overrides depend on
// the request, which was checked against the policy, and not on the process that answers its scopes. open is false if the request
// is not open. An error that wraps [schemas.ErrInvalid] describes the difference.
func (b *Bus) requested(ctx context.Context, e schemas.Event) (open bool, err error) {
	a, err := schemas.Decode[schemas.Intents](e)
	if err != nil || a.Strategy != schemas.RequestStrategy || len(a.Intents) == 0 {
		return true, nil //nolint:nilerr // the actuator reads the event again and reports the error
	}
	sender, name, _ := strings.Cut(a.Scope.Key, "/")
	request, accepted, open, err := b.AcceptedRequest(ctx, sender, name)
	if err != nil || !open {
		return false, err
	}
	if a.Profile != accepted.Profile {
		return false, fmt.Errorf("event %s: %w: its profile is %q, and the request was accepted for %q",
			e.ID, schemas.ErrInvalid, a.Profile, accepted.Profile)
	}
	for i, intent := range a.Intents {
		if !slices.ContainsFunc(accepted.Pods, func(p schemas.RequestedPod) bool { return p.Pod == intent.Pod }) {
			return false, fmt.Errorf("event %s: %w: intents[%d].pod is not among the pods of the accepted request",
				e.ID, schemas.ErrInvalid, i)
		}
		if !reflect.DeepEqual(intent.Asked, request.Asked()) {
			return false, fmt.Errorf("event %s: %w: intents[%d].asked differs from the options of the accepted request",
				e.ID, schemas.ErrInvalid, i)
		}
	}
	return true, nil
}

// DropIntents removes a message of [Bus.FollowIntents] from the table, unless it is gone or replaced already.
func (b *Bus) DropIntents(ctx context.Context, e schemas.Event) error {
	return b.dropRow(ctx, StreamIntents, e)
}

// DropRequest removes a request of [Bus.FollowRequests] from the table, unless it is gone already.
func (b *Bus) DropRequest(ctx context.Context, e schemas.Event) error {
	return b.dropRow(ctx, StreamRequests, e)
}

func (b *Bus) dropRow(ctx context.Context, stream string, e schemas.Event) error {
	if err := b.drop(ctx, stream, e.Sequence); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("%s on %s: %w", e.ID, e.Channel, err)
	}
	return nil
}

// Intents returns the intents message in the table for a channel, or the zero Event if it is missing or unreadable.
func (b *Bus) Intents(ctx context.Context, channel string) (schemas.Event, error) {
	return b.lastEvent(ctx, StreamIntents, channel)
}

// lastEvent returns the last event of a stream on a channel, or the zero Event if it is missing or unreadable.
func (b *Bus) lastEvent(ctx context.Context, stream, channel string) (schemas.Event, error) {
	l, err := b.last(ctx, stream, channel)
	if err != nil || l == nil {
		return schemas.Event{}, err
	}
	e, err := l.event()
	if err != nil {
		b.log.Warn("cannot read a stored event", "channel", channel, "error", err)
		return schemas.Event{}, nil
	}
	return e, nil
}

// IntentsSequence returns the number of the last intents message. A later message has a higher number, even after the stream was
// lost.
func (b *Bus) IntentsSequence(ctx context.Context) (sequence uint64, err error) {
	err = b.do("last intents", func() error {
		s, err := b.open(ctx, StreamIntents)
		if err != nil {
			return err
		}
		sequence = s.CachedInfo().State.LastSeq + epoch(s.CachedInfo())
		return nil
	})
	return sequence, err
}

// AnsweredScopes returns the scopes that wait for an answer, and those with an answer in the table, from the subjects of both.
// Only Kind, Key, Profile, and Strategy are set. A scope can be listed twice.
func (b *Bus) AnsweredScopes(ctx context.Context) (heads []schemas.ScopeHead, err error) {
	err = b.do("list the scopes", func() error {
		for _, name := range []string{StreamScopes, StreamIntents} {
			subjects, err := b.subjects(ctx, name)
			if err != nil {
				return err
			}
			for subject := range subjects {
				if h, ok := headOf(subject); ok {
					heads = append(heads, h)
				}
			}
		}
		return nil
	})
	return heads, err
}

// subjects returns the number of messages of a stream by subject.
func (b *Bus) subjects(ctx context.Context, stream string) (map[string]uint64, error) {
	s, err := b.stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return nil, notSetUp("stream "+stream, err)
	}
	counts := make(map[string]uint64, len(info.State.Subjects))
	for subject, n := range info.State.Subjects {
		counts[b.js.prefix.cut(subject)] = n
	}
	return counts, nil
}

// headOf parses the subject of a scope or of intents. ok is false for any other subject.
func headOf(subject string) (h schemas.ScopeHead, ok bool) {
	_, tokens, _ := nounOf(subject)
	if strategyOf(subject) == "" || len(tokens) != 4 {
		return h, false
	}
	var names [4]string
	for i, token := range tokens {
		if names[i], ok = schemas.FromToken(token); !ok {
			return h, false
		}
	}
	return schemas.ScopeHead{Strategy: names[0], Profile: names[1], Kind: schemas.ScopeKind(names[2]), Key: names[3]}, true
}

// FollowRequests calls handle with every open request, oldest first, and then with each new one, like [Bus.FollowIntents]. stored
// is when the server stored it, by the clock of the server.
//
// Only Channel and Sequence of the event are set until handle calls read, so a request that is dropped unread costs little,
// however large it is uncompressed. A message that is not a request, or has more than 1 MiB of data, is also delivered, because
// its sender waits for a receipt: as an event without a type, with the same ID every time.
func (b *Bus) FollowRequests(
	ctx context.Context, handle func(ctx context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error,
) error {
	b.followTable(ctx, StreamRequests, func(_ context.Context, l letter) error {
		e := schemas.Event{Channel: l.Subject, Sequence: l.number()}
		return handle(ctx, e, l.Stored, func() schemas.Event { return b.taken(l.request()) })
	})
	return nil
}

// request decodes a letter that is a request.
func (l letter) request() schemas.Event {
	e, err := l.event()
	if err != nil {
		id := fmt.Sprintf("%s.%d", strings.ToLower(StreamRequests), l.number())
		e = schemas.Event{ID: id, CorrelationID: id, Channel: l.Subject, Sequence: l.number(), Data: l.Data}
	}
	return e
}

// HasRequest reports whether the request e from [Bus.FollowRequests] is still open.
func (b *Bus) HasRequest(ctx context.Context, e schemas.Event) (open bool, err error) {
	return b.has(ctx, StreamRequests, e)
}

// has reports whether a stream still has the message of an event.
func (b *Bus) has(ctx context.Context, stream string, e schemas.Event) (has bool, err error) {
	err = b.do("look for the message on "+e.Channel, func() error {
		_, err := b.get(ctx, stream, e.Sequence)
		if has = err == nil; errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		return err
	})
	return has, err
}

// OpenRequest is a request that is not finished.
type OpenRequest struct {
	schemas.Request
	// Sequence is the number of its message, for [Bus.DropRequest].
	Sequence uint64
	// Stored is when the server stored it, by its clock.
	Stored time.Time
}

// maxOpen limits the open requests that a process keeps at once, as JSON. The maximum number of requests with some 3 KiB each
// fits. The limits of the stream hold for compressed data.
const maxOpen = 32 << 20

// OpenRequests returns the open requests, oldest first. It omits messages that are not requests of their channels, and requests
// with too long lists, which the watcher rejects. It also omits requests that make the result larger than 32 MiB. Its errors
// include [ErrNotConnected] and [ErrNotSetUp].
func (b *Bus) OpenRequests(ctx context.Context) (open []OpenRequest, err error) {
	left, omitted := maxOpen, 0
	err = b.do("read requests", func() error {
		return b.list(ctx, source{stream: StreamRequests}, func(l letter) error {
			r, ok := l.openRequest()
			if !ok {
				return nil
			}
			text, err := json.Marshal(r)
			if err != nil || len(text) > left {
				omitted++
				return nil //nolint:nilerr // it is counted
			}
			left -= len(text)
			open = append(open, OpenRequest{r, l.number(), l.Stored})
			return nil
		})
	})
	if omitted > 0 {
		b.log.Warn("the open requests are too large; omitting some", "omitted", omitted)
	}
	return open, err
}

// OpenRequest returns the open request of a sender and a name, without its Sequence. It returns nil if there is none that
// [Bus.OpenRequests] could return.
func (b *Bus) OpenRequest(ctx context.Context, sender, name string) (*OpenRequest, error) {
	l, err := b.last(ctx, StreamRequests, schemas.Request{Sender: sender, Name: name}.Channel())
	if err != nil || l == nil {
		return nil, err
	}
	r, ok := l.openRequest()
	if !ok {
		return nil, nil
	}
	return &OpenRequest{Request: r, Stored: l.Stored}, nil
}

// openRequest decodes a request. ok is false if the watcher rejects it.
func (l letter) openRequest() (r schemas.Request, ok bool) {
	e, err := l.event()
	if err != nil {
		return r, false
	}
	r, err = schemas.Decode[schemas.Request](e)
	return r, err == nil && r.Channel() == l.Subject && !hasLongList(r)
}

// hasLongList reports whether a list of the request is too long. Empty entries of a list need far more memory than JSON.
func hasLongList(r schemas.Request) bool {
	const guards = 3 // that Force can have
	return len(r.Override) > schemas.MaxOverride || r.Target != nil && len(r.Target.Pods) > schemas.MaxRequestPods ||
		r.Maintenance != nil && len(r.Maintenance.Force) > guards
}

// Receipt returns the last receipt for a sender and a name from the history, or the zero Event if it is missing or unreadable.
func (b *Bus) Receipt(ctx context.Context, sender, name string) (schemas.Event, error) {
	return b.lastEvent(ctx, StreamEvents, schemas.Receipt{Sender: sender, Name: name}.Channel())
}

// FinishedReceipt returns the last receipt of a finished request for a sender and a name, or the zero Event if there is none. It
// reads all receipts of the name.
func (b *Bus) FinishedReceipt(ctx context.Context, sender, name string) (finished schemas.Event, err error) {
	query := Query{Channels: []string{schemas.Receipt{Sender: sender, Name: name}.Channel()}, Since: time.Unix(0, 0)}
	err = b.Events(ctx, query, func(e schemas.Event) error {
		if r, err := schemas.Decode[schemas.Receipt](e); err == nil && r.State == schemas.RequestFinished {
			finished = e
		}
		return nil
	})
	return finished, err
}

// AcceptedRequest returns an open request in its original form, which only the sender can publish, and the receipt with which the
// watcher accepted it. The key of maintenance can also publish this receipt, because all receipts of a sender have the same
// subjects. ok is false if there is no such request, or if its last receipt is another one.
func (b *Bus) AcceptedRequest(
	ctx context.Context, sender, name string,
) (request schemas.Request, accepted schemas.Receipt, ok bool, err error) {
	told, err := b.Receipt(ctx, sender, name)
	if err != nil || told.ID == "" {
		return request, accepted, false, err
	}
	accepted, err = schemas.Decode[schemas.Receipt](told)
	if err != nil || accepted.State != schemas.RequestAccepted {
		return request, accepted, false, nil //nolint:nilerr // the watcher writes only readable receipts
	}
	l, err := b.last(ctx, StreamRequests, schemas.Request{Sender: sender, Name: name}.Channel())
	if err != nil || l == nil {
		return request, accepted, false, err
	}
	e := l.request()
	request, err = schemas.Decode[schemas.Request](e)
	return request, accepted, err == nil && e.ID == told.CausationID, nil
}
