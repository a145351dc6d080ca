package e2e

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
)

func TestMaintenanceEndedEarly(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(packed)
	}{
		{"by deletion", func(p packed) {
			p.remove()
			p.gone()
		}},
		{"by Complete", func(p packed) {
			p.wants(v1alpha1.Complete)
			m := p.untilStages(allIn(v1alpha1.Returned, p.old...))
			want := map[string]string{
				v1alpha1.Accepted:    "True Accepted: it can be carried out",
				v1alpha1.Progressing: "False Completed: every node was given back",
				v1alpha1.Drained:     "False Completed: the nodes are given back",
				v1alpha1.Completed:   "True Completed: 4 of 4 nodes were given back",
			}
			if got := conditionsOf(m); !maps.Equal(got, want) {
				p.t.Errorf("conditions %q\nwant %q", got, want)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The move of slow is in flight when the maintenance ends: its replacement takes half a minute.
			p := newPacked(t, func(u *upkeep) {
				u.deploy("slow", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 30 })
				u.available("slow")
			})
			dir := filetest.ShortDir(t)
			p.rehome(p.slowly(0.5), dir).leads()
			events := record(t, at(dir))
			p.oversee(2)

			p.begin()
			events.until("the pod of slow is on its way", func(v []schemas.Verdict) bool { return len(of(schemas.Restarted, v)) == 1 })
			if ends := restarts(events); len(ends) > 0 {
				t.Fatalf("the move of slow is settled before the end: %s", summary(ends))
			}
			asked := time.Now()
			c.end(p)
			p.untilStates(p.untouched)
			<-time.After(calm)
			p.endedWithNodes(p.old[:2])
			p.nothingBeganAfter(asked)
			p.followed(events)
			p.ready("api")
			p.ready("slow")
		})
	}
}

// endedWithNodes checks in the audit log that only these nodes were changed, and that pods were evicted only from them and only
// before their release.
func (p packed) endedWithNodes(begun []string) {
	p.t.Helper()
	for _, n := range p.nodes {
		if changes := len(p.touched(n)); slices.Contains(begun, n) != (changes > 0) {
			p.t.Errorf("node %s was changed %d times", n, changes)
		}
	}
	for _, e := range p.evictions() {
		node := p.places[e.uid]
		if !slices.Contains(begun, node) {
			p.t.Errorf("pod %s was evicted off %s", e.pod, node)
			continue
		}
		if changes := p.touched(node); e.received.After(changes[len(changes)-1]) {
			p.t.Errorf("pod %s was evicted at %v, and its node %s given back at %v", e.pod, e.received, node, changes[len(changes)-1])
		}
	}
}

// nothingBeganAfter checks that no move began after the request to end, except calls that were on their way to the API server.
// The remaining moves of the first two nodes would take longer.
func (p packed) nothingBeganAfter(asked time.Time) {
	p.t.Helper()
	const most = 15 * time.Second
	var last time.Duration
	for _, e := range p.evictions() {
		last = max(last, e.received.Sub(asked))
	}
	if last > most {
		p.t.Errorf("the last pod was evicted %v after the request to end, want at most %v", last, most)
	}
	p.t.Logf("the last of %d pods was evicted %v after the request to end", len(p.evictions()), last)
}

// followed waits until every move is settled, the move of slow with its replacement.
func (p packed) followed(events *recording) {
	p.t.Helper()
	expect.EventuallyWithState(p.t, "every move that was begun is settled", func() (bool, string) {
		open := map[string]schemas.Verdict{}
		for _, v := range events.verdicts() {
			if v.Outcome.Moves() {
				open[v.Intent.ID] = v
			}
		}
		for _, v := range events.settlements() {
			delete(open, v.Intent.ID)
		}
		return len(open) == 0, summary(slices.Collect(maps.Values(open)))
	})
	// The restart has stopped no pod yet, so it is canceled with its cause.
	if ends := restarts(events); len(ends) != 1 || ends[0].Reason != schemas.ReasonTakenBack {
		p.t.Errorf("the move of slow ended with %s, want once and %s", summary(ends), schemas.ReasonTakenBack)
	}
}

// restarts returns the ends of moves that create the replacement first.
func restarts(events *recording) []schemas.Verdict {
	return slices.DeleteFunc(events.settlements(), func(v schemas.Verdict) bool { return v.Method != schemas.MethodRestart })
}

func TestMaintenanceDeletionWaits(t *testing.T) {
	p := newPacked(t, nothing)
	dir := filetest.ShortDir(t)
	first := p.rehome(p.slowly(2), dir)
	first.leads()
	p.oversee(2)
	p.begin()
	first.Kill()

	p.remove()
	<-time.After(calm)
	m := p.found()
	if m == nil || m.DeletionTimestamp == nil || !slices.Equal(m.Finalizers, []string{schemas.MaintenanceFinalizer}) {
		t.Fatalf("the maintenance without rehome is %s", expect.Indented(m))
	}
	for i, n := range p.nodes {
		if _, marked := p.node(n).Annotations[schemas.AnnotationMaintenance]; marked != (i < 2) {
			t.Errorf("node %s is marked: %t", n, marked)
		}
	}
	p.rehome(p.slowly(2), dir)
	p.gone()
	p.untilStates(p.untouched)
	<-time.After(calm)
	p.endedWithNodes(p.old[:2])
}

func TestUserCordonDuringMaintenance(t *testing.T) {
	u := newUpkeep(t, 2, labeled("pool", "old"))
	old := u.nodes
	u.addNodes(1)
	before := u.states()
	u.rehome(u.quiet(), filetest.ShortDir(t)).leads()
	u.apply(u.ofPool("old"), "atOnce: 2", "stage: Drain", "reason: new kernel")
	u.untilStages(allIn(v1alpha1.IsDrained, old...))

	// The node is cordoned already, so a user who wants to cordon it must uncordon it first. Otherwise the API server sees no
	// change.
	mark := u.node(old[0]).Annotations[schemas.AnnotationMaintenance]
	u.changeNode(old[0], func(n *corev1.Node) { n.Spec.Unschedulable = false })
	u.cordon(old[0], true)
	if got := u.node(old[0]).Annotations[schemas.AnnotationMaintenance]; got != mark {
		t.Errorf("the mark is %s, want still %s", got, mark)
	}
	u.wants(v1alpha1.Complete)
	u.untilStages(allIn(v1alpha1.Returned, old...))
	u.untilStates(with(before, isCordoned, old[0]))
	u.remove()
	u.gone()
	u.untilStates(with(before, isCordoned, old[0]))
}
