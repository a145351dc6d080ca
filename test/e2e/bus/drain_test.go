package bus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// inMiddle is the number of evicted pods, of 100, when something fails.
const inMiddle = 30

// drain has 100 pods on a node, and a policy that moves them in five seconds, so a busy machine sees the middle of the drain.
type drain struct {
	*scene.Scene
	file   string
	before map[types.UID]string
}

func newDrain(t *testing.T) drain {
	t.Helper()
	s := scene.New(t, 1)
	s.AddDeployment("api", 100)
	s.AddNodes(3) // added when all pods are on the first node
	d := drain{Scene: s, file: s.Policy("rate: {evictionsPerSecond: 20, burst: 1}"), before: s.PodsOn(s.Nodes[0])}
	if len(d.before) != 100 {
		t.Fatalf("%d pods on %s, want 100", len(d.before), s.Nodes[0])
	}
	return d
}

// begin taints the node and waits until some pods, but not all, are evicted.
func (d drain) begin(events *scene.Recording) {
	d.T.Helper()
	d.Taint(d.Nodes[0], "dedicated")
	events.WaitVerdicts("some pods are evicted", func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Evicted, v)) >= inMiddle })
	if n := len(d.Evictions()); n >= len(d.before) {
		d.T.Fatalf("all %d pods are evicted: it is not the middle", n)
	}
}

// complete waits until every pod runs elsewhere, and compares the audit log with the original pods: each was evicted exactly
// once, and no other pod.
func (d drain) complete() {
	d.T.Helper()
	d.WaitEmpty(d.Nodes[0])
	d.WaitReady("api")
	d.CheckEvictedOnce(d.before)
}

// waitAnswered waits until every pod in an answer has a verdict.
func (d drain) waitAnswered(events *scene.Recording) {
	d.T.Helper()
	events.WaitVerdicts("every pod has a verdict", func(verdicts []schemas.Verdict) bool {
		open := map[types.UID]bool{}
		for _, answer := range scene.Payloads[schemas.Intents](events) {
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

// checkAnswers checks afterwards that each intent has at most one verdict, and that each verdict has an intent. The history can miss an
// answer that a newer one of its scope replaced.
func (d drain) checkAnswers(events *scene.Recording) {
	d.T.Helper()
	d.waitAnswered(events)
	wanted, judged, more := map[string]bool{}, map[string]bool{}, 0
	newest := map[string]uint64{}
	about := func(strategy string, scope schemas.ScopeRef) string {
		return fmt.Sprint(strategy, scope.Kind, scope.Key)
	}
	for _, answer := range scene.Payloads[schemas.Intents](events) {
		key := about(answer.Strategy, answer.Scope)
		newest[key] = max(newest[key], answer.Scope.Sequence)
		for _, i := range answer.Intents {
			wanted[i.ID] = true
		}
	}
	for _, v := range events.Verdicts() {
		if judged[v.Intent.ID] {
			more++
		}
		judged[v.Intent.ID] = true
		if !wanted[v.Intent.ID] && newest[about(v.Strategy, v.Scope)] <= v.Scope.Sequence {
			d.T.Errorf("verdict %s is about intent %s on pod %s, which no answer has", v.Outcome, v.Intent.ID, v.Intent.Pod)
		}
	}
	if more > 0 {
		d.T.Errorf("%d intents have more than one verdict", more)
	}
}

// checkOnce checks that no pod has two verdicts evicted.
func (d drain) checkOnce(events *scene.Recording) {
	d.T.Helper()
	seen := map[types.UID]bool{}
	for _, v := range scene.WithOutcome(schemas.Evicted, events.Verdicts()) {
		if seen[v.Intent.Pod.UID] {
			d.T.Errorf("pod %s has two verdicts evicted", v.Intent.Pod)
		}
		seen[v.Intent.Pod.UID] = true
	}
}

// checkReported checks that the history has exactly one verdict evicted for each eviction in the audit log.
func (d drain) checkReported(events *scene.Recording) {
	d.T.Helper()
	events.WaitVerdicts("every eviction has its verdict", func(v []schemas.Verdict) bool {
		return len(scene.WithOutcome(schemas.Evicted, v)) >= len(d.before)
	})
	got := map[types.UID]string{}
	evicted := scene.WithOutcome(schemas.Evicted, events.Verdicts())
	for _, v := range evicted {
		got[v.Intent.Pod.UID] = v.Intent.Pod.Name
	}
	if !maps.Equal(got, d.before) || len(evicted) != len(d.before) {
		d.T.Errorf("%d verdicts evicted on %d pods, want one on each of %d", len(evicted), len(got), len(d.before))
	}
}

func TestDrainSurvivesLossOfStreamLeader(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{bus.StreamIntents, bus.StreamScopes, bus.StreamLedger, bus.StreamEvents} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			servers := scene.StartNATS(t, 3)
			d := newDrain(t)
			d.SetUpBus(servers, "REHOME_NATS_REPLICAS=3")
			waitCurrent(servers, 3)
			for _, role := range []string{"watcher", "functions", "actuator", "maintenance"} {
				d.StartRole(role, d.file, servers.Setting())
			}
			events := scene.Record(t, bus.Options{URL: servers.URL()})

			d.begin(events)
			lost := leader(servers, stream)
			servers.Kill(lost)
			d.complete()
			d.checkAnswers(events)
			d.checkReported(events)

			servers.Start(lost)
			waitCurrent(servers, 3)
		})
	}
}

func TestStandbyTakesOverDrain(t *testing.T) {
	servers := scene.StartNATS(t, 1)
	d := newDrain(t)
	d.SetUpBus(servers)
	d.StartRole("functions", d.file, servers.Setting())
	var leaders, standbys []*scene.Process
	for _, role := range []string{"watcher", "actuator", "maintenance"} {
		leader := d.StartRole(role, d.file, servers.Setting())
		leader.WaitLog("lease held")
		leaders, standbys = append(leaders, leader), append(standbys, d.StartRole(role, d.file, servers.Setting()))
	}
	events := scene.Record(t, bus.Options{URL: servers.URL()})

	d.begin(events)
	for _, p := range leaders {
		p.Kill()
	}
	if slices.ContainsFunc(standbys, func(p *scene.Process) bool { return strings.Contains(p.Log.String(), "lease held") }) {
		t.Error("two processes led at once")
	}
	d.complete()
	// Moves in flight of the killed actuator have no verdict, and an intent with a verdict may get a second one: rejected.
	d.checkOnce(events)
	for _, p := range standbys {
		p.WaitLog("lease held")
	}
}
