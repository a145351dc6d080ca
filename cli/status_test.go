package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/status"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// clock is the time of these tests.
var clock = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// deploymentOf returns the Deployment shop/NAME.
func deploymentOf(name string) *schemas.ObjectRef {
	return &schemas.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: name, UID: "uid-shop"}
}

// moveOf returns a move of pod shop/NAME off a node that began that long before clock. waits is empty for a settled move.
func moveOf(name, node, waits string, before time.Duration) actuator.Move {
	return actuator.Move{
		Pod: schemas.PodRef{Namespace: "shop", Name: name}, Node: node, Workload: deploymentOf("api"), Strategy: "PodLifeTime",
		Method: schemas.MethodEviction, Begun: clock.Add(-before), Moved: clock.Add(-before), WaitsFor: waits,
	}
}

// breakerOf returns a workload circuit breaker of Deployment shop/NAME on worker-1.
func breakerOf(name string, until time.Time) actuator.WorkloadBreaker {
	return actuator.WorkloadBreaker{
		BreakerKey: limit.BreakerKey{Workload: "uid-shop", Strategy: "PodLifeTime", Node: "worker-1"},
		BreakerRecord: limit.BreakerRecord{
			Returns: 2, Returned: until.Add(-time.Minute), Last: until.Add(-time.Minute), Name: deploymentOf(name),
		},
		Until: until,
	}
}

