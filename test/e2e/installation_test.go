package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// TestSecondInstallation starts more processes beside `rehome run` in the namespace rehome-a, all with otherwise default
// settings. A limit over a window applies to all of them together.
func TestSecondInstallation(t *testing.T) {
	const most = 5
	defaults := "REHOME_LEASE_NAMESPACE=kube-system" // a namespace without leases of other scenes
	s := newScene(t, 3)
	s.deployment("api", 4*most, preferring(s.nodes[0]))
	policy := s.policy(fast, "maxNoOfPodsToEvictTotal: 5", "limits: {window: 5m}")
	s.rehome(policy, filetest.ShortDir(t), defaults, "REHOME_NAMESPACE=rehome-a")
	s.taint(s.nodes[0], "dedicated")
	s.evicted(0, most)

	held := func(name, text string) {
		t.Helper()
		for _, part := range []string{"lease kube-system/rehome-", " is held by rehome-a/", "set REHOME_INSTALLATION to run a second one"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s says %q, want %q in it", name, text, part)
			}
		}
	}
	once := s.run([]string{"once", "--policy", policy}, defaults)
	if held("once", once.stderr); once.code != 1 || once.stdout != "" {
		t.Errorf("once: %s", once)
	}
	second := s.start([]string{"run", "--policy", policy}, "REHOME_STORE_DIR="+filetest.ShortDir(t), defaults, "REHOME_NAMESPACE=rehome-b")
	if code := second.exit(); code != 1 {
		t.Errorf("the second run ended with %d, want 1", code)
	}
	held("the second run", second.Log.String())
	if got := s.run([]string{"once", "--policy", policy, "--dry-run"}, defaults); got.code != 0 {
		t.Errorf("a dry run: %s", got)
	}
	if got := len(s.evictions()); got != most {
		t.Errorf("%d evictions, want %d", got, most)
	}
	other := s.run([]string{"once", "--policy", policy}, defaults, "REHOME_INSTALLATION=second")
	if got := len(s.evictions()); other.code != 0 || got != 2*most {
		t.Errorf("an installation of another name: %d evictions, want %d: %s", got, 2*most, other)
	}
}

// TestTwoClustersOnOneServer has a NATS server whose streams belong to another cluster.
func TestTwoClustersOnOneServer(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 1, on(s.nodes[0]))
	policy := s.policy()
	servers := natsCluster(t, 1)
	other := bustest.Connect(t, bus.Options{URL: servers.url()})
	other.Identify(bus.Installation{Name: "rehome", Cluster: "1111", ClusterName: "prod"})
	bustest.SetUp(t, other, bus.Setup{})
	want := "the bus belongs to another installation: rehome in cluster prod (UID of kube-system: 1111), and this process to rehome in cluster"
	for _, role := range []string{"run", "watcher", "actuator", "maintenance"} {
		p := s.start([]string{role, "--policy", policy}, servers.variable())
		if code := p.exit(); code != 1 || !strings.Contains(p.Log.String(), want) {
			t.Errorf("%s ended with %d, want 1, and said %q, want %q in it", role, code, p.Log, want)
		}
	}
	if got := s.run([]string{"setup", "--timeout", "1m"}, servers.variable()); got.code != 1 || !strings.Contains(got.stderr, want) {
		t.Errorf("setup: %s\nwant %q", got, want)
	}
	if got := s.run([]string{"setup", "--take-over"}, servers.variable()); got.code != 0 {
		t.Fatalf("setup --take-over: %s", got)
	}

	// Messages of the other cluster are rejected nevertheless.
	s.role("run", policy, servers.variable())
	for uid, name := range s.pods(s.nodes[0]) {
		a := schemas.Intents{
			Profile: "default", Strategy: "RemovePodsViolatingNodeTaints",
			Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: s.nodes[0], Event: "e", Sequence: 1 << 60, Since: time.Now()},
			Intents: []schemas.Intent{{
				ID: "i", Node: s.nodes[0], Reason: "because", Pod: schemas.PodRef{Namespace: s.namespace, Name: name, UID: uid},
				Expires: time.Now().Add(time.Minute),
			}},
		}
		e := schematest.Event(s.t, "/clusters/prod/functions", a, time.Now(), schemas.Event{})
		s.t.Must(other.Answer(t.Context(), e, a))
	}
	buried(t, other, bus.DeadQuery{Stream: bus.StreamIntents}, "its installation is 1111/rehome, want ")
	if list := s.evictions(); list != nil {
		t.Errorf("evicted %v, want none", list)
	}
}

// TestBusPrefix has two installations with one NATS server and one account. Only their prefixes differ.
func TestBusPrefix(t *testing.T) {
	servers := natsCluster(t, 1)
	type side struct {
		*scene
		events *recording
		prefix string
	}
	var sides []side
	for i, prefix := range []string{"eu1", "us1"} {
		s := newScene(t, 2)
		s.deployment("api", 2+i, preferring(s.nodes[0]))
		s.role("run", s.policy(), servers.variable(), "REHOME_BUS_PREFIX="+prefix, "REHOME_CLUSTER="+prefix)
		sides = append(sides, side{s, record(t, bus.Options{URL: servers.url(), Prefix: bus.Prefix(prefix)}), prefix})
	}
	for i, s := range sides {
		s.taint(s.nodes[0], "dedicated")
		s.evicted(0, 2+i)
	}
	for i, s := range sides {
		own, found := "/clusters/"+s.prefix+"/", 0
		for _, e := range s.events.all() {
			if !strings.HasPrefix(e.Source, own) || !strings.HasPrefix(e.Channel, "rehome.") {
				t.Errorf("an event from %s on %s, want only events from %s", e.Source, e.Channel, own)
			}
			if e.Type == schemas.IntentsType {
				found++
			}
		}
		if got := len(s.evictions()); got != 2+i || found == 0 {
			t.Errorf("%s: %d evictions and %d intents messages, want %d and some", s.prefix, got, found, 2+i)
		}
	}
}
