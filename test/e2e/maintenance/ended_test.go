package maintenance

import (
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestMaintenanceEndedEarly(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(fullNodes)
	}{
		{"by deletion", func(p fullNodes) {
			p.remove()
			p.waitDeleted()
		}},
		{"by Complete", func(p fullNodes) {
			p.setStage(v1alpha1.Complete)
			m := p.waitStages(allIn(v1alpha1.Returned, p.old...))
			want := map[string]string{
				v1alpha1.Accepted:    "True Accepted: it can be carried out",
				v1alpha1.Progressing: "False Completed: every node was given back",
				v1alpha1.Drained:     "False Completed: the nodes are given back",
				v1alpha1.Completed:   "True Completed: 4 of 4 nodes were given back",
			}
			if got := conditionsOf(m); !maps.Equal(got, want) {
				p.T.Errorf("conditions %q\nwant %q", got, want)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The move of slow is in flight when the maintenance ends: its replacement takes half a minute.
			p := newFullNodes(t, func(u *maintenanceScene) {
				u.AddSingle("slow", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 30 })
				u.WaitAvailable("slow")
			})
			dir := filetest.ShortDir(t)
			p.StartRun(p.slowPolicy(0.5), dir).WaitLeads()
			events := scene.Record(t, scene.BusIn(dir))
			p.watchInvariants(2)

			p.begin()
			events.WaitVerdicts("the pod of slow is on its way", func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Restarted, v)) == 1 })
			if ends := restarts(events); len(ends) > 0 {
				t.Fatalf("the move of slow is settled before the end: %s", scene.Summary(ends))
			}
			asked := time.Now()
			c.end(p)
			p.waitStates(p.untouched)
			<-time.After(scene.CalmTime)
			p.endedWithNodes(p.old[:2])
			p.nothingBeganAfter(asked)
			p.followed(events)
			p.WaitReady("api")
			p.WaitReady("slow")
		})
	}
}

// endedWithNodes checks in the audit log that only these nodes were changed, and that pods were evicted only from them and only
// before their release.
func (p fullNodes) endedWithNodes(begun []string) {
	p.T.Helper()
	for _, n := range p.Nodes {
		if changes := len(p.nodeChanges(n)); slices.Contains(begun, n) != (changes > 0) {
			p.T.Errorf("node %s was changed %d times", n, changes)
		}
	}
	for _, e := range p.Evictions() {
		node := p.places[e.UID]
		if !slices.Contains(begun, node) {
			p.T.Errorf("pod %s was evicted off %s", e.Pod, node)
			continue
		}
		if changes := p.nodeChanges(node); e.Received.After(changes[len(changes)-1]) {
			p.T.Errorf("pod %s was evicted at %v, and its node %s given back at %v", e.Pod, e.Received, node, changes[len(changes)-1])
		}
	}
}

// nothingBeganAfter checks that no move began after the request to end, except calls that were on their way to the API server.
// The remaining moves of the first two nodes would take longer.
func (p fullNodes) nothingBeganAfter(asked time.Time) {
	p.T.Helper()
	const most = 15 * time.Second
	var last time.Duration
	for _, e := range p.Evictions() {
		last = max(last, e.Received.Sub(asked))
	}
	if last > most {
		p.T.Errorf("the last pod was evicted %v after the request to end, want at most %v", last, most)
	}
	p.T.Logf("the last of %d pods was evicted %v after the request to end", len(p.Evictions()), last)
}

// followed waits until every move is settled, the move of slow with its replacement.
func (p fullNodes) followed(events *scene.Recording) {
	p.T.Helper()
	expect.EventuallyWithState(p.T, "every move that was begun is settled", func() (bool, string) {
		open := map[string]schemas.Verdict{}
		for _, v := range events.Verdicts() {
			if v.Outcome.Moves() {
				open[v.Intent.ID] = v
			}
		}
		for _, v := range events.Settlements() {
			delete(open, v.Intent.ID)
		}
		return len(open) == 0, scene.Summary(slices.Collect(maps.Values(open)))
	})
	// The restart has stopped no pod yet, so it is canceled with its cause.
	if ends := restarts(events); len(ends) != 1 || ends[0].Reason != schemas.ReasonTakenBack {
		p.T.Errorf("the move of slow ended with %s, want once and %s", scene.Summary(ends), schemas.ReasonTakenBack)
	}
}

// restarts returns the ends of moves that create the replacement first.
func restarts(events *scene.Recording) []schemas.Verdict {
	return slices.DeleteFunc(events.Settlements(), func(v schemas.Verdict) bool { return v.Method != schemas.MethodRestart })
}

func TestMaintenanceDeletionWaits(t *testing.T) {
	p := newFullNodes(t, noPods)
	dir := filetest.ShortDir(t)
	first := p.StartRun(p.slowPolicy(2), dir)
	first.WaitLeads()
	p.watchInvariants(2)
	p.begin()
	first.Kill()

	p.remove()
	<-time.After(scene.CalmTime)
	m := p.get()
	if m == nil || m.DeletionTimestamp == nil || !slices.Equal(m.Finalizers, []string{schemas.MaintenanceFinalizer}) {
		t.Fatalf("the maintenance without rehome is %s", expect.Indented(m))
	}
	for i, n := range p.Nodes {
		if _, marked := p.Node(n).Annotations[schemas.AnnotationMaintenance]; marked != (i < 2) {
			t.Errorf("node %s is marked: %t", n, marked)
		}
	}
	p.StartRun(p.slowPolicy(2), dir)
	p.waitDeleted()
	p.waitStates(p.untouched)
	<-time.After(scene.CalmTime)
	p.endedWithNodes(p.old[:2])
}

func TestUserCordonDuringMaintenance(t *testing.T) {
	u := newMaintenanceScene(t, 2, scene.WithLabel("pool", "old"))
	old := u.Nodes
	u.AddNodes(1)
	before := u.states()
	u.StartRun(u.idlePolicy(), filetest.ShortDir(t)).WaitLeads()
	u.apply(u.poolSelector("old"), "atOnce: 2", "stage: Drain", "reason: new kernel")
	u.waitStages(allIn(v1alpha1.IsDrained, old...))

	// The node is cordoned already, so a user who wants to cordon it must uncordon it first. Otherwise the API server sees no
	// change.
	mark := u.Node(old[0]).Annotations[schemas.AnnotationMaintenance]
	u.ChangeNode(old[0], func(n *corev1.Node) { n.Spec.Unschedulable = false })
	u.Cordon(old[0], true)
	if got := u.Node(old[0]).Annotations[schemas.AnnotationMaintenance]; got != mark {
		t.Errorf("the mark is %s, want still %s", got, mark)
	}
	u.setStage(v1alpha1.Complete)
	u.waitStages(allIn(v1alpha1.Returned, old...))
	u.waitStates(withChange(before, isCordoned, old[0]))
	u.remove()
	u.waitDeleted()
	u.waitStates(withChange(before, isCordoned, old[0]))
}
