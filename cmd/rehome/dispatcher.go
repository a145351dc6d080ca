package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions/dispatch"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/post"
)

func dispatcherCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dispatcher", Short: "Run the dispatcher: functions of the policy are asked over HTTP or NATS", Args: noArguments,
		Long: "Run the dispatcher: the strategies that the policy lists under `functions` are asked where it says, over HTTP or\n" +
			"NATS. It needs the bus and the policy, and no access to the cluster.",
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome dispatcher --policy policy.yaml",
	}
	return roleCommand(c, roles{dispatcher: true})
}

// newDispatcher makes what asks the functions that the policy sends elsewhere.
func (p *process) newDispatcher() (*dispatch.Dispatcher, error) {
	d, err := dispatch.New(dispatch.Config{
		Bus: questions{p.adapter()}, Open: func(o policy.Outside) (dispatch.Asker, error) { return openAsker(p.bus, o) },
		Source: p.settings.source("dispatcher"), Log: p.log, Metrics: p.metrics,
	})
	if err != nil {
		return nil, err
	}
	d.Set(p.policy.Outside)
	return d, nil
}

// questions implements dispatch.Bus.
type questions struct{ busAdapter }

// Work implements dispatch.Bus. The policy may name a strategy that nobody knew when the bus was set up.
func (q questions) Work(
	ctx context.Context, strategy string, parallel int, handle func(context.Context, schemas.Event) error,
) error {
	w := bus.Work{Strategy: strategy, Parallel: parallel, Make: true}
	return q.Bus.Work(ctx, w, func(ctx context.Context, e schemas.Event) error { return handle(ctx, q.taken(e)) })
}

// Bury implements dispatch.Bus.
func (q questions) Bury(ctx context.Context, scope schemas.Event, why error) error {
	return q.Bus.Bury(ctx, bus.StreamScopes, scope, why)
}

// openAsker makes what asks a function.
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
