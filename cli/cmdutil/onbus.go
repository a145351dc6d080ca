package cmdutil

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/api/client"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/status"
)

// onBus accesses Rehome through its bus.
type onBus struct {
	settings settings.Settings
	bus      *bus.Bus
}

func openBus(s settings.Settings, p bus.Participant) (Installation, error) {
	b, err := connect(s, p)
	if err != nil {
		return nil, err
	}
	return onBus{s, b}, nil
}

func connect(s settings.Settings, p bus.Participant) (*bus.Bus, error) {
	o, err := settings.BusOptions(s, p.String())
	if err != nil {
		return nil, err
	}
	s.LogLevel = max(s.LogLevel, slog.LevelWarn)
	o.Log = s.Logger(os.Stderr)
	return bus.Connect(o)
}

// WithBus connects to the bus as a participant and calls use.
func WithBus(s settings.Settings, p bus.Participant, use func(*bus.Bus) error) error {
	b, err := connect(s, p)
	if err != nil {
		return err
	}
	defer b.Close()
	return use(b)
}

func (o onBus) Close()         { o.bus.Close() }
func (o onBus) Sender() string { return "" }

func (o onBus) Status(ctx context.Context, q StatusQuery) (st client.State, err error) {
	now := time.Now()
	switch st.Time = now.UTC(); q.Part {
	case PartLedger:
		ledger, unreadable, err := status.Ledger(ctx, o.bus)
		st.Status = status.Of(ledger, q.Limits, now)
		for _, err := range unreadable {
			st.Unreadable = append(st.Unreadable, err.Error())
		}
		return st, err
	case PartDeferred:
		st.Deferred, err = status.Deferred(ctx, o.bus, now)
	case PartRequests:
		st.Requests, err = status.Requests(ctx, o.bus)
	case PartMaintenances:
		st.Maintenances, err = status.Maintenances(ctx, o.bus)
	default:
		st.Status, err = status.Read(ctx, status.Source{Settings: o.settings, Bus: o.bus, Limits: q.Limits})
	}
	return st, err
}

func (o onBus) Events(ctx context.Context, q EventQuery, handle func(schemas.Event) error) error {
	past, live := o.channels(q)
	var line sync.Mutex // two sources call one handler
	one := func(e schemas.Event) error {
		if !q.Matches(e) {
			return nil
		}
		line.Lock()
		defer line.Unlock()
		return handle(e)
	}
	if len(past) > 0 && q.Begin != nil {
		if err := q.Begin(ctx); err != nil {
			return err
		}
	}
	sources, ctx := errgroup.WithContext(ctx)
	if len(live) > 0 {
		var begin func(context.Context) error
		if len(past) == 0 {
			begin = q.Begin
		}
		sources.Go(func() error { return o.bus.Subscribe(ctx, live, begin, one) })
	}
	if len(past) > 0 {
		ask := bus.Query{Channels: past, Since: q.Since, Follow: q.Follow}
		sources.Go(func() error { return o.bus.Events(ctx, ask, one) })
	}
	if err := sources.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// channels returns the subjects with and without a history. The key of a sender may not read the history.
func (o onBus) channels(q EventQuery) (past, live []string) {
	if q.Request == nil {
		for _, channel := range q.Channels() {
			if filter.Remembered(channel) {
				past = append(past, channel)
			} else {
				live = append(live, channel)
			}
		}
		return past, live
	}
	channels := []string{schemas.Receipt{Sender: q.Request.Sender, Name: q.Request.Name}.Channel(), bus.VerdictChannels}
	if o.settings.NATSNKey != "" || o.settings.NATSCreds != "" {
		return nil, channels
	}
	if m := q.Request.Maintenance; m != nil {
		channels = append(channels, schemas.Maintenance{Name: schemas.RequestedMaintenance(m.Node)}.Channel())
	}
	return channels, nil
}

func (o onBus) ExplainPod(ctx context.Context, pod types.NamespacedName, since time.Time) (x explain.Explanation, err error) {
	from, err := o.sources()
	if err != nil {
		return x, err
	}
	return explain.Pod(ctx, from, pod.Namespace, pod.Name, since)
}

func (o onBus) ExplainNode(ctx context.Context, node string) (x explain.NodeExplanation, err error) {
	from, err := o.sources()
	if err != nil {
		return x, err
	}
	return explain.Node(ctx, from, node)
}

func (o onBus) ExplainWorkload(
	ctx context.Context, kind string, w types.NamespacedName,
) (x explain.WorkloadExplanation, err error) {
	from, err := o.sources()
	if err != nil {
		return x, err
	}
	return explain.Workload(ctx, from, kind, w.Namespace, w.Name)
}

func (o onBus) Send(ctx context.Context, r schemas.Request, first schemas.Event) (schemas.Event, error) {
	e, err := schemas.NewEvent(o.settings.Source("cli"), r, time.Now(), first)
	if err == nil {
		_, err = o.bus.Publish(ctx, e)
	}
	return e, err
}
