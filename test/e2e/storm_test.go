package e2e

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

func TestWhenManyNodesGoBadAtOnceNothingMovesUntilTheyAreWell(t *testing.T) {
	s := newScene(t, 6)
	bad, next := s.nodes[:3], s.nodes[3]
	for i, n := range s.nodes[:4] {
		s.deployment(fmt.Sprintf("app-%d", i), 10, preferring(n))
		s.placed(fmt.Sprintf("app-%d", i), map[string]int{n: 10})
	}
	dir := store(t)
	p := s.rehome(s.policy("circuitBreakers: {cluster: {nodes: 30%}}"), dir)
	p.leads()
	events := record(t, at(dir))
	s.clusterBreaker(p, false)

	for _, n := range bad {
		s.taint(n, "bad")
	}
	s.clusterBreaker(p, true)
	verdicts := events.until("each of the 30 pods has a verdict", func(v []schemas.Verdict) bool {
		pods := map[types.UID]bool{}
		for _, v := range v {
			pods[v.Intent.Pod.UID] = true
		}
		return len(pods) == 30 && slices.ContainsFunc(v, func(v schemas.Verdict) bool { return v.Reason == schemas.ReasonStormNodes })
	})
	s.stormDeferred(verdicts)
	moved := len(s.moved(0, len(s.evictions()))) // those that were faster than the third taint, and those on their way by then
	if moved > 15 {
		t.Errorf("%d of 30 pods were moved before the circuit breaker, want few", moved)
	}
	t.Logf("%d of 30 pods were moved before the circuit breaker", moved)
	s.told("Warning", `^nothing is moved: 3 of 6 nodes went bad: 0 not ready, 3 tainted within 10m0s; nothing is moved from 30 percent on$`)

	for _, n := range bad {
		s.untaint(n)
	}
	s.clusterBreaker(p, false)
	s.told("Normal", `^over: pods are moved again$`)
	s.moved(moved, 0)
	before := s.pods(next)
	s.taint(next, "maintenance")
	s.emptied(next)
	if got := uids(s.moved(moved, len(before))); !reflect.DeepEqual(got, before) {
		t.Errorf("evicted %v after the storm, want %v", got, before)
	}
}

// clusterBreaker waits until the metric says that the cluster circuit breaker is open because of the nodes, or that it is closed.
func (s *scene) clusterBreaker(p *process, open bool) {
	s.t.Helper()
	metric := regexp.MustCompile(`(?m)^rehome_cluster_breaker_open\{(.*)\} (.*)$`)
	var want [][]string
	if open {
		line := `rehome_cluster_breaker_open{reason="StormNodes"} 1`
		want = [][]string{{line, `reason="StormNodes"`, "1"}}
	}
	p.eventually(fmt.Sprintf("the cluster circuit breaker is open: %t", open), func() (bool, string) {
		_, metrics := p.get("metrics")
		got := metric.FindAllStringSubmatch(metrics, -1)
		return reflect.DeepEqual(got, want), fmt.Sprint(got)
	})
}

// stormDeferred checks what the verdicts say that the cluster circuit breaker gave.
func (s *scene) stormDeferred(verdicts []schemas.Verdict) {
	s.t.Helper()
	for _, v := range verdicts {
		if v.Reason != schemas.ReasonStormNodes {
			continue
		}
		got := schemas.Verdict{Outcome: v.Outcome, Reason: v.Reason, Message: v.Message}
		want := schemas.Verdict{Outcome: schemas.Deferred, Reason: schemas.ReasonStormNodes, Message: "3 of 6 nodes went bad: " +
			"0 not ready, 3 tainted within 10m0s; nothing is moved from 30 percent on"}
		if !reflect.DeepEqual(got, want) || v.Again.IsZero() {
			s.t.Errorf("got  %+v, again at %v\nwant %+v, and a time", got, v.Again, want)
		}
	}
}

// told waits for a Kubernetes Event about the cluster circuit breaker on the lease of the actuator.
func (s *scene) told(kind, note string) {
	s.t.Helper()
	says := regexp.MustCompile(note)
	eventually(s.t, "a Kubernetes Event says "+note, func() (bool, string) {
		list, err := s.client.EventsV1().Events(s.namespace).List(s.t.Context(), metav1.ListOptions{FieldSelector: "reason=ClusterBreaker"})
		s.must(err)
		seen := ""
		for _, e := range list.Items {
			seen += fmt.Sprintf("%s on %s %s: %s\n", e.Type, e.Regarding.Kind, e.Regarding.Name, e.Note)
			if e.Type == kind && says.MatchString(e.Note) && e.Regarding.Kind == "Lease" && e.Regarding.Name == "rehome-actuator" {
				return true, seen
			}
		}
		return false, seen
	})
}
