package utilization

import (
	"container/heap"

	"github.com/rehome-dev/rehome/functions/rank"
	"github.com/rehome-dev/rehome/schemas"
)

// load is what is still on a source.
type load struct {
	used []int64
	// gone is how many pods have left, and unmeasured whether the usage of one of them is not known.
	gone       uint
	unmeasured bool
	waiting    queue
	started    bool
}

// unload distributes the pods over their sources, in the order of the plan, and takes those off that have left already.
func (m *mover) unload(pods []schemas.UsingPod) []load {
	loads := make([]load, len(m.sources))
	of := make(map[string]*load, len(m.sources))
	used := make([]int64, len(m.sources)*len(m.resources))
	for i, s := range m.sources {
		l := &loads[i]
		l.used, used = used[:len(m.resources):len(m.resources)], used[len(m.resources):]
		for j, f := range s.figures {
			l.used[j] = f.used
		}
		of[s.Name] = l
	}
	for i := range pods {
		pod := &pods[i]
		l, known := of[pod.Pod.Spec.NodeName]
		switch {
		case !known || schemas.Ended(&pod.Pod):
		case pod.Pod.DeletionTimestamp != nil:
			m.gone(l, pod)
		case len(pod.Protected) == 0 && m.rules.allow(&pod.Pod):
			l.waiting = append(l.waiting, waiting{pod, rank.Of(&pod.Pod)})
		}
	}
	return loads
}

// next takes the pod off that is to leave first, or returns nil. Most sources need to lose but a few of their pods, so
// that only those are put in order.
func (l *load) next() *schemas.UsingPod {
	if !l.started {
		heap.Init(&l.waiting)
		l.started = true
	}
	if len(l.waiting) == 0 {
		return nil
	}
	return heap.Pop(&l.waiting).(*schemas.UsingPod)
}

// queue is a heap of pods by their ranks.
type queue []waiting

// waiting is a pod that may leave.
type waiting struct {
	pod  *schemas.UsingPod
	rank rank.Rank
}

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].rank.Compare(q[j].rank) < 0 }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(w any)        { *q = append(*q, w.(waiting)) }

// Pop returns the pod alone, as a pointer, which fits into an any without a copy.
func (q *queue) Pop() any {
	last := len(*q) - 1
	pod := (*q)[last].pod
	*q = (*q)[:last]
	return pod
}