func TestStatus(t *testing.T) {
	unasked := moveOf("api-2", "worker-2", "the API server", time.Second)
	unasked.Moved, unasked.Workload = time.Time{}, nil
	busy := actuator.Remembered{
		Moves: []actuator.Move{
			moveOf("api-0", "worker-1", "", 2*time.Hour), moveOf("api-1", "worker-1", "a replacement that is ready", 90*time.Second), unasked,
		},
		Loops: []actuator.WorkloadBreaker{breakerOf("api", clock.Add(time.Minute)), breakerOf("db", clock)},
		Storm: []actuator.StormCondition{{Reason: schemas.ReasonStormNodes, Message: "7 of 9 nodes went bad", Since: clock.Add(-time.Minute)}},
	}
	for _, c := range []struct {
		name   string
		r      actuator.Remembered
		limits *policy.Limits
		but    func(*status.Status)
	}{
		{"nothing is remembered", actuator.Remembered{}, nil, nil},
		{"without a policy moves are counted by age", busy, nil, nil},
		{"with a limit over its window", busy, &policy.Limits{Window: time.Minute, PerNode: new(uint(5))}, nil},
		{"without a limit over a window moves are not counted", busy, &policy.Limits{InFlight: policy.InFlight{Total: new(uint(20))}}, nil},
		{"with the limits of nodes and namespaces", busy, &policy.Limits{
			Window: time.Hour, PerNode: new(uint(5)), Total: new(uint(50)),
			InFlight: policy.InFlight{PerNode: new(uint(3)), PerWorkload: new(uint(1)), Total: new(uint(20)), PerNamespace: new(uint(9))},
		}, nil},
		{"what is deferred", actuator.Remembered{}, nil, func(s *status.Status) {
			d := status.DeferredPod{
				Pod: schemas.PodRef{Namespace: "shop", Name: "api-1"}, Strategy: "PodLifeTime", Reason: schemas.ReasonWorkloadPause,
				Message: strings.Repeat("another pod of it was moved a moment ago ", 4), Since: clock.Add(-time.Hour),
				Last: clock.Add(-time.Minute), Again: clock.Add(90 * time.Second),
			}
			s.Deferred = append(s.Deferred, d)
			d.Message, d.Again = "x", time.Time{}
			for range 20 + 1 {
				s.Deferred = append(s.Deferred, d)
			}
		}},
		{"open requests", actuator.Remembered{}, nil, func(s *status.Status) {
			s.Requests = []status.OpenRequest{
				{Request: schemas.Request{
					Sender: "admin", Name: "drain", Action: schemas.ActionDeschedule, Target: &schemas.Target{Node: "n1"}, Reason: "its fan",
				}, Since: clock.Add(-time.Minute)},
				{Request: schemas.Request{Sender: "ci", Name: "look", Action: schemas.ActionEvaluate, Reason: "new labels"}, Since: clock.Add(-time.Second)},
			}
		}},
		{"maintenances of the bus", actuator.Remembered{}, nil, func(s *status.Status) {
			at := metav1.NewTime(clock.Add(-time.Hour))
			asked := &v1alpha1.NodeMaintenance{
				ObjectMeta: metav1.ObjectMeta{Name: "node/n1", CreationTimestamp: at},
				Spec:       v1alpha1.NodeMaintenanceSpec{Stage: v1alpha1.Drain, Reason: "its fan"},
			}
			known := asked.DeepCopy()
			known.Name, known.Status.Nodes = "sign/n2", []v1alpha1.NodeStatus{{Name: "n2", Stage: v1alpha1.Draining}}
			known.Status.Summary = v1alpha1.Summary{PodsLeft: 3, PodsBlocked: 1, Message: "cannot move shop/db-0"}
			s.Maintenances = []status.Maintenance{status.MaintenanceOf(asked), status.MaintenanceOf(known)}
			s.Requests = []status.OpenRequest{{Request: schemas.Request{
				Sender: "admin", Name: "drain", Action: schemas.ActionMaintain, Reason: "its fan",
				Maintenance: &schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain},
			}, Since: clock.Add(-time.Hour)}}
		}},
		{"streams, workers, and dead letters", actuator.Remembered{}, nil, func(s *status.Status) {
			s.DeadLetters = map[string]uint64{bus.StreamScopes: 2, bus.StreamIntents: 1}
			s.Streams = []bus.StreamStatus{
				{Name: bus.StreamScopes, Messages: 12, Bytes: 3 << 19, MaxBytes: 3 << 20, Workers: []bus.WorkerStatus{
					{Strategy: "Away", Pending: 9}, {Strategy: "Off"}, {Strategy: "PodLifeTime", Pending: 2, AckPending: 1, Redelivered: 1, Idle: 3},
				}},
				{Name: bus.StreamEvents, Messages: 40, Bytes: 1 << 14, Workers: []bus.WorkerStatus{
					{Strategy: "audit", Pending: 5, AckPending: 4, Redelivered: 2}, {Strategy: "idle", Idle: 1}, {Strategy: "off"},
				}},
				{Name: bus.StreamDead, Messages: 3, Bytes: 900},
			}
		}},
		{"limits that are reached", actuator.Remembered{}, nil, func(s *status.Status) {
			for _, reason := range []schemas.ReasonCode{schemas.ReasonMovingTotal, schemas.ReasonLimitNode, schemas.ReasonMovingTotal, schemas.ReasonDisruptionBudget} {
				s.Deferred = append(s.Deferred, status.DeferredPod{
					Pod: schemas.PodRef{Namespace: "shop", Name: "api-1"}, Strategy: "PodLifeTime", Reason: reason, Since: clock, Last: clock,
				})
			}
			s.Streams = []bus.StreamStatus{
				{Name: bus.StreamEvents, Messages: 9, Bytes: 100 << 20, MaxBytes: 100 << 20},
				{Name: bus.StreamLedger, Messages: 9, Bytes: 90 << 20, MaxBytes: 96 << 20},
				{Name: bus.StreamRequests, Messages: 10_000, Bytes: 1 << 20, MaxBytes: 96 << 20, MaxMessages: 10_000},
			}
			s.LimitsReached = s.Reached()
		}},
		{"who leads", actuator.Remembered{}, nil, func(s *status.Status) {
			s.Leaders = []status.Leader{{Lease: "rehome-watcher", Holder: "a_1", Since: clock.Add(-time.Hour)}, {Lease: "rehome-actuator", Holder: "", Since: time.Time{}}}
		}},
		{"unknown parts", actuator.Remembered{}, nil, func(s *status.Status) {
			s.NoLeaders, s.Unreadable = "no cluster", []string{"ledger key x: y"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := status.Of(c.r, c.limits, clock)
			if c.but != nil {
				c.but(&st)
			}
			var out bytes.Buffer
			if err := (look.StatusPage{Status: st}).Write(&out); err != nil {
				t.Fatal(err)
			}
			golden(t, "status/"+c.name+".txt", out.String())
		})
	}
}

