package cmdutil

import (
	"context"
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/api/client"
	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// onAPI accesses Rehome through its API.
type onAPI struct {
	*client.Client
	source string // of requests
	done   func()
}

// openAPI refuses flags that only apply to the bus.
func (f *Flags) openAPI(c client.Config, done func()) (Installation, error) {
	for flag, why := range map[string]string{
		"policy": "the API uses the policy of the installation",
		"sender": "requests to the API have the sender " + policy.HTTPSender,
	} {
		if given := f.c.Flags().Lookup(flag); given != nil && given.Changed && given.Value.String() != policy.HTTPSender {
			return nil, fmt.Errorf("--%s: want it with a bus: %s", flag, why)
		}
	}
	c.Notes = func(text string) { fmt.Fprintln(f.c.ErrOrStderr(), text) }
	api, err := client.New(c)
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	return onAPI{api, f.Source("cli"), done}, nil
}

func (o onAPI) Close() {
	o.Client.Close()
	o.done()
}

func (o onAPI) Sender() string { return policy.HTTPSender }

func (o onAPI) Status(ctx context.Context, _ StatusQuery) (st client.State, err error) {
	err = o.State(ctx, &st)
	return st, err
}

func (o onAPI) Events(ctx context.Context, q EventQuery, handle func(schemas.Event) error) error {
	ask := client.Query{Filter: q.Filter, Since: q.Since, Follow: q.Follow}
	if q.Request != nil {
		ask.Types = []string{filter.Receipt, filter.Verdict}
		if q.Request.Maintenance != nil {
			ask.Types = append(ask.Types, filter.Maintenance)
		}
	}
	if q.Begin != nil {
		if err := q.Begin(ctx); err != nil {
			return err
		}
	}
	for e, err := range o.Client.Events(ctx, ask) {
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err == nil { // the API has applied the filter
			err = handle(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o onAPI) Send(ctx context.Context, r schemas.Request, first schemas.Event) (schemas.Event, error) {
	e, err := schemas.NewEvent(o.source, r, time.Now(), first)
	if err != nil {
		return e, err
	}
	return o.Client.Send(ctx, e)
}
