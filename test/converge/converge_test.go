// Package converge applies each strategy to random small clusters until nothing moves. The kube-scheduler of a test control
// plane places the replacement of each pod.
//
//	make converge WORLDS=200
//	go test ./test/converge -v -args -strategy RemoveDuplicates -seed 7 -world 3
//	go test ./test/converge -v -run TestPredicted -args -worlds 200   # without a control plane, in ten seconds
package converge

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/schedulertest"
)

var (
	worlds       = flag.Int("worlds", 10, "how many worlds for each strategy")
	seed         = flag.Uint64("seed", 0, "the seed of the worlds; 0 for another one in each run")
	only         = flag.Int("world", -1, "only the world of this number")
	onlyStrategy = flag.String("strategy", "", "only strategies whose name contains this")
)

const (
	// mostRounds is how often the policy is applied to one world.
	mostRounds = 10
	// mostReturns is the share of moves whose replacement may come back to its node.
	mostReturns = 0.01
	// printed is how many of the worlds that fail are printed for each strategy.
	printed = 3
)

// TestConverge fails when the moves of a strategy lead back to a state that was there before, when they do not end, when a
// replacement finds no node, and when more than one in a hundred comes back to its node. Strategies that renew pods wherever
// they run may bring them back.
func TestConverge(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with: -args -worlds %d -seed %d", *worlds, *seed)
	t.Run("LeastAllocated", func(t *testing.T) { converge(t, "", func(name string) bool { return name != high }) })
	t.Run("MostAllocated", func(t *testing.T) { converge(t, "MostAllocated", func(name string) bool { return name == high }) })
}

// converge runs the worlds of some strategies on one control plane with this scoring strategy.
func converge(t *testing.T, scoring string, takes func(strategy string) bool) {
	var chosen []functions.Function
	for _, f := range functions.All() {
		if takes(f.Strategy.Name) && strings.Contains(f.Strategy.Name, *onlyStrategy) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		return
	}
	s := newStage(t, cluster.Options{ScoringStrategy: scoring})
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, tallyHead)
	for _, f := range chosen {
		t.Run(f.Strategy.Name, func(t *testing.T) {
			sum := tally{}
			for number := range *worlds {
				if *only < 0 || *only == number {
					s.t.TB = t
					sum.world(t, s, f, number)
				}
			}
			fmt.Fprintln(rows, sum.row(f))
			sum.judge(t, f)
		})
	}
	rows.Flush()
	t.Logf("\n%s", &table)
}

// tally sums up the worlds of one strategy.
type tally struct {
	worlds, moving, evictions, pending, back, rounds, mostRounds, loops, printed int
}

const tallyHead = "strategy\tworlds\twith moves\tevictions\tpending\tback\trounds\tat most\tloops\t"

// row returns a line of the table under tallyHead.
func (sum *tally) row(f functions.Function) string {
	return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t", f.Strategy.Name, sum.worlds, sum.moving, sum.evictions, sum.pending,
		sum.back, sum.rounds, sum.mostRounds, sum.loops)
}

// world runs one world.
func (sum *tally) world(t *testing.T, s *stage, f functions.Function, number int) {
	t.Helper()
	w := random(f.Strategy, *seed, number)
	s.set(w)
	defer s.clear()
	sum.add(t, w, s.settle(w))
}

// add counts a result, and reports what is wrong with it. A few replacements may come back, see judge.
func (sum *tally) add(t *testing.T, w *world, r result) {
	t.Helper()
	sum.worlds++
	if r.evictions > 0 {
		sum.moving++
	}
	sum.evictions += r.evictions
	sum.pending += r.pending
	sum.back += r.back
	sum.rounds += r.rounds
	sum.mostRounds = max(sum.mostRounds, r.rounds)
	var wrong []string
	if r.loop != "" {
		sum.loops++
		wrong = append(wrong, r.loop)
	}
	if r.pending > 0 {
		wrong = append(wrong, fmt.Sprintf("%d pods are Pending because of a move", r.pending))
	}
	back := r.back > 0 && !w.strategy.RenewsPods
	if len(wrong) == 0 && !back && *only < 0 {
		return
	}
	report := fmt.Sprintf("world %d: %s", w.number, strings.Join(wrong, ", "))
	if sum.printed++; sum.printed <= printed {
		report += fmt.Sprintf("\n%s%s", w, strings.Join(r.moves, "\n"))
	}
	if len(wrong) > 0 {
		t.Error(report)
	} else {
		t.Logf("%s\n%d replacements came back to their node", report, r.back)
	}
}

