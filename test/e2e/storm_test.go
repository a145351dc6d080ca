package e2e

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestManyBadNodesStopMoves(t *testing.T) {
	s := newScene(t, 6)
	bad, next := s.nodes[:3], s.nodes[3]
	for i, n := range s.nodes[:4] {
		s.deployment(fmt.Sprintf("app-%d", i), 10, preferring(n))
		s.placed(fmt.Sprintf("app-%d", i), map[string]int{n: 10})
	}
	dir := filetest.ShortDir(t)
	p := s.rehome(s.policy("circuitBreakers: {cluster: {nodes: 30%}}"), dir)
	p.leads()
	events := record(t, at(dir))
	p.clusterBreaker("")

	for _, n := range bad {
		s.taint(n, "bad")
	}
	p.clusterBreaker(schemas.ReasonStormNodes)
	verdicts := events.until("each of the 30 pods has a verdict", func(v []schemas.Verdict) bool {
		pods := map[types.UID]bool{}
		for _, v := range v {
			pods[v.Intent.Pod.UID] = true
		}
		return len(pods) == 30 && slices.ContainsFunc(v, func(v schemas.Verdict) bool { return v.Reason == schemas.ReasonStormNodes })
	})
	s.stormDeferred(verdicts)
	moved := len(s.moved(0, len(s.evictions()))) // pods evicted before the third taint, and evictions in flight at that time
	if moved > 15 {
		t.Errorf("%d of 30 pods were moved before the circuit breaker, want few", moved)
	}
	t.Logf("%d of 30 pods were moved before the circuit breaker", moved)
	s.told("Warning", "ClusterBreaker", `^moves stopped: 3 of 6 nodes went bad: 0 not ready, 3 tainted within 10m0s; moves stop at 30 percent$`)

	for _, n := range bad {
		s.untaint(n)
	}
	p.clusterBreaker("")
	s.told("Normal", "ClusterBreaker", `^over: pods are moved again$`)
	s.moved(moved, 0)
	before := s.pods(next)
	s.taint(next, "maintenance")
	s.emptied(next)
	if got := uids(s.moved(moved, len(before))); !reflect.DeepEqual(got, before) {
		t.Errorf("evicted %v after the storm, want %v", got, before)
	}
}

// TestUnreadyReplacements opens the cluster circuit breaker with three replacements that do not become ready. It stays
// open while three are not ready, and closes when they are, without any other change of the cluster.
func TestUnreadyReplacements(t *testing.T) {
	s := newScene(t, 2)
	hatch := s.hatch()
	s.deployment("api", 6, preferring(s.nodes[0]), func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{cluster.HoldAnnotation: "until the scene lets it be ready"}
	})
	s.placed("api", map[string]int{s.nodes[0]: 6})
	before := s.pods(s.nodes[0])
	policy := s.policy("circuitBreakers: {cluster: {nodes: 0%, pending: 3, pendingFor: 3s}}", "limits: {unavailable: 3}")
	dir := filetest.ShortDir(t)
	p := s.rehome(policy, dir)
	p.leads()
	hatch.close()
	s.taint(s.nodes[0], "dedicated")
	p.clusterBreaker(schemas.ReasonStormPending)
	s.moved(0, 3)

	// A replacement of a replacement is not ready either, and a new leader knows all three.
	s.t.Must(s.client.CoreV1().Pods(s.namespace).Delete(t.Context(), s.notReady()[0], metav1.DeleteOptions{}))
	expect.EventuallyWithState(t, "three others are not ready", func() (bool, string) { return len(s.notReady()) == 3, "" })
	p.Kill()
	p = s.rehome(policy, dir)
	p.clusterBreaker(schemas.ReasonStormPending)
	s.moved(0, 3)
	p.clusterBreaker(schemas.ReasonStormPending)

	hatch.open()
	s.ready("api")
	ready := time.Now()
	p.clusterBreaker("")
	if took := time.Since(ready); took > 5*time.Second {
		t.Errorf("the circuit breaker closed %v after the replacements were ready, want at most 5s", took)
	}
	s.emptied(s.nodes[0])
	s.evictedOnce(before)
}

// notReady returns the pods of the Deployment api on the second node that are not ready.
func (s *scene) notReady() (names []string) {
	for _, p := range s.podsOf("api") {
		if p.Spec.NodeName == s.nodes[1] && !cluster.IsReady(&p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// clusterBreaker waits until the metric reports that the cluster circuit breaker is open only for this reason, or, for "", that
// it is closed.
func (p *process) clusterBreaker(reason schemas.ReasonCode) {
	p.t.Helper()
	metric := regexp.MustCompile(`(?m)^rehome_cluster_breaker_open\{.*$`)
	var want []string
	if reason != "" {
		want = []string{fmt.Sprintf("rehome_cluster_breaker_open{reason=%q} 1", reason)}
	}
	p.eventually(fmt.Sprintf("the cluster circuit breaker is open for the reason %q", reason), func() (bool, string) {
		_, metrics := p.Get("metrics")
		got := metric.FindAllString(metrics, -1)
		return slices.Equal(got, want), fmt.Sprint(got)
	})
}

// stormDeferred checks the verdicts that the cluster circuit breaker deferred.
func (s *scene) stormDeferred(verdicts []schemas.Verdict) {
	s.t.Helper()
	for _, v := range verdicts {
		if v.Reason != schemas.ReasonStormNodes {
			continue
		}
		got := schemas.Verdict{Outcome: v.Outcome, Reason: v.Reason, Message: v.Message}
		want := schemas.Verdict{Outcome: schemas.Deferred, Reason: schemas.ReasonStormNodes, Message: "3 of 6 nodes went bad: " +
			"0 not ready, 3 tainted within 10m0s; moves stop at 30 percent"}
		if !reflect.DeepEqual(got, want) || v.Again.IsZero() {
			s.t.Errorf("got  %+v, again at %v\nwant %+v, and a time", got, v.Again, want)
		}
	}
}

// told waits for a Kubernetes Event on the lease of the actuator.
func (s *scene) told(kind, reason, note string) {
	s.t.Helper()
	says := regexp.MustCompile(note)
	expect.EventuallyWithState(s.t, "a Kubernetes Event says "+note, func() (bool, string) {
		list, err := s.client.EventsV1().Events(s.namespace).List(s.t.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		s.t.Must(err)
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
