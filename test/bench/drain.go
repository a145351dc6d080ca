package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// drained is one drain.
type drained struct {
	began     time.Time
	nodes     int
	pods      map[types.UID]string
	processor time.Duration // of rehome, until all replacements run and all is settled, without its idle share
}

// measureMoves lets Rehome and bare calls move pods off some nodes, twice each in turn.
func (s *stage) measureMoves(ctx context.Context) ([]row, error) {
	var byRehome, byCalls []drained
	for range 2 {
		d, err := s.drainByTaint(ctx, plainPods, s.moves)
		if err != nil {
			return nil, err
		}
		byRehome = append(byRehome, d)
		if d, err = s.drainByCalls(ctx, plainPods, s.moves); err != nil {
			return nil, err
		}
		byCalls = append(byCalls, d)
	}
	calls, err := s.calls(ctx)
	if err != nil {
		return nil, err
	}
	rehome, err := rates(s.progress, "rehome", calls, byRehome)
	if err != nil {
		return nil, err
	}
	bare, err := rates(s.progress, "bare calls", calls, byCalls)
	if err != nil {
		return nil, err
	}
	return moveRows(byRehome, rehome, bare), nil
}

func moveRows(drains []drained, rehome, bare rate) []row {
	group := fmt.Sprintf("%d pods off %d tainted nodes, rate lifted", len(drains[0].pods), drains[0].nodes)
	return []row{
		{
			Group: group, What: "evictions per second, from the first taint sent to the last answer", Unit: "/s", Value: rehome.total,
			Compare: &comparison{besideCalls, bare.total}, Target: &target{AtLeast: .9, Ratio: true},
		},
		{
			Group: group, What: "evictions per second, from the first call to the last answer", Unit: "/s", Value: rehome.flow,
			Compare: &comparison{besideCalls, bare.flow},
		},
		{
			Group: group, What: "calls inside the API server at once, mean", Value: rehome.parallel,
			Compare: &comparison{besideCalls, bare.parallel},
		},
		{
			Group: group, What: "one call inside the API server, mean", Unit: "ms", Value: rehome.call,
			Compare: &comparison{besideCalls, bare.call},
		},
		{
			Group: group, What: "one complete move, processor time, bus included", Unit: "ms", Value: perMove(drains),
			Target: &target{AtMost: 6},
		},
	}
}

// perMove returns the processor time of one move in milliseconds.
func perMove(drains []drained) float64 {
	var spent time.Duration
	pods := 0
	for _, d := range drains {
		spent += d.processor
		pods += len(d.pods)
	}
	return milliseconds(spent) / float64(pods)
}

// measureFollow compares moves of one large workload with as many of small ones, twice each in turn.
func (s *stage) measureFollow(ctx context.Context) ([]row, error) {
	var ofOne, ofMany []drained
	for range 2 {
		d, err := s.drainByTaint(ctx, largePods, s.followed)
		if err != nil {
			return nil, err
		}
		ofOne = append(ofOne, d)
		if d, err = s.drainByTaint(ctx, smallPods, s.followed); err != nil {
			return nil, err
		}
		ofMany = append(ofMany, d)
	}
	small := smallPods.replicas(s.made[smallPods.name], s.nodes)
	return []row{followRow(s.made[largePods.name], small, ofOne, ofMany)}, nil
}

// followRow allows a tenth for what differs from one measurement to the next.
func followRow(large int, small []int, ofOne, ofMany []drained) row {
	return row{
		Group: "processor time to move and follow many pods at once",
		What:  fmt.Sprintf("each of %d moves of one workload of %d", len(ofOne[0].pods), large), Unit: "ms", Value: perMove(ofOne),
		Compare: &comparison{fmt.Sprintf("%d moves of %d workloads of %d", len(ofMany[0].pods), len(small), small[0]), perMove(ofMany)},
		Target:  &target{AtMost: 1.1, Ratio: true},
	}
}

// rate is how fast some drains were, all together.
type rate struct {
	flow, total float64 // evictions per second: while calls were made, and since each drain began
	parallel    float64 // how many calls the API server worked on at once, on average
	call        float64 // how long it worked on one, on average, in milliseconds
}

func rates(p *progress, name string, calls map[types.UID]call, drains []drained) (rate, error) {
	var pods, flowing, lasting, working float64
	for _, d := range drains {
		at, err := spanOf(calls, d.pods)
		if err != nil {
			return rate{}, err
		}
		p.say("%s: %d pods, first call after %v, last answer after %v", name, len(d.pods),
			at.firstReceived.Sub(d.began).Round(time.Millisecond), at.lastCompleted.Sub(d.began).Round(time.Millisecond))
		pods += float64(len(d.pods))
		flowing += at.lastCompleted.Sub(at.firstReceived).Seconds()
		lasting += at.lastCompleted.Sub(d.began).Seconds()
		for uid := range d.pods {
			working += calls[uid].completed.Sub(calls[uid].received).Seconds()
		}
	}
	return rate{flow: pods / flowing, total: pods / lasting, parallel: working / flowing, call: 1000 * working / pods}, nil
}

// takeNodes returns the next nodes that together have at least n pods of a class, and those pods.
func (s *stage) takeNodes(c class, n int) (nodes []string, pods map[types.UID]string, err error) {
	pods = map[types.UID]string{}
	for range s.nodes {
		if len(pods) >= n {
			return nodes, pods, nil
		}
		node := nodeName(s.next % s.nodes)
		s.next++
		if on := s.view.of(c, node); len(on) > 0 {
			nodes = append(nodes, node)
			maps.Copy(pods, on)
		}
	}
	return nil, nil, fmt.Errorf("want %d pods of class %s, there are %d", n, c.name, len(pods))
}

// drainByTaint taints nodes so that n pods of a class have to go, and waits until all is settled.
func (s *stage) drainByTaint(ctx context.Context, c class, n int) (d drained, err error) {
	nodes, pods, err := s.takeNodes(c, n)
	if err != nil {
		return d, err
	}
	d = drained{nodes: len(nodes), pods: pods}
	d.processor, err = s.spend(ctx, func() error {
		d.began = time.Now()
		if err := parallel(nodes, inFlight, func(n string) error {
			_, err := s.taint(ctx, n, c.taint())
			return err
		}); err != nil {
			return err
		}
		for _, n := range nodes {
			if err := s.view.gone(ctx, n, pods); err != nil {
				return err
			}
		}
		return s.settled(ctx)
	})
	if err != nil {
		return d, err
	}
	s.progress.say("rehome moved %d pods of class %s off %d nodes, %v of processor time", len(pods), c.name, len(nodes), d.processor)
	if err := parallel(nodes, inFlight, func(n string) error {
		_, err := s.taint(ctx, n, "")
		return err
	}); err != nil {
		return d, err
	}
	_, err = s.calm(ctx)
	return d, err
}

// drainByCalls evicts n pods of a class on as many nodes.
func (s *stage) drainByCalls(ctx context.Context, c class, n int) (drained, error) {
	nodes, pods, err := s.takeNodes(c, n)
	if err != nil {
		return drained{}, err
	}
	d := drained{began: time.Now(), nodes: len(nodes), pods: pods}
	if err := s.evictAll(ctx, pods); err != nil {
		return d, err
	}
	s.progress.say("bare calls moved %d pods off %d nodes", len(pods), len(nodes))
	if err := s.settled(ctx); err != nil {
		return d, err
	}
	_, err = s.calm(ctx)
	return d, err
}