// judge fails the test if too many replacements came back.
func (sum *tally) judge(t *testing.T, f functions.Function) {
	t.Helper()
	if share := float64(sum.back) / float64(max(sum.evictions, 1)); share > mostReturns && !f.Strategy.RenewsPods {
		t.Errorf("%s: %d of %d replacements came back to their node, want at most %.0f %%", f.Strategy.Name, sum.back, sum.evictions, 100*mostReturns)
	}
}

// result counts the moves in one world.
type result struct {
	evictions int
	// pending and back count replacements: without a node, and on the node that a pod of their workload left in the same round.
	pending, back int
	// rounds is how many rounds had a move.
	rounds int
	// loop says why the moves do not end. Empty means they do.
	loop string
	// moves are lines about the rounds.
	moves []string
}

// settle applies the policy until nothing moves.
func (s *stage) settle(w *world) result {
	s.t.Helper()
	p, err := w.policy()
	s.t.Must(err)
	var r result
	seen := map[string]int{}
	for round := 1; round <= mostRounds; round++ {
		objects, pods := s.objects()
		state := s.state(pods, w.strategy.RenewsPods)
		if before, repeats := seen[state]; repeats {
			r.loop = fmt.Sprintf("the state after round %d is that before round %d", round-1, before)
			return r
		}
		seen[state] = round
		settlement, err := simulate.Settle(s.ctx, simulate.Config{Policy: p, Functions: functions.All(), Now: time.Now}, objects, 1)
		s.t.Must(err)
		moves := settlement.Rounds[0].Moves
		if len(moves) == 0 {
			return r
		}
		r.rounds = round
		s.move(w, moves, &r)
	}
	r.loop = fmt.Sprintf("the moves do not end in %d rounds", mostRounds)
	return r
}

// state returns how many pods of each workload each node has. A renewed pod differs from a pod of the beginning.
func (s *stage) state(pods []corev1.Pod, renews bool) string {
	var all []string
	for i := range pods {
		text := pods[i].Labels[workloadLabel] + "@" + pods[i].Spec.NodeName
		if _, old := s.beginning[pods[i].UID]; old && renews {
			text += " of the beginning"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// move deletes one pod after the other, makes its replacement, and waits until the scheduler has decided about it.
func (s *stage) move(w *world, moves []simulate.Move, r *result) {
	s.t.Helper()
	pods := s.client.CoreV1().Pods(namespace)
	left, arrived := map[string]int{}, map[string]int{}
	for _, m := range moves {
		options := now()
		options.Preconditions = &metav1.Preconditions{UID: &m.Pod.UID}
		s.t.Must(pods.Delete(s.ctx, m.Pod.Name, options))
		name, _, _ := strings.Cut(m.Pod.Name, "-")
		made, err := pods.Create(s.ctx, s.newPod(w.find(name)), metav1.CreateOptions{})
		s.t.Must(err)
		node, message := s.decided(made.UID)
		left[name+" "+m.Node]++
		arrived[name+" "+node]++
		if node == "" {
			r.pending++
			node, _, _ = strings.Cut(message, " no new claims")
		}
		r.moves = append(r.moves, fmt.Sprintf("round %d: %s from %s to %s: %s", r.rounds, m.Pod.Name, m.Node, node, m.Message))
	}
	r.evictions += len(moves)
	for at, count := range left {
		r.back += min(count, arrived[at])
	}
}

// decided waits until the scheduler has chosen a node for a pod, or has refused it with a message.
func (s *stage) decided(pod types.UID) (node, message string) {
	s.t.Helper()
	late := time.After(schedulertest.Patience)
	for {
		p := s.pods.Next(late)
		if p == nil {
			s.t.Fatalf("the scheduler does not decide about pod %s", pod)
		}
		if message, refused := schedulertest.Refusal(p); p.UID == pod && (refused || p.Spec.NodeName != "") {
			return p.Spec.NodeName, message
		}
	}
}
