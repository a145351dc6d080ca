package app

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestClockAheadWithoutFlood runs an actuator whose clock is 11 minutes ahead, with a publisher that lists a pod again
// right after each verdict. The API server is unavailable, so a pod that has not expired gets no verdict.
func TestClockAheadWithoutFlood(t *testing.T) {
	t.Parallel()
	const lasts = 3 * time.Second
	server := bustest.Server(t, embed.Options{})
	others := bustest.Connect(t, bus.Options{Server: server})
	bustest.SetUp(t, others, bus.Setup{Strategies: []string{"RemovePodsViolatingNodeTaints"}})
	ahead := bustest.Connect(t, bus.Options{Server: server, Clock: func() time.Time { return time.Now().Add(11 * time.Minute) }})
	ready := ahead.Ready() // the first answer of the server
	if ready == nil || !strings.Contains(ready.Error(), "the clock of this process is 11m0s ahead of the clock of the bus") {
		t.Errorf("ready: got %v, want the skew", ready)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://127.0.0.1:1"})
	expect.Must(t, err)
	send := func(ctx context.Context) {
		now := time.Now().UTC()
		e, err := schemas.NewEvent("/test", schemas.Intents{
			Profile: "default", Strategy: "RemovePodsViolatingNodeTaints",
			Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "worker-1", Event: now.String(), Now: now, Since: now},
			Intents: []schemas.Intent{{ID: now.String(), Node: "worker-1", Expires: now.Add(10 * time.Minute),
				Pod: schemas.PodRef{Namespace: "web", Name: "api", UID: "api"}}},
		}, now, schemas.Event{})
		if err == nil {
			_, err = others.Publish(ctx, e)
		}
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var verdicts atomic.Int64
	began := time.Now()
	go func() {
		_ = others.FollowVerdicts(ctx, began.Add(-time.Minute), func(schemas.Event) {
			verdicts.Add(1)
			send(ctx)
		})
	}()
	send(ctx)
	a := actuator.New(actuator.Config{
		Client: client, Bus: ahead, Ledger: ahead.Ledger(), Source: "/test/actuator", Now: ahead.Now,
		Policy: policy.Policy{Profiles: []policy.Profile{{Name: "default"}}},
	})
	if err := a.Lead(ctx); err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if got := verdicts.Load(); got > int64(lasts/time.Second) {
		t.Errorf("got %d verdicts in %v, want at most one a second", got, lasts)
	}
}
