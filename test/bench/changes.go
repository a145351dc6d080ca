package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// everyChange is the pause between two changes.
	everyChange = 50 * time.Millisecond
	// tapped is how many of as many changes are made once more while the bus is watched.
	tapped = 8
)

// cost is the cost of one change for the process.
type cost struct {
	processor       float64 // milliseconds
	messages, bytes float64 // on the bus
}

// costs maps the name of a kind of change to its cost.
type costs map[string]cost

// change is a kind of change that alters no answer.
type change struct {
	name string
	make func(ctx context.Context, i int) error
}

// changesOf returns the kinds of changes of pods of a class, each pod on another node as far as possible.
func (s *stage) changesOf(c class) ([]change, error) {
	n := s.changeCount(c)
	pods, err := s.view.some(c, n+more(n))
	if err != nil {
		return nil, err
	}
	return []change{
		{"one pod label change", func(ctx context.Context, i int) error {
			namespace, name := pods[i].split()
			_, err := s.client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, labels(i), metav1.PatchOptions{})
			return err
		}},
		{"one node label change", func(ctx context.Context, i int) error {
			_, err := s.client.CoreV1().Nodes().Patch(ctx, nodeName(i%s.added), types.MergePatchType, labels(i), metav1.PatchOptions{})
			return err
		}},
		{"one pod replaced by its ReplicaSet", func(ctx context.Context, i int) error {
			namespace, name := pods[i].split()
			return s.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		}},
	}, nil
}

// changeCount returns how many changes of each kind are made to pods of a class.
func (s *stage) changeCount(c class) int { return max(min(s.changes, s.made[c.name]/2), 1) }

// more returns how many of n changes are made again while the bus is watched.
func more(n int) int { return (n + tapped - 1) / tapped }

// labels returns a patch that sets a label that nothing selects.
func labels(i int) []byte {
	return fmt.Appendf(nil, `{"metadata":{"labels":{"%sturn":"%d-%d"}}}`, taintPrefix, i, time.Now().UnixNano())
}

// cost makes a change n times and measures what that costs, and then a few times more while it watches the bus.
func (s *stage) cost(ctx context.Context, c change, n int) (cost, error) {
	if err := s.settled(ctx); err != nil {
		return cost{}, err
	}
	spent, err := s.spend(ctx, func() error { return s.repeat(ctx, c, 0, n) })
	if err != nil {
		return cost{}, fmt.Errorf("%s: %w", c.name, err)
	}
	found := cost{processor: milliseconds(spent) / float64(n)}
	t, err := openTap(ctx, s.rehome.store)
	if err != nil {
		return cost{}, err
	}
	defer t.close()
	again := more(n)
	if _, err := s.spend(ctx, func() error { return s.repeat(ctx, c, n, again) }); err != nil {
		return cost{}, fmt.Errorf("%s: %w", c.name, err)
	}
	found.messages, found.bytes = t.count(again)
	s.progress.say("%s: %.2f ms, %.2f messages, %.0f bytes: %s",
		c.name, found.processor, found.messages, found.bytes, t.kinds(again))
	return found, nil
}

// repeat makes a change n times, twenty a second, and waits until the pods run again.
func (s *stage) repeat(ctx context.Context, c change, from, n int) error {
	ticks := time.NewTicker(everyChange)
	defer ticks.Stop()
	ended := make(chan error, n)
	for i := range n {
		select {
		case <-ticks.C:
			go func() { ended <- c.make(ctx, from+i) }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var all []error
	for range n {
		all = append(all, <-ended)
	}
	return errors.Join(append(all, s.settled(ctx))...)
}

// spend returns the processor time that rehome uses for an action, until it is calm again, without its idle share.
func (s *stage) spend(ctx context.Context, action func() error) (time.Duration, error) {
	idle, err := s.idling(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	before, err := processorTime(s.rehome.Pid())
	if err != nil {
		return 0, err
	}
	if err := action(); err != nil {
		return 0, err
	}
	after, err := s.calm(ctx)
	if err != nil {
		return 0, err
	}
	return above(before, after, time.Since(began), idle), nil
}

// above returns the time used between two moments, without the idle share of one core.
func above(before, after, elapsed time.Duration, idle float64) time.Duration {
	return max(after-before-time.Duration(math.Round(idle*float64(elapsed))), 0)
}

// calm waits until rehome has used less than a twentieth of a core for two seconds, at most half a minute, and returns the
// processor time that it has used so far.
func (s *stage) calm(ctx context.Context) (time.Duration, error) {
	const look = 2 * time.Second
	used, err := processorTime(s.rehome.Pid())
	if err != nil {
		return 0, err
	}
	for range 15 {
		if err := pause(ctx, look); err != nil {
			return 0, err
		}
		before := used
		if used, err = processorTime(s.rehome.Pid()); err != nil {
			return 0, err
		}
		if used-before < look/20 {
			break
		}
	}
	return used, nil
}

// measureTenth measures changes in a tenth of the cluster.
func (s *stage) measureTenth(ctx context.Context) (costs, error) {
	if err := s.fill(ctx, s.nodes/tenth, s.pods/tenth, spreadPods); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	defer s.rehome.stop()
	return s.costsOf(ctx, spreadPods)
}

// costsOf measures each kind of change.
func (s *stage) costsOf(ctx context.Context, c class) (costs, error) {
	changes, err := s.changesOf(c)
	if err != nil {
		return nil, err
	}
	found := costs{}
	for _, x := range changes {
		if found[x.name], err = s.cost(ctx, x, s.changeCount(c)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// measureScale measures the same in the whole cluster.
func (s *stage) measureScale(ctx context.Context) ([]row, error) {
	large, err := s.costsOf(ctx, spreadPods)
	if err != nil || s.small == nil { // without small the cluster was filled for other parts
		return nil, err
	}
	return scaleRows(s.small, large), nil
}

// changeNames are the names of all kinds of changes, in order.
var changeNames = []string{"one pod label change", "one node label change", "one pod replaced by its ReplicaSet"}

func scaleRows(small, large costs) []row {
	var rows []row
	for _, name := range changeNames {
		rows = append(rows, row{
			Group: "cost of one delta at ten times the cluster", What: name + ", processor time",
			Unit: "ms", Value: large[name].processor,
			Compare: &comparison{"a tenth of the cluster", small[name].processor}, Target: &target{AtMost: 1.2, Ratio: true},
		})
	}
	return rows
}

// measureChanges measures changes that alter no answer.
func (s *stage) measureChanges(ctx context.Context) ([]row, error) {
	found, err := s.costsOf(ctx, plainPods)
	if err != nil {
		return nil, err
	}
	return changeRows(found), nil
}

func changeRows(found costs) []row {
	var rows []row
	for _, name := range changeNames {
		c, group := found[name], "cost of one change when no answer can change"
		rows = append(rows,
			row{Group: group, What: name + ", processor time", Unit: "ms", Value: c.processor, Target: &target{AtMost: 1}},
			row{Group: group, What: name + ", messages on the bus", Value: c.messages, Target: &target{AtMost: 1}},
			row{Group: group, What: name + ", bytes on the bus", Unit: "B", Value: c.bytes, Target: &target{AtMost: 2 << 10}},
		)
	}
	return rows
}
