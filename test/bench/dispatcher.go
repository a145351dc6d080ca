package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/dispatch"
	"github.com/rehome-dev/rehome/functions/httpfunction"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/post"
	"github.com/rehome-dev/rehome/test/kit/functionstest"
)

const (
	// questions is how many scopes wait when the dispatcher begins.
	questions = 3000
	// podsAsked is how many pods a scope lists.
	podsAsked = 10
	// askedAtOnce is the number of parallel requests: the default of a policy.
	askedAtOnce = policy.DefaultOutsideParallel
)

// measureDispatcher measures how many scopes a second are taken from a bus that syncs every write, asked over HTTP, and
// answered there.
func measureDispatcher(ctx context.Context, p *progress) ([]row, error) {
	var rows []row
	for _, moves := range []bool{false, true} {
		x := row{Group: "functions over HTTP", Unit: "per second"}
		what := "questions whose answer moves a pod"
		if !moves {
			what = "questions whose answer moves nothing"
			x.Target = &target{AtLeast: 1000}
		}
		x.What = fmt.Sprintf("%s, %d pods in each", what, podsAsked)
		p.say("the dispatcher asks %d %s", questions, what)
		filled, answered, err := dispatchAll(ctx, moves)
		if err != nil {
			return nil, fmt.Errorf("dispatcher, %s: %w", what, err)
		}
		x.Value = questions / answered.Seconds()
		// An answer that moves a pod is synced twice, in the table and in the history, so the disk bounds it.
		x.Compare = &comparison{"events stored by this bus", questions / filled.Seconds()}
		rows = append(rows, x)
	}
	return rows, nil
}

// dispatchAll measures one bus: how long it takes to fill it with scopes, and how long to answer them.
func dispatchAll(ctx context.Context, moves bool) (filled, answered time.Duration, err error) {
	dir, err := os.MkdirTemp("", "rehome-bench-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	quiet := slog.New(slog.DiscardHandler)
	server, err := embed.Start(embed.Options{StoreDir: filepath.Join(dir, "store")})
	if err != nil {
		return 0, 0, err
	}
	defer server.Stop()
	b, err := bus.Connect(bus.Options{Name: "bench", Server: server, Log: quiet})
	if err != nil {
		return 0, 0, err
	}
	defer b.Close()
	f := functions.All()[0]
	if err := b.Setup(ctx, bus.Setup{Strategies: []string{f.Strategy.Name}}); err != nil {
		return 0, 0, err
	}
	url, stop, err := serveFunction(f)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	began := time.Now()
	if err := fill(ctx, b, f.Strategy.Name, moves); err != nil {
		return 0, 0, err
	}
	filled = time.Since(began)
	o := policy.Outside{Strategy: f.Strategy, URL: url, Timeout: 10 * time.Second, Parallel: askedAtOnce}
	answered, err = drainScopes(ctx, b, o)
	return filled, answered, err
}

// serveFunction serves a function over HTTP on the loopback interface.
func serveFunction(f functions.Function) (url string, stop func(), err error) {
	h := httpfunction.New(httpfunction.Config{Function: f, Source: "/clusters/bench/functions"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	return "http://" + l.Addr().String() + "/", func() {
		_ = s.Close()
		<-done
	}, nil
}

// fill publishes one scope per node. If the answers should move pods, one pod of each node does not tolerate a taint.
func fill(ctx context.Context, b *bus.Bus, strategy string, moves bool) error {
	events := make([]schemas.Event, questions)
	now := time.Now()
	for i := range events {
		node := functionstest.Node(fmt.Sprintf("worker-%d", i))
		node.Spec.Taints = append(node.Spec.Taints, functionstest.Taint("dedicated=gpu:NoSchedule"))
		s := schemas.NodeScope{
			ScopeHead: schemas.ScopeHead{
				Kind: schemas.NodeKind, Key: node.Name, Profile: "default", Strategy: strategy, Now: now, Since: now,
				Causes: []schemas.Cause{{Kind: schemas.CauseResync, Time: now}},
			},
			Node: node,
		}
		for n := range podsAsked {
			options := []functionstest.PodOption{functionstest.On(node.Name)}
			if !moves || n > 0 {
				options = append(options, functionstest.ToleratingKeys("dedicated"))
			}
			s.Pods = append(s.Pods, functionstest.Pod(fmt.Sprintf("pod-%d-%d", i, n), options...))
		}
		var err error
		if events[i], err = schemas.NewEvent("/clusters/bench/watcher", s, now, schemas.Event{}); err != nil {
			return err
		}
	}
	return b.PublishAll(ctx, events)
}

// counted is a bus that says when so many scopes are done.
type counted struct {
	*bus.Bus
	done chan struct{}
}

// Work implements dispatch.Bus.
func (c counted) Work(
	ctx context.Context, strategy string, parallel int, handle func(context.Context, schemas.Event) error,
) error {
	return c.Bus.Work(ctx, bus.Work{Strategy: strategy, Parallel: parallel}, func(ctx context.Context, e schemas.Event) error {
		err := handle(ctx, e)
		if err == nil {
			c.done <- struct{}{}
		}
		return err
	})
}

// Bury implements dispatch.Bus.
func (c counted) Bury(ctx context.Context, scope schemas.Event, why error) error {
	return c.Bus.Bury(ctx, bus.StreamScopes, scope, why)
}

// drainScopes has all scopes answered, and returns how long that takes.
func drainScopes(ctx context.Context, b *bus.Bus, o policy.Outside) (time.Duration, error) {
	c := counted{b, make(chan struct{}, questions)}
	d := dispatch.New(dispatch.Config{
		Bus: c, Source: "/clusters/bench/dispatcher",
		Open: func(o policy.Outside) (dispatch.Asker, error) {
			return post.New(post.Config{URL: o.URL, Timeout: o.Timeout, Connections: o.Parallel})
		},
	})
	d.Set([]policy.Outside{o})
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- d.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	for range questions {
		select {
		case <-c.done:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return time.Since(began), nil
}
