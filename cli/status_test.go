package cli

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
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

// breakerOf is a workload circuit breaker of Deployment shop/NAME on worker-1.
func breakerOf(name string, until time.Time) actuator.WorkloadBreaker {
	return actuator.WorkloadBreaker{
		BreakerKey: limit.BreakerKey{Workload: "uid-shop", Strategy: "PodLifeTime", Node: "worker-1"},
		BreakerRecord: limit.BreakerRecord{
			Returns: 2, Returned: until.Add(-time.Minute), Last: until.Add(-time.Minute), Name: deploymentOf(name),
		},
		Until: until,
	}
}

func TestAStatusSaysTheMostImportantThingFirst(t *testing.T) {
	local := func(at time.Time) string { return at.Local().Format(time.DateTime) }
	unasked := moveOf("api-2", "worker-2", "the API server", time.Second)
	unasked.Moved, unasked.Workload = time.Time{}, nil
	busy := actuator.Remembered{
		Moves: []actuator.Move{
			moveOf("api-0", "worker-1", "", 2*time.Hour), moveOf("api-1", "worker-1", "a replacement that is ready", 90*time.Second), unasked,
		},
		Loops: []actuator.WorkloadBreaker{breakerOf("api", clock.Add(time.Minute)), breakerOf("db", clock)},
		Storm: []actuator.StormCondition{{Reason: schemas.ReasonStormNodes, Message: "7 of 9 nodes went bad", Since: clock.Add(-time.Minute)}},
	}
	const table = `
POD          NODE       METHOD     WORKLOAD              STRATEGY      BEGUN       WAITS FOR
shop/api-1   worker-1   eviction   deployment/shop/api   PodLifeTime   1m30s ago   a replacement that is ready
shop/api-2   worker-2   eviction   none                  PodLifeTime   1s ago      the API server
`
	breakers := fmt.Sprintf(`
WORKLOAD              NODE       STRATEGY      RETURNS   CIRCUIT BREAKER
deployment/shop/api   worker-1   PodLifeTime   2         holds until %s
deployment/shop/db    worker-1   PodLifeTime   2         over since %s
`, local(clock.Add(time.Minute)), local(clock))
	first := "2 moves in flight, 1 workload circuit breaker holds, cluster circuit breaker OPEN since " + clock.Add(-time.Minute).Local().Format(time.TimeOnly) +
		": nothing is moved\ncluster circuit breaker: StormNodes: 7 of 9 nodes went bad\n"
	for _, c := range []struct {
		name   string
		r      actuator.Remembered
		limits *policy.Limits
		but    func(*look.Status)
		want   string
	}{
		{"nothing is remembered", actuator.Remembered{}, nil, func(*look.Status) {},
			"no move in flight, no workload circuit breaker holds, cluster circuit breaker closed\n"},
		{"without a policy moves are counted by age", busy, nil, func(*look.Status) {}, first + table + `
moves that are remembered: 1 in the last minute, 2 in the last 5 minutes, 2 in the last hour, 1 older

MOVED OFF        PODS
node/worker-1    2
node/worker-2    1
namespace/shop   3
` + breakers},
		{"with a policy over its window", busy, &policy.Limits{Window: time.Minute}, func(*look.Status) {}, first + table + `
1 move in the window of 1m0s

MOVED OFF        PODS
node/worker-2    1
namespace/shop   1
` + breakers},
		{"with limits beside what they limit", busy, &policy.Limits{
			Window: time.Hour, PerNode: new(uint(5)), Total: new(uint(50)),
			InFlight: policy.InFlight{PerNode: new(uint(3)), PerWorkload: new(uint(1)), Total: new(uint(20)), PerNamespace: new(uint(9))},
		}, func(*look.Status) {}, first + table + `
2 moves in the window of 1h0m0s; the policy allows at most 50, 20 in flight at once, 3 in flight a node, 9 in flight a namespace, 1 in flight a workload

MOVED OFF        PODS   LIMIT
node/worker-1    1      5
node/worker-2    1      5
namespace/shop   2      none
` + breakers},
		{"what is deferred, with the message cut", actuator.Remembered{}, nil, func(s *look.Status) {
			d := look.DeferredPod{
				Pod: schemas.PodRef{Namespace: "shop", Name: "api-1"}, Strategy: "PodLifeTime", Reason: schemas.ReasonWorkloadPause,
				Message: strings.Repeat("another pod of it was moved a moment ago ", 4), Since: clock.Add(-time.Hour),
				Last: clock.Add(-time.Minute), Again: clock.Add(90 * time.Second),
			}
			s.Deferred = append(s.Deferred, d)
			d.Message, d.Again = "x", time.Time{}
			for range look.ShownDeferred + 1 {
				s.Deferred = append(s.Deferred, d)
			}
		}, `no move in flight, no workload circuit breaker holds, cluster circuit breaker closed

DEFERRED POD   STRATEGY      REASON          SINCE    LAST TRY   NEXT TRY   MESSAGE
shop/api-1     PodLifeTime   WorkloadPause   1h0m0s   1m0s       in 1m30s   another pod of it was moved a moment ago another pod of it was moved a moment ago a…
` + strings.Repeat("shop/api-1     PodLifeTime   WorkloadPause   1h0m0s   1m0s       -          x\n", look.ShownDeferred-1) +
			"and 2 more; -o json has all of them\n"},
		{"open requests", actuator.Remembered{}, nil, func(s *look.Status) {
			s.Requests = []look.OpenRequest{
				{Request: schemas.Request{
					Sender: "admin", Name: "drain", Action: schemas.ActionDeschedule, Target: &schemas.Target{Node: "n1"}, Reason: "its fan",
				}, Since: clock.Add(-time.Minute)},
				{Request: schemas.Request{Sender: "ci", Name: "look", Action: schemas.ActionEvaluate, Reason: "new labels"}, Since: clock.Add(-time.Second)},
			}
		}, `no move in flight, no workload circuit breaker holds, cluster circuit breaker closed

OPEN REQUEST   SENT       DEADLINE   WANTS
admin/drain    1m0s ago   in 59m0s   deschedule node n1: its fan
ci/look        1s ago     -          evaluate: new labels
`},
		{"maintenances of the bus", actuator.Remembered{}, nil, func(s *look.Status) {
			at := metav1.NewTime(clock.Add(-time.Hour))
			asked := &v1alpha1.NodeMaintenance{
				ObjectMeta: metav1.ObjectMeta{Name: "node/n1", CreationTimestamp: at},
				Spec:       v1alpha1.NodeMaintenanceSpec{Stage: v1alpha1.Drain, Reason: "its fan"},
			}
			known := asked.DeepCopy()
			known.Name, known.Status.Nodes = "sign/n2", []v1alpha1.NodeStatus{{Name: "n2", Stage: v1alpha1.Draining}}
			known.Status.Summary = v1alpha1.Summary{PodsLeft: 3, PodsBlocked: 1, Message: "cannot move shop/db-0"}
			s.Maintenances = []look.MaintenanceStatus{look.MaintenanceStatusOf(asked), look.MaintenanceStatusOf(known)}
			s.Requests = []look.OpenRequest{{Request: schemas.Request{
				Sender: "admin", Name: "drain", Action: schemas.ActionMaintain, Reason: "its fan",
				Maintenance: &schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain},
			}, Since: clock.Add(-time.Hour)}}
		}, `no move in flight, no workload circuit breaker holds, cluster circuit breaker closed

OPEN REQUEST   SENT         DEADLINE     WANTS
admin/drain    1h0m0s ago   in 23h0m0s   maintain node n1: Drain: its fan

MAINTENANCE   WANTED   NODE IS    PODS LEFT      SINCE        MESSAGE
node/n1       Drain    -          0              1h0m0s ago   its fan
sign/n2       Drain    Draining   3, 1 blocked   1h0m0s ago   cannot move shop/db-0
`},
		{"the streams, who works on them, and dead letters", actuator.Remembered{}, nil, func(s *look.Status) {
			s.DeadLetters = map[string]uint64{bus.StreamScopes: 2, bus.StreamIntents: 1}
			s.Streams = []bus.StreamStatus{
				{Name: bus.StreamScopes, Messages: 12, Bytes: 3 << 19, MaxBytes: 3 << 20, Workers: []bus.WorkerStatus{
					{Strategy: "Away", Waiting: 9}, {Strategy: "Off"}, {Strategy: "PodLifeTime", Waiting: 2, InHand: 1, Again: 1, Idle: 3},
				}},
				{Name: bus.StreamDead, Messages: 3, Bytes: 900},
			}
		}, `no move in flight, no workload circuit breaker holds, cluster circuit breaker closed

STREAM          MESSAGES   BYTES     USED
REHOME_SCOPES   12         1.5 MiB   50% of 3.0 MiB
REHOME_DEAD     3          900 B

SCOPES OF     WAITING   IN HAND   TRIED AGAIN   IDLE HANDLERS
Away          9         0         0             0
PodLifeTime   2         1         1             3

dead letters: 1 from REHOME_INTENTS, 2 from REHOME_SCOPES; see rehome dead list
`},
		{"who leads", actuator.Remembered{}, nil, func(s *look.Status) {
			s.Leaders = []look.LeaderStatus{{Lease: "rehome-watcher", Holder: "a_1", Since: clock.Add(-time.Hour)}, {Lease: "rehome-actuator", Holder: "", Since: time.Time{}}}
		}, `no move in flight, no workload circuit breaker holds, cluster circuit breaker closed

LEASE             HOLDER   SINCE
rehome-watcher    a_1      1h0m0s ago
rehome-actuator   nobody
`},
		{"what is not known", actuator.Remembered{}, nil, func(s *look.Status) {
			s.NoLeaders, s.Unreadable = "no cluster", []string{"ledger key x: y"}
		}, `no move in flight, no workload circuit breaker holds, cluster circuit breaker closed

who leads is not known: no cluster
cannot be read: ledger key x: y
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := look.StatusOf(c.r, c.limits, clock)
			c.but(&st)
			var out bytes.Buffer
			if err := st.Write(&out); err != nil || out.String() != c.want {
				t.Errorf("error %v\n got %s\nwant %s", err, &out, c.want)
			}
		})
	}
}

func TestAStatusAsJSONIsOneObject(t *testing.T) {
	st := look.StatusOf(actuator.Remembered{
		Moves: []actuator.Move{moveOf("api-1", "worker-1", "a replacement that is ready", time.Minute)},
		Loops: []actuator.WorkloadBreaker{breakerOf("api", clock.Add(time.Minute))},
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
		`"workloadBreakers":[{"workload":"uid-shop","strategy":"PodLifeTime","node":"worker-1","returns":2,"returned":"2026-03-01T12:00:00Z",` +
		`"last":"2026-03-01T12:00:00Z",` +
		`"name":{"kind":"Deployment","namespace":"shop","name":"api","uid":"uid-shop"},"until":"2026-03-01T12:01:00Z","holds":true}],` +
		`"storm":[],"leadersUnknown":"no cluster","deferred":[],"requests":[],"maintenances":[],"deadLetters":{},"streams":[]}`
	if string(got) != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

// busOf starts a bus as `rehome run` does, which the commands of this test find, with these workload circuit breakers in its ledger.
func busOf(t *testing.T, breakers ...actuator.WorkloadBreaker) *bus.Bus {
	t.Helper()
	dir, err := os.MkdirTemp("", "rehome") //nolint:usetesting // t.TempDir is too long a path for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("REHOME_STORE_DIR", dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	s := bindFlagsOf(t, look.StatusCommand())
	server, err := settings.StartServer(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	o, err := settings.BusOptions(s, "rehome-test")
	if err != nil {
		t.Fatal(err)
	}
	b, err := bus.Connect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := b.Setup(t.Context(), settings.SetupOf(s, policy.Policy{})); err != nil {
		t.Fatal(err)
	}
	remembered(t, b.Ledger(), breakers...)
	return b
}

// remembered writes loop breakers to a ledger.
func remembered(t *testing.T, l bus.Ledger, breakers ...actuator.WorkloadBreaker) {
	t.Helper()
	for _, breaker := range breakers {
		value, err := json.Marshal(breaker)
		if err != nil {
			t.Fatal(err)
		}
		key := "loop." + string(breaker.Workload) + "." + base64.RawURLEncoding.EncodeToString([]byte(breaker.Strategy+"\x00"+breaker.Node))
		if err := l.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
}

// execute runs rehome with these arguments.
func execute(t *testing.T, arguments ...string) (string, error) {
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
		{[]string{"status"}, "no move in flight, 1 workload circuit breaker holds, cluster circuit breaker closed\n\n" +
			"WORKLOAD              NODE       STRATEGY      RETURNS   CIRCUIT BREAKER\n" + row + "\nwho leads is not known: no cluster to connect to: "},
		{[]string{"loops"}, "1 workload circuit breaker, 1 of them in force\n\nWORKLOAD              NODE       STRATEGY      RETURNS   CIRCUIT BREAKER\n" + row},
		{[]string{"loops", "-o", "json"}, `[{"workload":"uid-shop","strategy":"PodLifeTime","node":"worker-1","returns":2,`},
		{[]string{"status", "-o", "json"}, `{"time":"`},
	} {
		got, err := execute(t, c.arguments...)
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
		Bus: b, Ledger: b.Ledger(), Policy: policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()}, Source: "/test",
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Lead(ctx) }()

	if got, err := execute(t, "loops", "clear", "shop/deployment/web"); err == nil || got != "" ||
		err.Error() != "shop/deployment/web has no circuit breaker; those that have one: shop/deployment/db, shop/deployment/api" {
		t.Errorf("a workload that has none: got %q, error %v", got, err)
	}
	for _, c := range []struct{ argument, want string }{
		{"shop/deployment/api", "cleared: deployment/shop/api on worker-1 for PodLifeTime\n"},
		{"--all", "cleared: deployment/shop/db on worker-1 for PodLifeTime\n"},
		{"--all", "there are no workload circuit breakers\n"},
	} {
		if got, err := execute(t, "loops", "clear", c.argument); err != nil || got != c.want {
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
	got, err := execute(t, "loops", "clear", "shop/Deployment/api")
	const want = "no actuator answered within 10s; is one running, without --dry-run?"
	if err == nil || err.Error() != want || got != "" {
		t.Errorf("got %q, error %v; want %q", got, err, want)
	}
	if entries, err := b.Ledger().Entries(t.Context()); err != nil || len(entries) != 1 {
		t.Errorf("the ledger has %v, error %v; want the workload circuit breaker", entries, err)
	}
}

func TestABusThatCannotBeReachedIsAnErrorOfWhoAsks(t *testing.T) {
	for _, arguments := range [][]string{
		{"status"}, {"loops"}, {"loops", "clear", "--all"}, {"events"}, {"events", "--type", "verdict", "-o", "json"},
		{"setup", "--nats-url", "nats://127.0.0.1:1", "--timeout", "1ms"},
	} {
		t.Setenv("REHOME_STORE_DIR", t.TempDir())
		got, err := execute(t, arguments...)
		if got != "" || !errors.Is(err, bus.ErrNotConnected) {
			t.Errorf("%v: got %q, error %v; want ErrNotConnected", arguments, got, err)
		}
	}
}