func TestPrintStatus(t *testing.T) {
	st := status.Of(actuator.Remembered{
		Moves: []actuator.Move{moveOf("api-1", "worker-1", "a replacement that is ready", time.Minute)},
		Loops: []actuator.WorkloadBreaker{breakerOf("api", clock.Add(time.Minute))},
	}, nil, clock)
	st.NoLeaders = "no cluster"
	for _, format := range []string{"", "json", "yaml"} {
		var out bytes.Buffer
		if err := cmdutil.Show(&out, format, "Status", look.StatusPage{Status: st}); err != nil {
			t.Fatal(err)
		}
		golden(t, "status/status."+cmp.Or(format, "txt"), out.String())
	}
}

func TestPrintTables(t *testing.T) {
	ref := schemas.PodRef{Namespace: "shop", Name: "api-1", UID: "u1"}
	request := schemas.Request{
		Sender: "admin", Name: "drain", Action: schemas.ActionMaintain, Reason: "its \x1b[2J fan",
		Maintenance: &schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain},
	}
	garbage := deadOf(t, 2, 90*time.Second, "x\x1b[2J no CloudEvent")
	garbage.Header, garbage.Body = nil, []byte("garbage")
	unnamed := breakerOf("", clock)
	unnamed.Name = nil
	for name, table := range map[string]cmdutil.Table{
		"moves": look.MovesTable(clock, []actuator.Move{moveOf("api-1", "worker-1", "a replacement that is ready", time.Minute)}),
		"deferred": look.DeferredTable(clock, []status.DeferredPod{{
			Pod: ref, Node: "n1", Profile: "default", Strategy: "PodLifeTime", Reason: schemas.ReasonWorkloadPause, Message: "too soon",
			Since: clock.Add(-time.Hour), Last: clock.Add(-time.Minute), Times: 3, Again: clock.Add(90 * time.Second),
		}}),
		"breakers": look.BreakersTable(clock, []status.WorkloadBreaker{
			{WorkloadBreaker: breakerOf("api", clock.Add(time.Minute)), Holds: true}, {WorkloadBreaker: unnamed},
		}),
		"requests":     look.RequestsTable(clock, []status.OpenRequest{{Request: request, Since: clock.Add(-time.Hour)}}),
		"maintenances": look.MaintenancesTable(clock, []status.Maintenance{{Name: "node/n1", Stage: v1alpha1.Drain, PodsLeft: 3, Since: clock, Reason: "fan"}}),
		"deadletters":  look.DeadLettersTable(clock, []bus.DeadLetter{deadOf(t, 3, time.Second, "it is wrong"), garbage}),
		"nothing":      look.MovesTable(clock, nil),
	} {
		for _, format := range []string{"", "wide", "name", "json", "yaml"} {
			var out bytes.Buffer
			if err := table.Print(&out, format); err != nil {
				t.Fatal(err)
			}
			golden(t, "get/"+name+"."+cmp.Or(format, "txt"), out.String())
		}
	}
}

// busOf starts a bus like `rehome run`, with these workload circuit breakers in its ledger, for the commands of the test.
func busOf(t *testing.T, breakers ...actuator.WorkloadBreaker) *bus.Bus {
	t.Helper()
	dir := filetest.ShortDir(t)
	t.Setenv("REHOME_STORE_DIR", dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	s := defaults(t)
	server, err := settings.StartServer(s, nil)
	expect.Must(t, err)
	t.Cleanup(server.Stop)
	o, err := settings.BusOptions(s, "rehome-test")
	expect.Must(t, err)
	b, err := bus.Connect(o)
	expect.Must(t, err)
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
		value := expect.ToJSON(t, breaker)
		key := "loop." + string(breaker.Workload) + "." + base64.RawURLEncoding.EncodeToString([]byte(breaker.Strategy+"\x00"+breaker.Node))
		if err := l.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
}

// execute runs rehome with these arguments.
func execute(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	out, _, err := fed(t, "", arguments...)
	return out, err
}

// fed runs rehome with standard input and arguments, and returns its two outputs.
func fed(t *testing.T, input string, arguments ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, notes bytes.Buffer
	root := newRoot()
	root.SetArgs(arguments)
	root.SetIn(strings.NewReader(input))
	root.SetOut(&out)
	root.SetErr(&notes)
	err = root.ExecuteContext(t.Context())
	return out.String(), notes.String(), err
}

func TestStatusAndBreakersOfBus(t *testing.T) {
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	busOf(t, breakerOf("api", until))
	const head = "NAMESPACE   WORKLOAD         NODE       STRATEGY      RETURNS   STATE   UNTIL\n"
	const row = "shop        deployment/api   worker-1   PodLifeTime   2         open    in 59m\n"
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"status"}, "no move in flight, 1 workload circuit breaker is open, cluster circuit breaker closed\n\n" +
			"Workload circuit breakers:\n" + head + row + "\nThe leaders are unknown: no cluster to connect to: "},
		{[]string{"get", "breakers"}, head + row},
		{[]string{"get", "breaker", "-n", "other"}, "No resources found.\n"},
		{[]string{"get", "moves", "-o", "json"}, "{\n    \"apiVersion\": \"cli.rehome.dev/v1alpha1\",\n    \"items\": [],"},
		{[]string{"status", "-o", "json"}, "{\n    \"apiVersion\": \"cli.rehome.dev/v1alpha1\","},
	} {
		got, err := execute(t, c.arguments...)
		if err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%v: error %v\n got %s\nwant %s", c.arguments, err, got, c.want)
		}
	}
}

