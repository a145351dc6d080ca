package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

var (
	first  = bus.Installation{Name: "rehome", Cluster: "1111", ClusterName: "one"}
	second = bus.Installation{Name: "rehome", Cluster: "2222", ClusterName: "two"}
	// noCluster is the installation of functions, dispatchers, and a setup that cannot query the API server.
	noCluster = bus.Installation{Name: "rehome"}
)

// joined connects as a process of an installation.
func joined(t *testing.T, url string, i bus.Installation) *bus.Bus {
	t.Helper()
	b := bustest.Connect(t, bus.Options{Name: "tester", URL: url})
	b.Identify(i)
	return b
}

// refusedBy follows the streams and returns the error, or nil if the streams were found.
func refusedBy(t *testing.T, b *bus.Bus) error {
	t.Helper()
	ctx, found := context.WithTimeout(t.Context(), expect.Patience)
	defer found()
	setUp := func(ctx context.Context) error { return b.Setup(ctx, bus.Setup{}) }
	err := b.FollowStreams(ctx, setUp, func([]string) { found() })
	if err == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Fatal("the streams were neither found nor refused")
	}
	return err
}

func TestTwoClustersAndOneServer(t *testing.T) {
	otherName := first
	otherName.Name = "batch"
	for name, c := range map[string]struct {
		before, next []bus.Installation // the process that sets up the streams, and the next ones
		refused      bus.Installation   // comes last; zero if none is refused
	}{
		"the second cluster":                   {[]bus.Installation{first}, nil, second},
		"the second installation":              {[]bus.Installation{first}, nil, otherName},
		"a function of another installation":   {[]bus.Installation{first}, nil, bus.Installation{Name: "batch"}},
		"its own processes":                    {[]bus.Installation{first}, []bus.Installation{first, noCluster, first}, bus.Installation{}},
		"streams without an owner: first come": {[]bus.Installation{noCluster}, []bus.Installation{noCluster, first}, second},
		"a setup without a cluster keeps it":   {[]bus.Installation{first, noCluster}, nil, second},
		"streams of an older version":          {[]bus.Installation{{}}, []bus.Installation{first}, second},
		"a setup of an older version, again":   {[]bus.Installation{first, {}}, nil, second},
		"functions alone adopt no streams":     {[]bus.Installation{noCluster}, []bus.Installation{noCluster, second}, first},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := bustest.Serve(t, &server.Options{}).ClientURL()
			for _, i := range c.before {
				bustest.SetUp(t, joined(t, url, i), bus.Setup{})
			}
			for _, i := range c.next {
				if err := refusedBy(t, joined(t, url, i)); err != nil {
					t.Errorf("%v: %v", i, err)
				}
			}
			if c.refused.Name == "" {
				return
			}
			b := joined(t, url, c.refused)
			owner := first
			if c.refused == first {
				owner = second
			}
			for what, err := range map[string]error{"follow": refusedBy(t, b), "setup": b.Setup(t.Context(), bus.Setup{}), "ready": b.Ready()} {
				if !errors.Is(err, bus.ErrOtherInstallation) || !strings.Contains(err.Error(), owner.String()) {
					t.Errorf("%s: got %v, want %v that names %v", what, err, bus.ErrOtherInstallation, owner)
				}
			}
			bustest.SetUp(t, b, bus.Setup{TakeOver: true})
			if c.refused.Cluster == "" {
				return
			}
			if err := refusedBy(t, b); err != nil {
				t.Errorf("after the takeover: %v", err)
			}
			if err := refusedBy(t, joined(t, url, owner)); !errors.Is(err, bus.ErrOtherInstallation) {
				t.Errorf("the first one after the takeover: %v", err)
			}
		})
	}
}

