package bus

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// refusal is a right that the user of a role does not have. It wraps [ErrNotPermitted].
type refusal struct {
	role    string
	verb    string // publish on, or subscribe to
	subject string
	cause   error
}

func (r *refusal) Error() string {
	return ErrNotPermitted.Error() + ": " + r.role + " may not " + r.verb + ` "` + r.subject + `"`
}

func (r *refusal) Unwrap() []error { return []error{ErrNotPermitted, r.cause} }

// violation is how a server says which right is missing.
func violation() *regexp.Regexp {
	return regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)
}

// refusalOf reads what the server said. nil: it is not about the right to a subject.
func refusalOf(role string, err error) *refusal {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	match := violation().FindStringSubmatch(err.Error())
	if match == nil {
		return nil
	}
	verb := "publish on"
	if strings.EqualFold(match[1], "subscription") {
		verb = "subscribe to"
	}
	return &refusal{role: role, verb: verb, subject: match[2], cause: err}
}

// guard ends a context when the server refuses a right that a call needs: the server answers such a call with nothing, so
// that the call would only time out.
type guard struct {
	subjects []string
	cancel   context.CancelCauseFunc
}

// needs says whether the guarded call needs a subject: one of its own, or one below it.
func (g *guard) needs(subject string) bool {
	return slices.ContainsFunc(g.subjects, func(s string) bool { return subject == s || strings.HasPrefix(subject, s+".") })
}

// guard returns a context that ends with the refusal of one of the subjects, or of what is below them, from now on. Without
// the right to the inbox no call has an answer, so that ends it too, also when that was refused before.
func (l *link) guard(ctx context.Context, subjects ...string) (guarded context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &guard{subjects, cancel}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf != nil {
		cancel(l.deaf)
	}
	l.guards[g] = struct{}{}
	return ctx, func() {
		l.mu.Lock()
		delete(l.guards, g)
		l.mu.Unlock()
		cancel(nil)
	}
}

// spread ends the calls that need what was refused. The lock is held.
func (l *link) spread(r *refusal) {
	deaf := r.verb == "subscribe to" && strings.HasPrefix(r.subject, l.inbox+".")
	if deaf {
		l.deaf = r
	}
	for g := range l.guards {
		if deaf || g.needs(r.subject) {
			g.cancel(r)
		}
	}
}

// because is the refusal that ended a guarded context, or err if it was not that.
func because(guarded context.Context, err error) error {
	if r, ok := errors.AsType[*refusal](context.Cause(guarded)); ok && err != nil {
		return r
	}
	return err
}

// permitted makes a call that needs the subjects. It fails with a refusal as soon as the server refuses one of them.
func permitted[T any](ctx context.Context, l *link, call func(context.Context) (T, error), subjects ...string) (T, error) {
	ctx, done := l.guard(ctx, subjects...)
	defer done()
	got, err := call(ctx)
	return got, because(ctx, err)
}

// api is what the subjects begin with by which a server is asked about streams and consumers.
const api = "$JS.API."

// guardedJS is JetStream whose calls fail at once when the server refuses them. What it does not have is as it was.
type guardedJS struct {
	jetstream.JetStream
	link *link
}

func (g guardedJS) guardStream(s jetstream.Stream, err error) (jetstream.Stream, error) {
	if err != nil {
		return nil, err
	}
	return guardedStream{s, s.CachedInfo().Config.Name, g.link}, nil
}

func (g guardedJS) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	return g.guardStream(permitted(ctx, g.link, func(ctx context.Context) (jetstream.Stream, error) {
		return g.JetStream.Stream(ctx, name)
	}, api+"STREAM.INFO."+name))
}

func (g guardedJS) CreateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	return g.guardStream(permitted(ctx, g.link, func(ctx context.Context) (jetstream.Stream, error) {
		return g.JetStream.CreateStream(ctx, c)
	}, api+"STREAM.CREATE."+c.Name))
}

func (g guardedJS) UpdateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	return g.guardStream(permitted(ctx, g.link, func(ctx context.Context) (jetstream.Stream, error) {
		return g.JetStream.UpdateStream(ctx, c)
	}, api+"STREAM.UPDATE."+c.Name))
}

func (g guardedJS) CreateConsumer(ctx context.Context, stream string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	return permitted(ctx, g.link, func(ctx context.Context) (jetstream.Consumer, error) {
		return g.JetStream.CreateConsumer(ctx, stream, c)
	}, api+"CONSUMER.CREATE."+stream)
}

func (g guardedJS) CreateOrUpdateConsumer(
	ctx context.Context, stream string, c jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	return permitted(ctx, g.link, func(ctx context.Context) (jetstream.Consumer, error) {
		return g.JetStream.CreateOrUpdateConsumer(ctx, stream, c)
	}, api+"CONSUMER.CREATE."+stream+"."+c.Durable)
}

func (g guardedJS) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	return permitted(ctx, g.link, func(ctx context.Context) (jetstream.Consumer, error) {
		return g.JetStream.Consumer(ctx, stream, name)
	}, api+"CONSUMER.INFO."+stream+"."+name)
}

func (g guardedJS) DeleteConsumer(ctx context.Context, stream, name string) error {
	_, err := permitted(ctx, g.link, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.JetStream.DeleteConsumer(ctx, stream, name)
	}, api+"CONSUMER.DELETE."+stream+"."+name)
	return err
}

func (g guardedJS) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	return permitted(ctx, g.link, func(ctx context.Context) (*jetstream.PubAck, error) {
		return g.JetStream.PublishMsg(ctx, m, o...)
	}, m.Subject)
}

func (g guardedJS) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	return permitted(ctx, g.link, func(ctx context.Context) (jetstream.KeyValue, error) {
		return g.JetStream.KeyValue(ctx, bucket)
	}, api+"STREAM.INFO.KV_"+bucket)
}

// guardedStream is a stream whose calls fail at once when the server refuses them.
type guardedStream struct {
	jetstream.Stream
	name string
	link *link
}

func (g guardedStream) Info(ctx context.Context, o ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	return permitted(ctx, g.link, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return g.Stream.Info(ctx, o...)
	}, api+"STREAM.INFO."+g.name)
}

func (g guardedStream) GetMsg(ctx context.Context, sequence uint64, o ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	return permitted(ctx, g.link, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return g.Stream.GetMsg(ctx, sequence, o...)
	}, api+"STREAM.MSG.GET."+g.name)
}

func (g guardedStream) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return permitted(ctx, g.link, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return g.Stream.GetLastMsgForSubject(ctx, subject)
	}, api+"STREAM.MSG.GET."+g.name)
}

func (g guardedStream) DeleteMsg(ctx context.Context, sequence uint64) error {
	_, err := permitted(ctx, g.link, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.Stream.DeleteMsg(ctx, sequence)
	}, api+"STREAM.MSG.DELETE."+g.name)
	return err
}

func (g guardedStream) Purge(ctx context.Context, o ...jetstream.StreamPurgeOpt) error {
	_, err := permitted(ctx, g.link, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.Stream.Purge(ctx, o...)
	}, api+"STREAM.PURGE."+g.name)
	return err
}
