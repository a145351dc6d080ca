package actuator

import (
	"container/heap"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
)

// lane is what an intent waits with: those of an earlier lane go first.
type lane int

// The lanes.
const (
	laneNodes      lane = iota // the node fails, or is to be emptied
	laneManual                 // a person asked
	laneViolations             // the pod must not be where it is
	laneBalance                // it would be better elsewhere
	laneCount
)

// traits are those of the strategy of a move.
func (t *term) traits(x *moving) policy.Traits { return t.policy.Load().Traits(x.Open.Strategy) }

// loops says whether a pod that comes back to the node which it had to leave is moved in vain.
func loops(t policy.Traits) bool { return !t.RenewsPods && !t.MayReturn }

// laneOf is the lane of a priority. One that is not known waits with the violations.
func laneOf(p policy.Priority) lane {
	if i := slices.Index(policy.Priorities(), p); i >= 0 {
		return lane(i)
	}
	return laneViolations
}

// rank is where in the order of its lane a pod waits: low priority first, then BestEffort before Burstable before
// Guaranteed, then the one that has waited longest.
type rank struct {
	lane     lane
	priority int32
	quality  int
}

// qualityOf orders the classes of quality of service. One that is not known comes first.
func qualityOf(c corev1.PodQOSClass) int {
	return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}, c)
}

// patience is after how many turns of other lanes a lane in which somebody waits gets one, so that none starves.
const patience = 8

// lanes are the pods whose turn will come, in its order. The zero value is empty. It is not safe for concurrent use.
type lanes struct {
	lines  [laneCount]laneLine
	passed [laneCount]int // turns of others while somebody waited
	last   uint64         // the number given last
}

// number is the next place at the end of all lanes.
func (l *lanes) number() uint64 {
	l.last++
	return l.last
}

// push lets a pod wait at its number.
func (l *lanes) push(p *pod) { heap.Push(&l.lines[p.rank.lane], p) }

// remove takes out a pod that waits.
func (l *lanes) remove(p *pod) {
	line := &l.lines[p.rank.lane]
	heap.Remove(line, p.index)
	if line.Len() == 0 {
		l.passed[p.rank.lane] = 0
	}
}

// Len is how many pods wait.
func (l *lanes) Len() int {
	n := 0
	for i := range l.lines {
		n += l.lines[i].Len()
	}
	return n
}

// front is the pod whose turn it is. nil: nobody waits.
func (l *lanes) front() *pod {
	if i, ok := l.turn(); ok {
		return l.lines[i][0]
	}
	return nil
}

// turn is the lane whose turn it is: the first in which somebody waits, unless another one was passed over too often.
func (l *lanes) turn() (lane, bool) {
	first, most := lane(-1), lane(-1)
	for i := range l.lines {
		if l.lines[i].Len() == 0 {
			continue
		}
		if first < 0 {
			first = lane(i)
		}
		if l.passed[i] >= patience && (most < 0 || l.passed[i] > l.passed[most]) {
			most = lane(i)
		}
	}
	if most >= 0 {
		return most, true
	}
	return first, first >= 0
}

// pop takes the pod whose turn it is.
func (l *lanes) pop() *pod {
	p := l.front()
	if p == nil {
		return nil
	}
	for i := range l.lines {
		if lane(i) != p.rank.lane && l.lines[i].Len() > 0 {
			l.passed[i]++
		}
	}
	l.remove(p)
	l.passed[p.rank.lane] = 0
	return p
}

// laneLine is one lane, a heap.
type laneLine []*pod

func (x laneLine) Len() int { return len(x) }
func (x laneLine) Less(i, j int) bool {
	a, b := x[i], x[j]
	switch {
	case a.rank.priority != b.rank.priority:
		return a.rank.priority < b.rank.priority
	case a.rank.quality != b.rank.quality:
		return a.rank.quality < b.rank.quality
	}
	return a.number < b.number
}
func (x laneLine) Swap(i, j int) { x[i], x[j] = x[j], x[i]; x[i].index, x[j].index = i, j }
func (x *laneLine) Push(p any)   { p.(*pod).index = len(*x); *x = append(*x, p.(*pod)) }
func (x *laneLine) Pop() any {
	last := len(*x) - 1
	p := (*x)[last]
	(*x)[last] = nil
	*x = (*x)[:last]
	return p
}
