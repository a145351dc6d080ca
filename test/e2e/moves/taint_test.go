package moves

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestTaintEvictionLatency(t *testing.T) {
	s := scene.New(t, 3)
	s.AddDeployment("api", 8, scene.PreferNode(s.Nodes[0]))
	s.StartRun(s.Policy(), filetest.ShortDir(t))

	// Usually three taints of five must be fast: a single one could coincide with other load on the machine. A constantly busy
	// machine gets ten more.
	var delays []time.Duration
	for inTime := 0; inTime < 3; {
		before := s.PodsOn(s.Nodes[0])
		if len(before) != 8 {
			t.Fatalf("%d pods on %s, want 8", len(before), s.Nodes[0])
		}
		from := len(s.Evictions())
		tainted := time.Now()
		s.Taint(s.Nodes[0], "dedicated")
		s.WaitEmpty(s.Nodes[0])
		s.WaitReady("api")
		got := s.WaitEvicted(from, 8)
		if !reflect.DeepEqual(scene.UIDs(got), before) {
			t.Fatalf("evicted %v, want %v", scene.UIDs(got), before)
		}
		delays = append(delays, got[0].Time.Sub(tainted))
		t.Logf("first eviction after %v, last after %v", got[0].Time.Sub(tainted), got[len(got)-1].Time.Sub(tainted))
		if delays[len(delays)-1] <= time.Second {
			inTime++
		}
		if len(delays) == 15 && inTime < 3 {
			t.Fatalf("the first evictions came %v after the taint, want three of them within a second", delays)
		}
		s.BringBack("api", 8)
	}
}

// tolerating makes the pods tolerate a taint.
func tolerating(key string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
}

func TestTolerantAndProtectedPods(t *testing.T) {
	s := scene.New(t, 2)
	node := s.Nodes[0]
	s.AddDeployment("moves", 2, scene.PreferNode(node))
	s.AddDeployment("tolerates", 1, scene.OnNode(node), tolerating("dedicated"), tolerating("again"))
	s.AddDeployment("moves-at-the-second", 1, scene.OnNode(node), tolerating("dedicated"))
	s.AddDeployment("critical", 1, scene.OnNode(node), func(p *corev1.PodTemplateSpec) {
		p.Spec.PriorityClassName = "system-cluster-critical"
	})
	s.AddDaemonSet("agent")
	s.AddPod("bare", node, nil)
	s.AddPod("mirror", node, map[string]string{"kubernetes.io/config.mirror": "x"})
	want := []string{"agent", "bare", "critical", "mirror", "tolerates"}
	moving := s.PodsOn(node)
	maps.DeleteFunc(moving, func(_ types.UID, name string) bool { return !strings.HasPrefix(name, "moves-") })

	dir := filetest.ShortDir(t)
	s.StartRun(s.Policy(), dir)
	events := scene.Record(t, scene.BusIn(dir))
	s.Taint(node, "dedicated")
	events.WaitVerdicts("both pods are evicted", func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Evicted, v)) == 2 })

	// The second taint makes sure that all pods were evaluated again: protected pods must stay.
	s.Taint(node, "again")
	events.WaitVerdicts("one more pod is evicted", func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Evicted, v)) == 3 })
	if got := scene.UIDs(s.WaitEvicted(0, 3)); !reflect.DeepEqual(got, moving) {
		t.Errorf("evicted %v, want %v", got, moving)
	}
	var stayed []string
	for _, name := range s.PodsOn(node) {
		workload, _, _ := strings.Cut(name, "-")
		stayed = append(stayed, workload)
	}
	slices.Sort(stayed)
	if !reflect.DeepEqual(stayed, want) {
		t.Errorf("stayed %v, want %v", stayed, want)
	}
}

func TestBudgetDefersMove(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 2, scene.PreferNode(s.Nodes[0]))
	s.AddBudget("keep-api", "api", 2)
	dir := filetest.ShortDir(t)
	p := s.StartRun(s.Policy(), dir)
	events := scene.Record(t, scene.BusIn(dir))

	tainted := time.Now()
	s.Taint(s.Nodes[0], "dedicated")
	verdicts := events.WaitVerdicts("both pods are deferred", func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Deferred, v)) >= 2 })
	for _, v := range verdicts {
		if len(v.Blockers) == 1 {
			v.Blockers[0].UID = ""
		}
		got := schemas.Verdict{Outcome: v.Outcome, Reason: v.Reason, Message: v.Message, Blockers: v.Blockers}
		want := schemas.Verdict{
			Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget,
			Message:  "poddisruptionbudget " + s.Namespace + "/keep-api: 2 of 2 healthy pods needed",
			Blockers: []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: s.Namespace, Name: "keep-api"}},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if got := s.Evictions(); got != nil {
		t.Fatalf("evicted %v although the budget allows none", got)
	}

	s.ChangeBudget("keep-api", 1)
	events.WaitVerdicts("both pods are evicted", func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Evicted, v)) == 2 })
	s.WaitReady("api")
	if got := s.WaitEvicted(0, 2); len(got) != 2 || got[0].Received.Sub(tainted) >= firstRetry {
		t.Errorf("evictions %v after the taint at %v, want 2, the first within %v", got, tainted, firstRetry)
	}
	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// firstRetry is the delay until the watcher evaluates a deferred pod again. An earlier move is the result of a change of the
// budget.
const firstRetry = 15 * time.Second
