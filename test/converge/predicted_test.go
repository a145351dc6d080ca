package converge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestPredicted judges the worlds of TestConverge without a control plane: fit/score predicts the node of each replacement. If
// several nodes have the best score, the first by name is used.
func TestPredicted(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, tallyHead)
	for _, f := range functions.All() {
		if !strings.Contains(f.Strategy.Name, *onlyStrategy) {
			continue
		}
		sum := tally{}
		for number := range *worlds {
			if *only >= 0 && *only != number {
				continue
			}
			w := random(f.Strategy, *seed, number)
			sum.add(t, w, predicted(t, w))
		}
		sum.judge(t, f)
		fmt.Fprintln(rows, sum.row(f))
	}
	rows.Flush()
	t.Logf("repeat with: -args -worlds %d -seed %d\n%s", *worlds, *seed, &table)
}

// predicted settles a world with predicted placements.
func predicted(t *testing.T, w *world) result {
	t.Helper()
	p, err := w.policy()
	expect.Must(t, err)
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c := simulate.Config{Policy: p, Functions: functions.All(), Now: func() time.Time { return at }}
	s, err := simulate.Settle(t.Context(), c, w.objects(t, at), mostRounds)
	expect.Must(t, err)
	var r result
	for _, round := range s.Rounds {
		left, arrived := map[string]int{}, map[string]int{}
		for _, m := range round.Moves {
			r.rounds = round.Number
			r.evictions++
			if m.Pending != "" {
				r.pending++
			}
			name, _, _ := strings.Cut(m.Pod.Name, "-")
			left[name+" "+m.Node]++
			arrived[name+" "+m.To]++
			r.moves = append(r.moves, fmt.Sprintf("round %d: %s from %s to %s: %s", round.Number, m.Pod.Name, m.Node, m.To+m.Pending, m.Message))
		}
		for where, count := range left {
			r.back += min(count, arrived[where])
		}
	}
	switch {
	case s.Loop != nil:
		r.loop = fmt.Sprintf("the state after round %d is that after round %d", len(s.Rounds), *s.Loop)
	case !s.Settled:
		r.loop = fmt.Sprintf("the moves do not end in %d rounds", mostRounds)
	}
	return r
}

// objects returns the initial objects of the world, as an API server would store them.
func (w *world) objects(t *testing.T, at time.Time) []metav1.Object {
	s := &stage{t: expect.T{TB: t}, owners: map[string]types.UID{}, beginning: map[types.UID]placed{}}
	objects := []metav1.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}}
	for i := range w.nodes {
		objects = append(objects, w.nodes[i].DeepCopy())
	}
	priorities := map[string]int32{lowPriority: 100, highPriority: 1000}
	for _, l := range w.workloads {
		s.owners[l.name] = types.UID("uid-of-" + l.name)
		if l.volume != "" {
			claim, volume := newClaim(l), newVolume(l, "claim-"+types.UID(l.name))
			claim.Namespace, claim.UID, claim.Status.Phase = namespace, volume.Spec.ClaimRef.UID, corev1.ClaimBound
			objects = append(objects, claim, volume)
		}
		for _, where := range l.pods {
			p := s.newPod(l)
			p.UID, p.Labels = types.UID("uid-of-"+p.Name), maps.Clone(p.Labels)
			p.CreationTimestamp, p.Spec.NodeName, p.Status.Phase = metav1.NewTime(at), where.node, corev1.PodPending
			if where.failed {
				p.Status.Phase = corev1.PodFailed
			}
			if value, has := priorities[p.Spec.PriorityClassName]; has {
				p.Spec.Priority = &value
			}
			s.beginning[p.UID] = where
			objects = append(objects, s.running(p))
		}
	}
	return objects
}
