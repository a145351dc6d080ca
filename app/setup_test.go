package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/bustest"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

// declaring is a policy that declares strategies of these names, and says of a built-in one that it is asked elsewhere.
func declaring(names ...string) string {
	text := "apiVersion: rehome.dev/v1alpha1\nkind: DeschedulerPolicy\nfunctions:\n" +
		"- {name: PodLifeTime, nats: {subject: functions.lifetime}}\n"
	for _, name := range names {
		text += "- {name: " + name + ", scope: node, wakes: [node.labels], http: {url: http://a}}\n"
	}
	return text
}

func parsed(t *testing.T, text string) policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(text), settings.Strategies())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// consumers are the names of the consumers of scopes that are not of a built-in strategy, sorted.
func consumers(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	stream, err := js.Stream(t.Context(), bus.StreamScopes)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	list := stream.ConsumerNames(t.Context())
	for name := range list.Name() {
		if !slices.ContainsFunc(functions.Hosted(), func(f functions.Function) bool { return f.Strategy.Name == name }) {
			names = append(names, name)
		}
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestTheBusIsSetUpForTheStrategiesThatThePolicyDeclaresAndForThoseOfTheNextOne(t *testing.T) {
	server := bustest.Server(t, bus.ServerOptions{MaxMemory: bus.ScopesMaxMemory})
	b := bustest.Connect(t, bus.Options{Name: "tester", Server: server})
	var log bytes.Buffer
	fails := 1
	e := newBusSetup(parsed(t, declaring("First")), func(ctx context.Context, p policy.Policy) error {
		if fails--; fails >= 0 {
			return errors.New("not now")
		}
		return b.Setup(ctx, settings.SetupOf(settings.Settings{NATSReplicas: 1, History: time.Hour}, p))
	}, slog.New(slog.NewTextHandler(&log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.run(ctx); err != nil {
			t.Error(err)
		}
	})
	js := bustest.Raw(t, server)
	there := func(want ...string) {
		bustest.Eventually(t, "there are consumers of "+strings.Join(want, " and "), func() bool {
			return reflect.DeepEqual(consumers(t, js), want)
		})
	}
	there("First")
	_ = e.setPolicy(parsed(t, declaring("Second", "Third")))
	there("First", "Second", "Third")
	cancel()
	running.Wait()
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), `error="not now"`) {
		t.Errorf("logged\n%s\nwant one line about the failure", log.String())
	}
}

func TestWithoutAStrategyThatThePolicyDeclaresTheBusIsLeftAlone(t *testing.T) {
	e := newBusSetup(parsed(t, declaring()), func(context.Context, policy.Policy) error {
		return errors.New("it was set up")
	}, slog.New(slog.DiscardHandler))
	if err := e.once(t.Context()); err != nil {
		t.Error(err)
	}
}
