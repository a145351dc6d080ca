package moves

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
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestManyBadNodesStopMoves(t *testing.T) {
	s := scene.New(t, 6)
	bad, next := s.Nodes[:3], s.Nodes[3]
	for i, n := range s.Nodes[:4] {
		s.AddDeployment(fmt.Sprintf("app-%d", i), 10, scene.PreferNode(n))
		s.WaitPlaced(fmt.Sprintf("app-%d", i), map[string]int{n: 10})
	}
	dir := filetest.ShortDir(t)
	p := s.StartRun(s.Policy("circuitBreakers: {cluster: {nodes: 30%}}"), dir)
	p.WaitLeads()
	events := scene.Record(t, scene.BusIn(dir))
	p.WaitClusterBreaker("")

	for _, n := range bad {
		s.Taint(n, "bad")
	}
	p.WaitClusterBreaker(schemas.ReasonStormNodes)
	verdicts := events.WaitVerdicts("each of the 30 pods has a verdict", func(v []schemas.Verdict) bool {
		pods := map[types.UID]bool{}
		for _, v := range v {
			pods[v.Intent.Pod.UID] = true
		}
		return len(pods) == 30 && slices.ContainsFunc(v, func(v schemas.Verdict) bool { return v.Reason == schemas.ReasonStormNodes })
	})
	stormDeferred(s, verdicts)
	moved := len(s.CheckMoved(0, len(s.Evictions()))) // pods evicted before the third taint, and evictions in flight at that time
	if moved > 15 {
		t.Errorf("%d of 30 pods were moved before the circuit breaker, want few", moved)
	}
	t.Logf("%d of 30 pods were moved before the circuit breaker", moved)
	checkEvent(s, "Warning", "ClusterBreaker", `^moves stopped: 3 of 6 nodes went bad: 0 not ready, 3 tainted within 10m0s; moves stop at 30 percent$`)

	for _, n := range bad {
		s.Untaint(n)
	}
	p.WaitClusterBreaker("")
	checkEvent(s, "Normal", "ClusterBreaker", `^cluster circuit breaker closed; pods can move again$`)
	s.CheckMoved(moved, 0)
	before := s.PodsOn(next)
	s.Taint(next, "maintenance")
	s.WaitEmpty(next)
	if got := scene.UIDs(s.CheckMoved(moved, len(before))); !reflect.DeepEqual(got, before) {
		t.Errorf("evicted %v after the storm, want %v", got, before)
	}
}

// TestUnreadyReplacements opens the cluster circuit breaker with three replacements that do not become ready. It stays
// open while three are not ready, and closes when they are, without any other change of the cluster.
func TestUnreadyReplacements(t *testing.T) {
	s := scene.New(t, 2)
	gate := newReadinessGate(s)
	s.AddDeployment("api", 6, scene.PreferNode(s.Nodes[0]), func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{cluster.HoldAnnotation: "until the scene lets it be ready"}
	})
	s.WaitPlaced("api", map[string]int{s.Nodes[0]: 6})
	before := s.PodsOn(s.Nodes[0])
	policy := s.Policy("circuitBreakers: {cluster: {nodes: 0%, pending: 3, pendingFor: 3s}}", "limits: {unavailable: 3}")
	dir := filetest.ShortDir(t)
	p := s.StartRun(policy, dir)
	p.WaitLeads()
	gate.close()
	s.Taint(s.Nodes[0], "dedicated")
	p.WaitClusterBreaker(schemas.ReasonStormPending)
	s.CheckMoved(0, 3)

	// A replacement of a replacement is not ready either, and a new leader knows all three.
	s.T.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(t.Context(), notReady(s)[0], metav1.DeleteOptions{}))
	expect.EventuallyWithState(t, "three others are not ready", func() (bool, string) { return len(notReady(s)) == 3, "" })
	p.Kill()
	p = s.StartRun(policy, dir)
	p.WaitClusterBreaker(schemas.ReasonStormPending)
	s.CheckMoved(0, 3)
	p.WaitClusterBreaker(schemas.ReasonStormPending)

	gate.open()
	s.WaitReady("api")
	ready := time.Now()
	p.WaitClusterBreaker("")
	if took := time.Since(ready); took > 5*time.Second {
		t.Errorf("the circuit breaker closed %v after the replacements were ready, want at most 5s", took)
	}
	s.WaitEmpty(s.Nodes[0])
	s.CheckEvictedOnce(before)
}

// notReady returns the pods of the Deployment api on the second node that are not ready.
func notReady(s *scene.Scene) (names []string) {
	for _, p := range s.PodsOf("api") {
		if p.Spec.NodeName == s.Nodes[1] && !cluster.IsReady(&p) {
			names = append(names, p.Name)
		}
	}
	return names
}

// stormDeferred checks the verdicts that the cluster circuit breaker deferred.
func stormDeferred(s *scene.Scene, verdicts []schemas.Verdict) {
	s.T.Helper()
	for _, v := range verdicts {
		if v.Reason != schemas.ReasonStormNodes {
			continue
		}
		got := schemas.Verdict{Outcome: v.Outcome, Reason: v.Reason, Message: v.Message}
		want := schemas.Verdict{Outcome: schemas.Deferred, Reason: schemas.ReasonStormNodes, Message: "3 of 6 nodes went bad: " +
			"0 not ready, 3 tainted within 10m0s; moves stop at 30 percent"}
		if !reflect.DeepEqual(got, want) || v.Again.IsZero() {
			s.T.Errorf("got  %+v, again at %v\nwant %+v, and a time", got, v.Again, want)
		}
	}
}

// checkEvent waits for a Kubernetes Event on the lease of the actuator.
func checkEvent(s *scene.Scene, kind, reason, note string) {
	s.T.Helper()
	says := regexp.MustCompile(note)
	expect.EventuallyWithState(s.T, "a Kubernetes Event says "+note, func() (bool, string) {
		list, err := s.Client.EventsV1().Events(s.Namespace).List(s.T.Context(), metav1.ListOptions{FieldSelector: "reason=" + reason})
		s.T.Must(err)
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
