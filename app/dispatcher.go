package app

import (
	"context"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions/dispatch"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/post"
)

// questions implements dispatch.Bus.
type questions struct{ *bus.Bus }

// Work implements dispatch.Bus. The policy may name a strategy that was unknown when the bus was set up.
func (q questions) Work(
	ctx context.Context, strategy string, parallel int, handle func(context.Context, schemas.Event) error,
) error {
	return q.Bus.Work(ctx, bus.Work{Strategy: strategy, Parallel: parallel, Make: true}, handle)
}

// Bury implements dispatch.Bus.
func (q questions) Bury(ctx context.Context, scope schemas.Event, why error) error {
	return q.Bus.Bury(ctx, bus.StreamScopes, scope, why)
}

func openAsker(b *bus.Bus, o policy.Outside) (dispatch.Asker, error) {
	if o.Subject != "" {
		return subjectAsker{bus: b, subject: o.Subject, timeout: o.Timeout}, nil
	}
	return post.New(post.Config{URL: o.URL, Timeout: o.Timeout, Connections: o.Parallel})
}

// subjectAsker asks a function over NATS. It implements dispatch.Asker.
type subjectAsker struct {
	bus     *bus.Bus
	subject string
	timeout time.Duration
}

// Ask implements dispatch.Asker.
func (a subjectAsker) Ask(ctx context.Context, scope schemas.Event) (reply schemas.Event, has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return a.bus.Ask(ctx, a.subject, scope)
}

// Close implements dispatch.Asker.
func (subjectAsker) Close() {}
