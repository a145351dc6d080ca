package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// besideCalls is what Rehome is compared with.
const besideCalls = "bare calls"

// alone is how many single calls are made in each round.
const alone = 5

// emptied is one node that Rehome emptied.
type emptied struct {
	node string
	pods map[types.UID]string
	sent time.Time // just before the taint was sent
	seen time.Time // when a bare informer saw it
}

// cleared is one node whose pods were evicted by bare calls.
type cleared struct {
	began time.Time
	pods  map[types.UID]string
}

// rounds is what all rounds have found.
type rounds struct {
	emptied []emptied
	cleared []cleared
	single  sample // bare calls, one after the other
}

// measureTaints lets Rehome and bare calls empty nodes in turn.
func (s *stage) measureTaints(ctx context.Context) ([]row, error) {
	var r rounds
	for i := range s.taints {
		turns := []func(context.Context, *rounds) error{s.emptyByTaint, s.clearByCalls, s.evictAlone}
		for k := range turns { // the order changes, so that nothing always comes after the same
			if err := turns[(i+k)%len(turns)](ctx, &r); err != nil {
				return nil, err
			}
		}
		if (i+1)%5 == 0 || i+1 == s.taints {
			s.progress.say("%d of %d taints", i+1, s.taints)
		}
	}
	calls, err := s.calls(ctx)
	if err != nil {
		return nil, err
	}
	history, err := readHistory(ctx, s.rehome.store, s.began)
	if err != nil {
		return nil, err
	}
	rows, err := taintRows(r, calls, history)
	if err != nil {
		return nil, err
	}
	for _, e := range r.emptied {
		s.tellSlow(e, calls, history)
	}
	return rows, nil
}

// slow is when a person should look at where the time went: twice the target of the 99th percentile.
const slow = time.Second

// tellSlow prints the steps of a taint whose last pod was evicted late.
func (s *stage) tellSlow(e emptied, calls map[types.UID]call, h history) {
	at, err := spanOf(calls, e.pods)
	if err != nil || at.lastCompleted.Sub(e.sent) < slow {
		return
	}
	s.progress.say("slow: %s, tainted at %s, last of %d pods after %v; steps %v", e.node, e.sent.Format("15:04:05.000"),
		len(e.pods), at.lastCompleted.Sub(e.sent), h.steps(e, at))
}

// least returns how many pods a node must have to be measured.
func (s *stage) least() int { return max(s.pods/s.nodes/2, 1) }

func (s *stage) emptyByTaint(ctx context.Context, r *rounds) error {
	node, pods, err := s.takeNode(s.least())
	if err != nil {
		return err
	}
	sent, err := s.taint(ctx, node, taintKey)
	if err != nil {
		return err
	}
	if err := s.view.gone(ctx, node, pods); err != nil {
		return err
	}
	r.emptied = append(r.emptied, emptied{node: node, pods: pods, sent: sent, seen: s.view.seen(node)})
	if err := s.settled(ctx); err != nil {
		return err
	}
	if _, err := s.taint(ctx, node, ""); err != nil {
		return err
	}
	return s.settled(ctx)
}

func (s *stage) clearByCalls(ctx context.Context, r *rounds) error {
	_, pods, err := s.takeNode(s.least())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.evictAll(ctx, pods); err != nil {
		return err
	}
	r.cleared = append(r.cleared, cleared{began, pods})
	return s.settled(ctx)
}

// evictAll evicts pods by bare calls.
func (s *stage) evictAll(ctx context.Context, pods map[types.UID]string) error {
	return parallel(list(pods), inFlight, func(p pod) error {
		_, err := s.evict(ctx, p)
		return err
	})
}

func (s *stage) evictAlone(ctx context.Context, r *rounds) error {
	_, pods, err := s.takeNode(s.least())
	if err != nil {
		return err
	}
	all := list(pods)
	for _, p := range all[:min(alone, len(all))] {
		took, err := s.evict(ctx, p)
		if err != nil {
			return err
		}
		r.single = append(r.single, took)
		if err := s.settled(ctx); err != nil {
			return err
		}
	}
	return nil
}

// taintRows makes the figures of all rounds.
func taintRows(r rounds, calls map[types.UID]call, h history) ([]row, error) {
	var first, each, last, bareFirst, bareEach, bareLast sample
	var steps [len(stepNames)][]float64
	for _, e := range r.emptied {
		at, err := spanOf(calls, e.pods)
		if err != nil {
			return nil, err
		}
		first, last = append(first, at.firstCompleted.Sub(e.sent)), append(last, at.lastCompleted.Sub(e.sent))
		for uid := range e.pods {
			each = append(each, calls[uid].completed.Sub(e.sent))
		}
		for i, d := range h.steps(e, at) {
			steps[i] = append(steps[i], milliseconds(d))
		}
	}
	for _, c := range r.cleared {
		at, err := spanOf(calls, c.pods)
		if err != nil {
			return nil, err
		}
		bareFirst, bareLast = append(bareFirst, at.firstCompleted.Sub(c.began)), append(bareLast, at.lastCompleted.Sub(c.began))
		for uid := range c.pods {
			bareEach = append(bareEach, calls[uid].completed.Sub(c.began))
		}
	}
	rows := latencyRows("first pod of the node", first, bareFirst, false)
	rows = append(rows, latencyRows("each pod", each, bareEach, true)...)
	rows = append(rows, latencyRows("last pod of the node", last, bareLast, false)...)
	rows = append(rows, singleRows(r.single)...)
	return append(rows, stepRows(r, steps)...), nil
}

// latencyRows compares taint to eviction with bare calls for a whole node.
func latencyRows(what string, rehome, bare sample, targeted bool) []row {
	var rows []row
	for _, q := range []struct {
		name     string
		share    float64
		targeted bool
	}{{"p50", .5, targeted}, {"p95", .95, false}, {"p99", .99, targeted}} {
		r := row{
			Group: "taint patched → pod deleted", What: what + ", " + q.name, Unit: "ms",
			Value:   milliseconds(rehome.quantile(q.share)),
			Compare: &comparison{besideCalls, milliseconds(bare.quantile(q.share))},
		}
		if q.targeted {
			r.Target = &target{AtMost: 1.2, Ratio: true}
		}
		rows = append(rows, r)
	}
	return rows
}

func singleRows(s sample) []row {
	var rows []row
	for _, q := range []struct {
		name  string
		share float64
	}{{"p50", .5}, {"p99", .99}} {
		rows = append(rows, row{
			Group: "taint patched → pod deleted", What: "one bare eviction call alone, " + q.name, Unit: "ms",
			Value: milliseconds(s.quantile(q.share)),
		})
	}
	return rows
}

// stepRows shows where the time goes: the median of each step.
func stepRows(r rounds, steps [len(stepNames)][]float64) []row {
	var seen sample
	for _, e := range r.emptied {
		if !e.seen.IsZero() {
			seen = append(seen, e.seen.Sub(e.sent))
		}
	}
	rows := []row{{
		Group: "where the time goes, medians", What: "taint sent → seen by a bare informer", Unit: "ms",
		Value: milliseconds(seen.quantile(.5)),
	}}
	for i, name := range stepNames {
		rows = append(rows, row{
			Group: "where the time goes, medians", What: name, Unit: "ms", Value: median(steps[i]),
		})
	}
	return rows
}
