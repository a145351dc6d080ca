package bus

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestStartWithoutAPIServer(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 3, scene.PreferNode(s.Nodes[0]))
	s.StopAPIServer()
	p := s.Start([]string{"run", "--policy", s.Policy()}, "REHOME_STORE_DIR="+filetest.ShortDir(t))
	p.Eventually("it serves", func() (bool, string) { status, body := p.Readiness(); return status != 0, body })
	if said := checkUnready(p, 10*time.Second); !strings.Contains(said, "API server: ") || !strings.Contains(said, "connection refused") {
		t.Errorf("/readyz says %q, want that the API server refuses connections", said)
	}
	checkWarnings(p, "waiting for the identity of the cluster", 12)

	s.StartAPIServer()
	p.WaitReady()
	waitScheduler(s)
	s.DrainFirstNode(3)
}

// waitScheduler waits until the scheduler sees changes of nodes again, some time after the API server is back. Before that it
// would place replacements on a node with an unknown taint.
func waitScheduler(s *scene.Scene) {
	s.T.Helper()
	const label = "seen-by-the-scheduler"
	s.ChangeNode(s.Nodes[1], func(n *corev1.Node) { n.Labels[label] = s.Namespace })
	s.AddDeployment("probe", 1, func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector[label] = s.Namespace })
}

func TestDrainSurvivesAPIServerLoss(t *testing.T) {
	d := newDrain(t)
	dir := filetest.ShortDir(t)
	p := d.StartRun(d.file, dir)
	events := scene.Record(t, scene.BusIn(dir))

	d.begin(events)
	d.StopAPIServer()
	p.WaitNotReady()
	d.StartAPIServer()
	p.WaitReady()
	d.WaitEmpty(d.Nodes[0])
	d.WaitReady("api")
	d.waitAnswered(events) // some twice: the lease was lost, and its next holder does not know the verdicts
	d.checkOnce(events)

	// An eviction call may be missing from the audit log if the API server died during it. Then its answer was lost too.
	seen, lost := map[types.UID]string{}, 0
	for _, e := range d.Evictions() {
		if _, twice := seen[e.UID]; twice {
			t.Errorf("pod %s was evicted twice", e.Pod)
		}
		seen[e.UID] = e.Pod
	}
	for _, v := range events.Verdicts() {
		answerLost := v.Reason == schemas.ReasonAPIUnavailable || strings.Contains(v.Message, "the answer was lost")
		if _, audited := seen[v.Intent.Pod.UID]; !audited && answerLost {
			seen[v.Intent.Pod.UID] = v.Intent.Pod.Name
			lost++
		}
	}
	if !reflect.DeepEqual(seen, d.before) {
		t.Errorf("%d pods were evicted, %d of them without an answer; want %d", len(seen), lost, len(d.before))
	}
	t.Logf("%d evictions are not in the audit log", lost)
}
