package e2e

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// These scenes run last, because of the name of this file: after the API server is back, the other components of the control
// plane need up to half a minute to recover.

func TestStartWithoutAPIServer(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 3, preferring(s.nodes[0]))
	s.stopAPIServer()
	p := s.start([]string{"run", "--policy", s.policy()}, "REHOME_STORE_DIR="+filetest.ShortDir(t))
	p.eventually("it serves", func() (bool, string) { status, body := p.ready(); return status != 0, body })
	if said := p.unready(10 * time.Second); !strings.Contains(said, "API server: ") || !strings.Contains(said, "connection refused") {
		t.Errorf("/readyz says %q, want that the API server refuses connections", said)
	}
	p.complains("waiting for the identity of the cluster", 12)

	s.startAPIServer()
	p.waitReady()
	s.schedulerFollows()
	s.handles(3)
}

// schedulerFollows waits until the scheduler sees changes of nodes again, some time after the API server is back. Before that it
// would place replacements on a node with an unknown taint.
func (s *scene) schedulerFollows() {
	s.t.Helper()
	const label = "seen-by-the-scheduler"
	s.changeNode(s.nodes[1], func(n *corev1.Node) { n.Labels[label] = s.namespace })
	s.deployment("probe", 1, func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector[label] = s.namespace })
}

func TestDrainSurvivesAPIServerLoss(t *testing.T) {
	d := newDrain(t)
	dir := filetest.ShortDir(t)
	p := d.rehome(d.file, dir)
	events := record(t, at(dir))

	d.begin(events)
	d.stopAPIServer()
	p.notReady()
	d.startAPIServer()
	p.waitReady()
	d.emptied(d.nodes[0])
	d.ready("api")
	d.answered(events) // some twice: the lease was lost, and its next holder does not know the verdicts
	d.once(events)

	// An eviction call may be missing from the audit log if the API server died during it. Then its answer was lost too.
	seen, lost := map[types.UID]string{}, 0
	for _, e := range d.evictions() {
		if _, twice := seen[e.uid]; twice {
			t.Errorf("pod %s was evicted twice", e.pod)
		}
		seen[e.uid] = e.pod
	}
	for _, v := range events.verdicts() {
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

// stopAPIServer kills the API server until startAPIServer is called, or until the scene ends.
func (s *scene) stopAPIServer() {
	s.t.Helper()
	s.t.Must(s.cluster.StopAPIServer())
	s.apiServerIsDown = true
}

func (s *scene) startAPIServer() {
	s.t.Helper()
	s.t.Must(s.cluster.StartAPIServer(s.t.Context()))
	s.apiServerIsDown = false
}
