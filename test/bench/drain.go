package main

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// measureDrain lets Rehome and bare calls drain nodes, twice each in turn.
func (s *stage) measureDrain(ctx context.Context) ([]row, error) {
	var byRehome, byCalls []drained
	for range 2 {
		d, err := s.drainByTaint(ctx)
		if err != nil {
			return nil, err
		}
		byRehome = append(byRehome, d)
		s.progress.say("rehome drained %d pods", len(d.pods))
		if d, err = s.drainByCalls(ctx); err != nil {
			return nil, err
		}
		byCalls = append(byCalls, d)
		s.progress.say("bare calls drained %d pods", len(d.pods))
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
	const group, beside = "evictions per second, no limit", "bare calls, 32 at once"
	return []row{
		{
			Group: group, What: "from the first call to the last answer", Unit: "/s", Value: rehome.flow,
			Compare: &comparison{beside, bare.flow}, Target: &target{AtLeast: .9, Ratio: true},
		},
		{
			Group: group, What: "from the first taint sent to the last answer", Unit: "/s", Value: rehome.total,
			Compare: &comparison{beside, bare.total},
		},
		{
			Group: group, What: "calls inside the API server at once, mean", Value: rehome.parallel,
			Compare: &comparison{beside, bare.parallel},
		},
		{
			Group: group, What: "one call inside the API server, mean", Unit: "ms", Value: rehome.call,
			Compare: &comparison{beside, bare.call},
		},
	}, nil
}

// drained is one drain.
type drained struct {
	began time.Time
	pods  map[types.UID]string
}

// rate is how fast some drains were, all together.
type rate struct {
	flow, total float64 // evictions per second: while calls were made, and since each drain began
	parallel    float64 // how many calls the API server worked on at once, on average
	call        float64 // how long it worked on one, on average, in milliseconds
}

func rates(p *progress, who string, calls map[types.UID]call, drains []drained) (rate, error) {
	var pods, flowing, lasting, working float64
	for _, d := range drains {
		at, err := spanOf(calls, d.pods)
		if err != nil {
			return rate{}, err
		}
		p.say("%s: %d pods, first call after %v, last answer after %v", who, len(d.pods),
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

// takeNodes returns nodes that together have at least as many pods as a drain has.
func (s *stage) takeNodes() (nodes []string, pods map[types.UID]string, err error) {
	pods = map[types.UID]string{}
	for len(pods) < s.drain {
		node, on, err := s.takeNode(s.least())
		if err != nil {
			return nil, nil, err
		}
		nodes = append(nodes, node)
		maps.Copy(pods, on)
	}
	return nodes, pods, nil
}

func (s *stage) drainByTaint(ctx context.Context) (drained, error) {
	nodes, pods, err := s.takeNodes()
	if err != nil {
		return drained{}, err
	}
	d := drained{began: time.Now(), pods: pods}
	err = parallel(nodes, inFlight, func(n string) error {
		_, err := s.taint(ctx, n, true)
		return err
	})
	if err != nil {
		return d, err
	}
	for _, n := range nodes {
		if err := s.view.gone(ctx, n, pods); err != nil {
			return d, err
		}
	}
	if err := s.settled(ctx); err != nil {
		return d, err
	}
	for _, n := range nodes {
		if _, err := s.taint(ctx, n, false); err != nil {
			return d, err
		}
	}
	return d, s.settled(ctx)
}

func (s *stage) drainByCalls(ctx context.Context) (drained, error) {
	_, pods, err := s.takeNodes()
	if err != nil {
		return drained{}, err
	}
	d := drained{began: time.Now(), pods: pods}
	if err := s.evictAll(ctx, pods); err != nil {
		return d, err
	}
	return d, s.settled(ctx)
}