func TestBreakersClear(t *testing.T) {
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

	if got, err := execute(t, "breakers", "clear", "deployment/web", "-n", "shop"); err == nil || got != "" ||
		err.Error() != "deployment/shop/web has no circuit breaker; workloads with one: deployment/shop/db, deployment/shop/api" {
		t.Errorf("a workload that has none: got %q, error %v", got, err)
	}
	for _, c := range []struct{ argument, want string }{
		{"deploy/api", "cleared: deployment/shop/api on worker-1 for PodLifeTime\n"},
		{"--all", "cleared: deployment/shop/db on worker-1 for PodLifeTime\n"},
		{"--all", "there are no workload circuit breakers\n"},
	} {
		if got, err := execute(t, "breakers", "clear", c.argument, "-n", "shop"); err != nil || got != c.want {
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

// An actuator that begins to lead drops a request that is old by its clock.
func TestClearWithSkewedClock(t *testing.T) {
	b := busOf(t, breakerOf("api", time.Now()))
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := execute(t, "breakers", "clear", "--all")
		done <- result{text, err}
	}()
	expect.Eventually(t, "the request", func() bool {
		entries, err := b.Ledger().Entries(t.Context())
		return err == nil && len(entries) == 2
	})
	a := actuator.New(actuator.Config{
		Bus: b, Ledger: b.Ledger(), Policy: policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()}, Source: "/test",
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Now().Add(2 * time.Minute) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Lead(ctx) }()
	expect.Equal(t, "result", <-done, result{"cleared: deployment/shop/api on worker-1 for PodLifeTime\n", nil})
	entries, err := b.Ledger().Entries(t.Context())
	expect.Must(t, err)
	expect.Equal(t, "ledger", entries, map[string][]byte{})
	cancel()
	expect.Must(t, <-ended)
}

func TestClearWithoutActuator(t *testing.T) {
	b := busOf(t, breakerOf("api", time.Now()))
	got, err := execute(t, "breakers", "clear", "Deployment", "api", "-n", "shop")
	const want = "no actuator answered within 10s; is one running, without --dry-run?"
	if err == nil || err.Error() != want || got != "" {
		t.Errorf("got %q, error %v; want %q", got, err, want)
	}
	if entries, err := b.Ledger().Entries(t.Context()); err != nil || len(entries) != 2 {
		t.Errorf("the ledger has %v, error %v; want the workload circuit breaker and the request", entries, err)
	}
}

func TestUnreachableBus(t *testing.T) {
	for _, arguments := range [][]string{
		{"status"}, {"get", "breakers"}, {"get", "requests"}, {"get", "deferred"}, {"breakers", "clear", "--all"}, {"events"}, {"events", "--type", "verdict", "-o", "json"},
		{"setup", "--nats-url", "nats://127.0.0.1:1", "--timeout", "1ms"}, {"move", "node", "n1", "--reason", "fan"},
		{"get", "deadletters"}, {"get", "deadletter", "1"}, {"deadletters", "retry", "1", "2"}, {"deadletters", "drop", "1", "2"},
		{"deadletters", "retry", "--all", "--yes"}, {"deadletters", "drop", "--all", "--yes"},
	} {
		t.Setenv("REHOME_STORE_DIR", t.TempDir())
		got, err := execute(t, arguments...)
		if got != "" || !errors.Is(err, bus.ErrNotConnected) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: got %q, error %v; want ErrNotConnected once", arguments, got, err)
		}
	}
}
