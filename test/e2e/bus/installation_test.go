package bus

import (
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// TestSecondInstallation starts more processes beside `rehome run` in the namespace rehome-a, all with otherwise default
// settings. A limit over a window applies to all of them together.
func TestSecondInstallation(t *testing.T) {
	const most = 5
	defaults := "REHOME_LEASE_NAMESPACE=kube-system" // a namespace without leases of other scenes
	s := scene.New(t, 3)
	s.AddDeployment("api", 4*most, scene.PreferNode(s.Nodes[0]))
	policy := s.Policy(scene.FastRate, "maxNoOfPodsToEvictTotal: 5", "limits: {window: 5m}")
	s.StartRun(policy, filetest.ShortDir(t), defaults, "REHOME_NAMESPACE=rehome-a")
	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEvicted(0, most)

	held := func(name, text string) {
		t.Helper()
		for _, part := range []string{"lease kube-system/rehome-", " is held by rehome-a/", "set REHOME_INSTALLATION to run a second one"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s says %q, want %q in it", name, text, part)
			}
		}
	}
	once := s.Run([]string{"once", "--policy", policy}, defaults)
	if held("once", once.Stderr); once.Code != 1 || once.Stdout != "" {
		t.Errorf("once: %s", once)
	}
	second := s.Start([]string{"run", "--policy", policy}, "REHOME_STORE_DIR="+filetest.ShortDir(t), defaults, "REHOME_NAMESPACE=rehome-b")
	if code := second.Exit(); code != 1 {
		t.Errorf("the second run ended with %d, want 1", code)
	}
	held("the second run", second.Log.String())
	if got := s.Run([]string{"once", "--policy", policy, "--dry-run"}, defaults); got.Code != 0 {
		t.Errorf("a dry run: %s", got)
	}
	if got := len(s.Evictions()); got != most {
		t.Errorf("%d evictions, want %d", got, most)
	}
	other := s.Run([]string{"once", "--policy", policy}, defaults, "REHOME_INSTALLATION=second")
	if got := len(s.Evictions()); other.Code != 0 || got != 2*most {
		t.Errorf("an installation of another name: %d evictions, want %d: %s", got, 2*most, other)
	}
}

// TestTwoClustersOnOneServer has a NATS server whose streams belong to another cluster.
func TestTwoClustersOnOneServer(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 1, scene.OnNode(s.Nodes[0]))
	policy := s.Policy()
	servers := scene.StartNATS(t, 1)
	other := bustest.Connect(t, bus.Options{URL: servers.URL()})
	other.Identify(bus.Installation{Name: "rehome", Cluster: "1111", ClusterName: "prod"})
	bustest.SetUp(t, other, bus.Setup{})
	want := "the bus belongs to another installation: rehome in cluster prod (UID of kube-system: 1111), and this process to rehome in cluster"
	for _, role := range []string{"run", "watcher", "actuator", "maintenance"} {
		p := s.Start([]string{role, "--policy", policy}, servers.Setting())
		if code := p.Exit(); code != 1 || !strings.Contains(p.Log.String(), want) {
			t.Errorf("%s ended with %d, want 1, and said %q, want %q in it", role, code, p.Log, want)
		}
	}
	if got := s.Run([]string{"setup", "--timeout", "1m"}, servers.Setting()); got.Code != 1 || !strings.Contains(got.Stderr, want) {
		t.Errorf("setup: %s\nwant %q", got, want)
	}
	if got := s.Run([]string{"setup", "--take-over"}, servers.Setting()); got.Code != 0 {
		t.Fatalf("setup --take-over: %s", got)
	}

	// Messages of the other cluster are rejected nevertheless.
	s.StartRole("run", policy, servers.Setting())
	for uid, name := range s.PodsOn(s.Nodes[0]) {
		a := schemas.Intents{
			Profile: "default", Strategy: "RemovePodsViolatingNodeTaints",
			Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: s.Nodes[0], Event: "e", Sequence: 1 << 60, Since: time.Now()},
			Intents: []schemas.Intent{{
				ID: "i", Node: s.Nodes[0], Reason: "because", Pod: schemas.PodRef{Namespace: s.Namespace, Name: name, UID: uid},
				Expires: time.Now().Add(time.Minute),
			}},
		}
		e := schematest.Event(s.T, "/clusters/prod/functions", a, time.Now(), schemas.Event{})
		s.T.Must(other.Answer(t.Context(), e, a))
	}
	waitDeadLetter(t, other, bus.DeadQuery{Stream: bus.StreamIntents}, "its installation is 1111/rehome, want ")
	if list := s.Evictions(); list != nil {
		t.Errorf("evicted %v, want none", list)
	}
}

// TestBusPrefix has two installations with one NATS server and one account. Only their prefixes differ.
func TestBusPrefix(t *testing.T) {
	servers := scene.StartNATS(t, 1)
	type side struct {
		*scene.Scene
		events *scene.Recording
		prefix string
	}
	var sides []side
	for i, prefix := range []string{"eu1", "us1"} {
		s := scene.New(t, 2)
		s.AddDeployment("api", 2+i, scene.PreferNode(s.Nodes[0]))
		s.StartRole("run", s.Policy(), servers.Setting(), "REHOME_BUS_PREFIX="+prefix, "REHOME_CLUSTER="+prefix)
		sides = append(sides, side{s, scene.Record(t, bus.Options{URL: servers.URL(), Prefix: bus.Prefix(prefix)}), prefix})
	}
	for i, s := range sides {
		s.Taint(s.Nodes[0], "dedicated")
		s.WaitEvicted(0, 2+i)
	}
	for i, s := range sides {
		own, found := "/clusters/"+s.prefix+"/", 0
		for _, e := range s.events.All() {
			if !strings.HasPrefix(e.Source, own) || !strings.HasPrefix(e.Channel, "rehome.") {
				t.Errorf("an event from %s on %s, want only events from %s", e.Source, e.Channel, own)
			}
			if e.Type == schemas.IntentsType {
				found++
			}
		}
		if got := len(s.Evictions()); got != 2+i || found == 0 {
			t.Errorf("%s: %d evictions and %d intents messages, want %d and some", s.prefix, got, found, 2+i)
		}
	}
}
