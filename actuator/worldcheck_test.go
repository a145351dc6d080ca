package actuator

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// demand identifies successive intents for the same move.
type demand struct {
	key scopeKey
	pod types.UID
}

// judged is a verdict with its time and its place in the history.
type judged struct {
	schemas.Verdict
	at    time.Time
	place int
}

// later reports whether the verdict was made or stored after an answer. A verdict can wait for the bus, and an answer
// in the table for its execution.
func (v judged) later(answer schemas.Event, place int) bool {
	return !v.at.Before(answer.Time) || v.place > place
}

// check compares the events on the bus with the history of the world.
func (w *world) check(t *testing.T) {
	t.Helper()
	final, ends := map[string][]judged{}, map[string][]judged{}
	for place, e := range w.bus.stored {
		if e.Type == schemas.IntentsType {
			continue
		}
		v := schematest.Decode[schemas.Verdict](t, e)
		to := final
		if v.Outcome == schemas.Settled {
			to = ends
		}
		to[v.Intent.ID] = append(to[v.Intent.ID], judged{v, e.Time, place})
	}
	for id, list := range final {
		for i, v := range list[1:] {
			if v.Outcome == list[i].Outcome || list[i].Outcome.Moves() || !w.endedBetween(list[0].at, v.at) {
				t.Errorf("intent %s has %d final verdicts: %s", id, len(list), w.about(t, v.Intent.Pod.UID))
			}
		}
	}
	w.checkWishes(t, final)
	w.checkMoves(t, final, ends)
	w.checkLimits(t)
	expect.Equal(t, "answers left in the table", w.bus.left(), 0)
	expect.Equal(t, "left in the ledger", slices.Sorted(maps.Keys(w.bus.ledger)), []string(nil))
}

// checkWishes checks that an intent without a verdict was renewed, and that its entry got a verdict later. A verdict
// Withdrawn or Expired applies to the renewed form of its intent.
func (w *world) checkWishes(t *testing.T, final map[string][]judged) {
	t.Helper()
	of := map[demand][]judged{}
	for _, list := range final {
		for _, v := range list {
			d := demand{scopeKey{v.Profile, v.Strategy, v.Scope.Kind, v.Scope.Key}, v.Intent.Pod.UID}
			of[d] = append(of[d], v)
		}
	}
	for place, e := range w.bus.stored {
		if e.Type != schemas.IntentsType {
			continue
		}
		a := schematest.Decode[schemas.Intents](t, e)
		for _, i := range a.Intents {
			if len(final[i.ID]) > 0 || w.replacedUnread(e, place) {
				continue
			}
			if !slices.ContainsFunc(of[demand{scopeKey{a.Profile, a.Strategy, a.Scope.Kind, a.Scope.Key}, i.Pod.UID}], func(v judged) bool {
				overtaken := v.Outcome == schemas.Withdrawn || v.Outcome == schemas.Expired
				return v.later(e, place) && (!overtaken || !v.Intent.Expires.Before(i.Expires))
			}) {
				t.Errorf("intent %s, made at %v, has no verdict; %s", i.ID, e.Time, w.about(t, i.Pod.UID))
			}
		}
	}
}

// endedBetween reports whether a process ended between two verdicts on one intent. The next process tries an intent
// again while its intents message is still in the table.
func (w *world) endedBetween(first, second time.Time) bool {
	return slices.ContainsFunc(w.ends, func(at time.Time) bool { return !at.Before(first.Add(-time.Second)) && !at.After(second) })
}

// replacedUnread reports whether a newer message replaced an intents message before a process read it and lived long
// enough to store the withdrawals. That may take 13 seconds: an outage of the bus of 8, and the backoff of 5. Such
// intents need no verdict.
func (w *world) replacedUnread(e schemas.Event, place int) bool {
	i := slices.IndexFunc(w.bus.stored[place+1:], func(newer schemas.Event) bool { return newer.Channel == e.Channel })
	if i < 0 {
		return false
	}
	replaced := w.bus.stored[place+1+i].Time
	return !slices.ContainsFunc(w.readers[e.ID], func(l *life) bool { return l.over.IsZero() || l.over.After(replaced.Add(20*time.Second)) })
}

// checkMoves checks that each evicted pod has one verdict Evicted and one verdict Settled, and that no other pod has
// one.
func (w *world) checkMoves(t *testing.T, final, ends map[string][]judged) {
	t.Helper()
	evicted, said := map[string]int{}, map[string]int{}
	for _, e := range w.evictions {
		evicted[e.pod]++
	}
	for id, list := range final {
		for _, v := range list {
			if v.Outcome != schemas.Evicted {
				continue
			}
			said[string(v.Intent.Pod.UID)]++
			if len(ends[id]) != 1 {
				t.Errorf("%d verdicts say how the move of %s ended; %s", len(ends[id]), id, w.about(t, v.Intent.Pod.UID))
			}
		}
	}
	if !reflect.DeepEqual(said, evicted) {
		for pod := range evicted {
			if said[pod] != evicted[pod] {
				t.Errorf("pod %s: %d evictions, %d verdicts; %s", pod, evicted[pod], said[pod], w.about(t, types.UID(pod)))
			}
		}
		for pod := range said {
			if evicted[pod] == 0 {
				t.Errorf("pod %s was not evicted, and has %d verdicts; %s", pod, said[pod], w.about(t, types.UID(pod)))
			}
		}
	}
}

// about returns all verdicts on a pod.
func (w *world) about(t *testing.T, pod types.UID) (lines []string) {
	for _, e := range w.bus.stored {
		if e.Type == schemas.IntentsType {
			for _, i := range schematest.Decode[schemas.Intents](t, e).Intents {
				if i.Pod.UID == pod {
					lines = append(lines, "\n"+e.Time.Format(time.StampMilli)+" wanted "+i.ID)
				}
			}
			continue
		}
		if v := schematest.Decode[schemas.Verdict](t, e); v.Intent.Pod.UID == pod {
			lines = append(lines, "\n"+e.Time.Format(time.StampMilli)+" "+string(v.Outcome)+" "+v.Intent.ID+" "+v.Message)
		}
	}
	for _, e := range w.evictions {
		if e.pod == string(pod) {
			lines = append(lines, "\n"+e.at.Format(time.StampMilli)+" evicted from "+e.node)
		}
	}
	return lines
}

// checkLimits checks every eviction against the earlier ones. An evicted pod of a workload is in flight until any
// replacement is ready.
func (w *world) checkLimits(t *testing.T) {
	t.Helper()
	for i, e := range w.evictions {
		total, node, flying := 0, 0, 0
		for _, before := range w.evictions[:i] {
			ago := e.at.Sub(before.at)
			if ago < tortureWindow {
				total++
				if before.node == e.node {
					node++
				}
			}
			if before.workload == e.workload {
				flying++
			}
			if !before.ready.IsZero() && before.workload == e.workload && !before.ready.After(e.at) {
				flying--
			}
		}
		if total >= mostInWindow || node >= mostOfNode || flying >= mostInFlight {
			t.Errorf("the eviction of pod %s at %v came after %d within %v, %d of them off %s, with %d of %s on the move",
				e.pod, e.at, total, tortureWindow, node, e.node, flying, e.workload)
		}
	}
}
