package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/actuator/brake"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// clock is the time of these tests.
var clock = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// deploymentOf is Deployment shop/NAME.
func deploymentOf(name string) *schemas.ObjectRef {
	return &schemas.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: name, UID: "uid-shop"}
}

// moveOf is the move of pod shop/NAME off a node, begun so long before clock. waits is empty for one that is settled.
func moveOf(name, node, waits string, before time.Duration) actuator.Move {
	return actuator.Move{
		Pod: schemas.PodRef{Namespace: "shop", Name: name}, Node: node, Workload: deploymentOf("api"), Strategy: "PodLifeTime",
		Method: schemas.MethodEviction, Begun: clock.Add(-before), Moved: clock.Add(-before), WaitsFor: waits,
	}
}

// breakerOf is a loop breaker of Deployment shop/NAME on worker-1.
func breakerOf(name string, until time.Time) actuator.LoopBreaker {
	return actuator.LoopBreaker{Name: deploymentOf(name), Entry: brake.Entry{
		Key:    brake.Key{Workload: "uid-shop", Strategy: "PodLifeTime", Node: "worker-1"},
		Record: brake.Record{Returns: 2, Returned: until.Add(-time.Minute), Last: until.Add(-time.Minute)}, Until: until,
	}}
}

func TestAStatusSaysTheMostImportantThingFirst(t *testing.T) {
	local := func(at time.Time) string { return at.Local().Format(time.DateTime) }
	unasked := moveOf("api-2", "worker-2", "the API server", time.Second)
	unasked.Moved, unasked.Workload = time.Time{}, nil
	busy := actuator.Remembered{
		Moves: []actuator.Move{
			moveOf("api-0", "worker-1", "", 2*time.Hour), moveOf("api-1", "worker-1", "a replacement that is ready", 90*time.Second), unasked,
		},
		Loops: []actuator.LoopBreaker{breakerOf("api", clock.Add(time.Minute)), breakerOf("db", clock)},
		Storm: []actuator.StormCondition{{Reason: schemas.ReasonStormNodes, Message: "7 of 9 nodes went bad", Since: clock.Add(-time.Minute)}},
	}
	const table = `
POD          NODE       METHOD     WORKLOAD              STRATEGY      BEGUN       WAITS FOR
shop/api-1   worker-1   eviction   deployment/shop/api   PodLifeTime   1m30s ago   a replacement that is ready
shop/api-2   worker-2   eviction   none                  PodLifeTime   1s ago      the API server
`
	breakers := fmt.Sprintf(`
WORKLOAD              NODE       STRATEGY      RETURNS   LOOP BREAKER
deployment/shop/api   worker-1   PodLifeTime   2         holds until %s
deployment/shop/db    worker-1   PodLifeTime   2         over since %s
`, local(clock.Add(time.Minute)), local(clock))
	first := "2 moves in flight, 1 loop breaker holds, storm brake OPEN since " + clock.Add(-time.Minute).Local().Format(time.TimeOnly) +
		": nothing is moved\nstorm brake: StormNodes: 7 of 9 nodes went bad\n"
	for _, c := range []struct {
		name   string
		r      actuator.Remembered
		limits *policy.Limits
		but    func(*status)
		want   string
	}{
		{"nothing is remembered", actuator.Remembered{}, nil, func(*status) {},
			"no move in flight, no loop breaker holds, storm brake closed\n"},
		{"without a policy moves are counted by age", busy, nil, func(*status) {}, first + table + `
moves that are remembered: 1 in the last minute, 2 in the last 5 minutes, 2 in the last hour, 1 older

MOVED OFF        PODS
node/worker-1    2
node/worker-2    1
namespace/shop   3
` + breakers},
		{"with a policy over its window", busy, &policy.Limits{Window: time.Minute}, func(*status) {}, first + table + `
1 move in the window of 1m0s

MOVED OFF        PODS
node/worker-2    1
namespace/shop   1
` + breakers},
		{"who leads", actuator.Remembered{}, nil, func(s *status) {
			s.Leaders = []leaderStatus{{"rehome-watcher", "a_1", clock.Add(-time.Hour)}, {"rehome-actuator", "", time.Time{}}}
		}, `no move in flight, no loop breaker holds, storm brake closed

LEASE             HOLDER   SINCE
rehome-watcher    a_1      1h0m0s ago
rehome-actuator   nobody
`},
		{"what is not known", actuator.Remembered{}, nil, func(s *status) {
			s.NoLeaders, s.Unreadable = "no cluster", []string{"ledger key x: y"}
		}, `no move in flight, no loop breaker holds, storm brake closed

who leads is not known: no cluster
cannot be read: ledger key x: y
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := statusOf(c.r, c.limits, clock)
			c.but(&st)
			var out bytes.Buffer
			if err := st.write(&out); err != nil || out.String() != c.want {
				t.Errorf("error %v\n got %s\nwant %s", err, &out, c.want)
			}
		})
	}
}

func TestAStatusAsJSONIsOneObject(t *testing.T) {
	st := statusOf(actuator.Remembered{
		Moves: []actuator.Move{moveOf("api-1", "worker-1", "a replacement that is ready", time.Minute)},
		Loops: []actuator.LoopBreaker{breakerOf("api", clock.Add(time.Minute))},
	}, nil, clock)
	st.NoLeaders = "no cluster"
	got, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"time":"2026-03-01T12:00:00Z",` +
		`"movesInFlight":[{"pod":{"namespace":"shop","name":"api-1","uid":""},"node":"worker-1",` +
		`"workload":{"kind":"Deployment","namespace":"shop","name":"api","uid":"uid-shop"},"profile":"","strategy":"PodLifeTime","intent":"",` +
		`"method":"eviction","begun":"2026-03-01T11:59:00Z","moved":"2026-03-01T11:59:00Z","waitsFor":"a replacement that is ready"}],` +
		`"counted":{"total":1,"nodes":{"worker-1":1},"namespaces":{"shop":1},"ages":[0,1,0,0]},` +
		`"loopBreakers":[{"workload":"uid-shop","strategy":"PodLifeTime","node":"worker-1","returns":2,"returned":"2026-03-01T12:00:00Z",` +
		`"last":"2026-03-01T12:00:00Z","until":"2026-03-01T12:01:00Z",` +
		`"name":{"kind":"Deployment","namespace":"shop","name":"api","uid":"uid-shop"},"holds":true}],` +
		`"storm":[],"leadersUnknown":"no cluster"}`
	if string(got) != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// busOf starts a bus as `rehome run` does, which the commands of this test find, with these loop breakers in its ledger.
func busOf(t *testing.T, breakers ...actuator.LoopBreaker) *bus.Bus {
	t.Helper()
	dir, err := os.MkdirTemp("", "rehome") //nolint:usetesting // t.TempDir is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("REHOME_STORE_DIR", dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	s := bindFlagsOf(t, statusCommand())
	server, err := startServer(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	b, err := connect(s, "rehome-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Setup(t.Context(), setupOf(s, policy.Policy{})); err != nil {
		t.Fatal(err)
	}
	for _, l := range breakers {
		value, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		key := "loop." + string(l.Workload) + "." + base64.RawURLEncoding.EncodeToString([]byte(l.Strategy+"\x00"+l.Node))
		if err := b.Ledger().Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// command runs rehome with these arguments.
func command(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(arguments)
	root.SetOut(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTheStatusAndTheLoopBreakersAreReadFromTheBus(t *testing.T) {
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	busOf(t, breakerOf("api", until))
	row := "deployment/shop/api   worker-1   PodLifeTime   2         holds until " + until.Local().Format(time.DateTime) + "\n"
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"status"}, "no move in flight, 1 loop breaker holds, storm brake closed\n\n" +
			"WORKLOAD              NODE       STRATEGY      RETURNS   LOOP BREAKER\n" + row + "\nwho leads is not known: no cluster to connect to: "},
		{[]string{"loops"}, "1 loop breaker, 1 of them in force\n\nWORKLOAD              NODE       STRATEGY      RETURNS   LOOP BREAKER\n" + row},
		{[]string{"loops", "-o", "json"}, `[{"workload":"uid-shop","strategy":"PodLifeTime","node":"worker-1","returns":2,`},
		{[]string{"status", "-o", "json"}, `{"time":"`},
	} {
		got, err := command(t, c.arguments...)
		if err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%v: error %v\n got %s\nwant %s", c.arguments, err, got, c.want)
		}
	}
}

func TestLoopBreakersAreClearedByTheActuatorThatLeads(t *testing.T) {
	now := time.Now()
	other := breakerOf("db", now)
	other.Workload = "uid-db"
	b := busOf(t, breakerOf("api", now), other)
	a := actuator.New(actuator.Config{
		Bus: busAdapter{Bus: b}, Ledger: b.Ledger(), Policy: policy.Policy{Brakes: policy.DefaultBrakes()}, Source: "/test",
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Lead(ctx) }()

	if got, err := command(t, "loops", "clear", "shop/deployment/web"); err == nil || got != "" ||
		err.Error() != "shop/deployment/web has no loop breaker; those that have one: shop/deployment/db, shop/deployment/api" {
		t.Errorf("a workload that has none: got %q, error %v", got, err)
	}
	for _, c := range []struct{ argument, want string }{
		{"shop/deployment/api", "cleared: deployment/shop/api on worker-1 for PodLifeTime\n"},
		{"--all", "cleared: deployment/shop/db on worker-1 for PodLifeTime\n"},
		{"--all", "there are no loop breakers\n"},
	} {
		if got, err := command(t, "loops", "clear", c.argument); err != nil || got != c.want {
			t.Errorf("%s: got %q, error %v; want %q", c.argument, got, err, c.want)
		}
	}
	if entries, err := b.Ledger().Entries(t.Context()); err != nil || len(entries) != 0 {
		t.Errorf("the ledger has %v, error %v; want nothing", entries, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Lead: %v", err)
	}
}

func TestAWishThatNobodyHearsIsSaidAndTakenBack(t *testing.T) {
	b := busOf(t, breakerOf("api", time.Now()))
	got, err := command(t, "loops", "clear", "shop/Deployment/api")
	const want = "no actuator answered within 10s; is one running, without --dry-run?"
	if err == nil || err.Error() != want || got != "" || exitCode(err) != exitFailure {
		t.Errorf("got %q, error %v; want %q", got, err, want)
	}
	if entries, err := b.Ledger().Entries(t.Context()); err != nil || len(entries) != 1 {
		t.Errorf("the ledger has %v, error %v; want the loop breaker", entries, err)
	}
}

func TestWithoutABusThereIsNoStatus(t *testing.T) {
	for _, arguments := range [][]string{{"status"}, {"loops"}, {"loops", "clear", "--all"}} {
		t.Setenv("REHOME_STORE_DIR", t.TempDir())
		got, err := command(t, arguments...)
		if got != "" || !errors.Is(err, bus.ErrNotConnected) || exitCode(err) != exitUsage {
			t.Errorf("%v: got %q, error %v, code %d; want ErrNotConnected, code %d", arguments, got, err, exitCode(err), exitUsage)
		}
	}
}