func TestTakeoverDetection(t *testing.T) {
	url := bustest.Serve(t, &server.Options{}).ClientURL()
	b := joined(t, url, first)
	bustest.SetUp(t, b, bus.Setup{})
	ctx, cancel := context.WithTimeout(t.Context(), expect.Patience)
	defer cancel()
	err := b.FollowStreams(ctx, nil, func([]string) { bustest.SetUp(t, joined(t, url, second), bus.Setup{TakeOver: true}) })
	if !errors.Is(err, bus.ErrOtherInstallation) {
		t.Errorf("got %v, want %v", err, bus.ErrOtherInstallation)
	}
}

// TestUnownedStreams has a role that may not update streams, like all roles with their own keys.
func TestUnownedStreams(t *testing.T) {
	all, guarded := guardedServer(t, bus.RightsOf(bus.Participant{Role: bus.RoleActuator}, hosting))
	setup := joined(t, all, noCluster)
	bustest.SetUp(t, setup, bus.Setup{})
	var log program.Log
	b := bustest.Connect(t, bus.Options{Name: "actuator", URL: guarded, Log: slog.New(slog.NewTextHandler(&log, nil))})
	b.Identify(first)
	found := following(t, b, nil)
	expect.Eventually(t, "it says what to do", func() bool {
		return strings.Contains(log.String(), "stream REHOME_SCOPES: it belongs to no installation: run rehome setup with access to the cluster")
	})
	if err := b.Ready(); !errors.Is(err, bus.ErrNotPermitted) || !strings.Contains(err.Error(), "STREAM.UPDATE.REHOME_SCOPES") {
		t.Errorf("ready: got %v, want the missing right", err)
	}
	if len(found) > 0 {
		t.Error("it works on streams without an owner")
	}
	setup.Identify(first)
	bustest.SetUp(t, setup, bus.Setup{})
	next(t, found)
}

func TestIntentsOfAnotherInstallation(t *testing.T) {
	url := bustest.Serve(t, &server.Options{}).ClientURL()
	actuator := joined(t, url, first)
	bustest.SetUp(t, actuator, bus.Setup{})
	functions := joined(t, url, noCluster)
	for key, of := range map[string]string{"foreign": second.ID(), "own": first.ID(), "unknown": ""} {
		e, a := answer(t, key, 1, "a")
		e.Installation = of
		expect.Must(t, functions.Answer(t.Context(), e, a))
	}
	got := make(chan string, 10)
	expect.Background(t, func(ctx context.Context) error {
		return actuator.FollowIntents(ctx, func(_ context.Context, e schemas.Event) error {
			a, err := schemas.Decode[schemas.Intents](e)
			got <- a.Scope.Key
			return err
		})
	})
	taken := map[string]bool{next(t, got): true, next(t, got): true}
	if want := map[string]bool{"own": true, "unknown": true}; !reflect.DeepEqual(taken, want) {
		t.Errorf("taken: %v, want %v", taken, want)
	}
	var reason string
	expect.Eventually(t, "there is a dead letter", func() bool {
		list := numbers(t, actuator, bus.DeadQuery{})
		if len(list) == 1 {
			reason = deadLetter(t, actuator, list[0]).Error
		}
		return reason != ""
	})
	if want := "its installation is 2222/rehome, want 1111/rehome"; !strings.HasSuffix(reason, want) {
		t.Errorf("got the reason %q, want %q", reason, want)
	}
}

func TestInstallationInEvents(t *testing.T) {
	url := bustest.Serve(t, &server.Options{}).ClientURL()
	watcher := joined(t, url, first)
	bustest.SetUp(t, watcher, bus.Setup{})
	cause := bustest.Delta(t, "a")
	cause.Installation = second.ID()
	bustest.Publish(t, watcher, cause)
	events := bustest.Collect(t, watcher)
	read := events.Next(t)
	answer := schematest.Event(t, "/f", schemas.Delta{Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "a"}},
		time.Now(), read)
	bustest.Publish(t, joined(t, url, noCluster), answer)
	expect.Equal(t, "result", []string{read.Installation, events.Next(t).Installation}, []string{first.ID(), first.ID()})
}
