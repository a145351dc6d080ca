package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
)

// inMiddle is the number of evicted pods, of 100, when something fails.
const inMiddle = 30

// drain has 100 pods on a node, and a policy that moves them in five seconds, so a busy machine sees the middle of the drain.
type drain struct {
	*scene
	file   string
	before map[types.UID]string
}

func newDrain(t *testing.T) drain {
	t.Helper()
	s := newScene(t, 1)
	s.deployment("api", 100)
	s.addNodes(3) // added when all pods are on the first node
	d := drain{scene: s, file: s.policy("rate: {evictionsPerSecond: 20, burst: 1}"), before: s.pods(s.nodes[0])}
	if len(d.before) != 100 {
		t.Fatalf("%d pods on %s, want 100", len(d.before), s.nodes[0])
	}
	return d
}

// begin taints the node and waits until some pods, but not all, are evicted.
func (d drain) begin(events *recording) {
	d.t.Helper()
	d.taint(d.nodes[0], "dedicated")
	events.until("some pods are evicted", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) >= inMiddle })
	if n := len(d.evictions()); n >= len(d.before) {
		d.t.Fatalf("all %d pods are evicted: it is not the middle", n)
	}
}

// complete waits until every pod runs elsewhere, and compares the audit log with the original pods: each was evicted exactly
// once, and no other pod.
func (d drain) complete() {
	d.t.Helper()
	d.emptied(d.nodes[0])
	d.ready("api")
	d.evictedOnce(d.before)
}

// answered waits until every pod in an answer has a verdict.
func (d drain) answered(events *recording) {
	d.t.Helper()
	events.until("every pod has a verdict", func(verdicts []schemas.Verdict) bool {
		open := map[types.UID]bool{}
		for _, answer := range payloads[schemas.Intents](events) {
			for _, i := range answer.Intents {
				open[i.Pod.UID] = true
			}
		}
		for _, v := range verdicts {
			delete(open, v.Intent.Pod.UID)
		}
		return len(open) == 0
	})
}

// closed checks afterwards that each intent has at most one verdict, and that each verdict has an intent. The history can miss an
// answer that a newer one of its scope replaced.
func (d drain) closed(events *recording) {
	d.t.Helper()
	d.answered(events)
	wanted, judged, more := map[string]bool{}, map[string]bool{}, 0
	newest := map[string]uint64{}
	about := func(strategy string, scope schemas.ScopeRef) string {
		return fmt.Sprint(strategy, scope.Kind, scope.Key)
	}
	for _, answer := range payloads[schemas.Intents](events) {
		key := about(answer.Strategy, answer.Scope)
		newest[key] = max(newest[key], answer.Scope.Sequence)
		for _, i := range answer.Intents {
			wanted[i.ID] = true
		}
	}
	for _, v := range events.verdicts() {
		if judged[v.Intent.ID] {
			more++
		}
		judged[v.Intent.ID] = true
		if !wanted[v.Intent.ID] && newest[about(v.Strategy, v.Scope)] <= v.Scope.Sequence {
			d.t.Errorf("verdict %s is about intent %s on pod %s, which no answer has", v.Outcome, v.Intent.ID, v.Intent.Pod)
		}
	}
	if more > 0 {
		d.t.Errorf("%d intents have more than one verdict", more)
	}
}

// once checks that no pod has two verdicts evicted.
func (d drain) once(events *recording) {
	d.t.Helper()
	seen := map[types.UID]bool{}
	for _, v := range of(schemas.Evicted, events.verdicts()) {
		if seen[v.Intent.Pod.UID] {
			d.t.Errorf("pod %s has two verdicts evicted", v.Intent.Pod)
		}
		seen[v.Intent.Pod.UID] = true
	}
}

// reported checks that the history has exactly one verdict evicted for each eviction in the audit log.
func (d drain) reported(events *recording) {
	d.t.Helper()
	events.until("every eviction has its verdict", func(v []schemas.Verdict) bool {
		return len(of(schemas.Evicted, v)) >= len(d.before)
	})
	got := map[types.UID]string{}
	evicted := of(schemas.Evicted, events.verdicts())
	for _, v := range evicted {
		got[v.Intent.Pod.UID] = v.Intent.Pod.Name
	}
	if !maps.Equal(got, d.before) || len(evicted) != len(d.before) {
		d.t.Errorf("%d verdicts evicted on %d pods, want one on each of %d", len(evicted), len(got), len(d.before))
	}
}

// setUp runs `rehome setup`.
func (s *scene) setUp(servers *natsServers, environment ...string) {
	s.t.Helper()
	got := s.run([]string{"setup"}, append(environment, servers.variable())...)
	if got.code != 0 || got.stdout != "bus is set up\n" {
		s.t.Fatalf("rehome setup: exit code %d, output %q, errors:\n%s", got.code, got.stdout, got.stderr)
	}
}

func TestDrainSurvivesLossOfStreamLeader(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{bus.StreamIntents, bus.StreamScopes, bus.StreamLedger, bus.StreamEvents} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			servers := natsCluster(t, 3)
			d := newDrain(t)
			d.setUp(servers, "REHOME_NATS_REPLICAS=3")
			servers.whole(3)
			for _, role := range []string{"watcher", "functions", "actuator", "maintenance"} {
				d.role(role, d.file, servers.variable())
			}
			events := record(t, bus.Options{URL: servers.url()})

			d.begin(events)
			lost := servers.leader(stream)
			servers.kill(lost)
			d.complete()
			d.closed(events)
			d.reported(events)

			servers.start(lost)
			servers.whole(3)
		})
	}
}

func TestStandbyTakesOverDrain(t *testing.T) {
	servers := natsCluster(t, 1)
	d := newDrain(t)
	d.setUp(servers)
	d.role("functions", d.file, servers.variable())
	var leaders, standbys []*process
	for _, role := range []string{"watcher", "actuator", "maintenance"} {
		leader := d.role(role, d.file, servers.variable())
		leader.says("lease held")
		leaders, standbys = append(leaders, leader), append(standbys, d.role(role, d.file, servers.variable()))
	}
	events := record(t, bus.Options{URL: servers.url()})

	d.begin(events)
	for _, p := range leaders {
		p.Kill()
	}
	if slices.ContainsFunc(standbys, func(p *process) bool { return strings.Contains(p.Log.String(), "lease held") }) {
		t.Error("two processes led at once")
	}
	d.complete()
	// Moves in flight of the killed actuator have no verdict, and an intent with a verdict may get a second one: rejected.
	d.once(events)
	for _, p := range standbys {
		p.says("lease held")
	}
}
