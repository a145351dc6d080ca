package limit

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at returns that many minutes after noon.
func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

// patience returns the policy of these tests, which is the default one.
func patience() policy.WorkloadBreaker {
	return policy.WorkloadBreaker{Delay: 2 * time.Minute, MaxDelay: 4 * time.Hour}
}

// on returns the key of the workload web and the strategy S.
func on(node string) BreakerKey { return BreakerKey{"web", "S", node} }

func TestReturningPod(t *testing.T) {
	l := NewWorkloadBreaker(patience())
	var moved []time.Duration
	for now := noon; now.Sub(noon) < 24*time.Hour; now = now.Add(time.Minute) {
		if l.Holds(on("a"), now).IsZero() {
			moved = append(moved, now.Sub(noon))
			l.Moved(on("a"), nil, 0, now)
			l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, now)
		}
	}
	var want []time.Duration
	for _, minutes := range []time.Duration{0, 2, 6, 14, 30, 62, 126, 254, 494, 734, 974, 1214} {
		want = append(want, minutes*time.Minute)
	}
	expect.Equal(t, "moved after", moved, want)
	inTheFirstHour := 0
	for _, after := range moved {
		if after < time.Hour {
			inTheFirstHour++
		}
	}
	expect.Equal(t, "in the first hour", inTheFirstHour, 5)
}

func TestReturnOpensNodeBreaker(t *testing.T) {
	type entries []BreakerEntry
	entry := func(k BreakerKey, r BreakerRecord, until time.Time) BreakerEntry { return BreakerEntry{k, r, until} }
	for _, c := range []struct {
		name   string
		policy policy.WorkloadBreaker
		story  func(*WorkloadBreaker) []bool
		opened []bool
		want   entries
	}{
		{"a replacement on another node is no return", patience(), func(l *WorkloadBreaker) []bool {
			l.Moved(on("a"), nil, 0, at(0))
			return []bool{l.Landed(BreakerKey{"web", "S", "b"}, "a", nil, at(1))}
		}, []bool{false}, entries{entry(on("a"), BreakerRecord{Away: true, Last: at(0)}, time.Time{})}},
		{"one on the node that its pod had to leave is one", patience(), func(l *WorkloadBreaker) []bool {
			l.Moved(on("a"), nil, 0, at(0))
			return []bool{l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1))}
		}, []bool{true}, entries{entry(on("a"), BreakerRecord{Returns: 1, Returned: at(1), Last: at(1)}, at(3))}},
		{"one on a node that another pod had to leave is one, which ends moves to and fro", patience(), func(l *WorkloadBreaker) []bool {
			l.Moved(on("a"), nil, 0, at(0))
			first := l.Landed(BreakerKey{"web", "S", "b"}, "a", nil, at(1))
			l.Moved(on("b"), nil, 0, at(2))
			second := l.Landed(BreakerKey{"web", "S", "a"}, "b", nil, at(3))
			l.Moved(on("a"), nil, 0, at(5))
			return []bool{first, second, l.Landed(BreakerKey{"web", "S", "b"}, "a", nil, at(6))}
		}, []bool{false, true, true}, entries{
			entry(on("a"), BreakerRecord{Returns: 1, Returned: at(3), Away: true, Last: at(5)}, at(5)),
			entry(on("b"), BreakerRecord{Returns: 1, Returned: at(6), Last: at(6)}, at(8)),
		}},
		{"pods that were moved off together and come back one by one are one", patience(), func(l *WorkloadBreaker) []bool {
			l.Moved(on("a"), nil, 0, at(0))
			l.Moved(on("a"), nil, 0, at(0))
			l.Moved(on("a"), nil, 0, at(0))
			return []bool{
				l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1)), l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(2)), l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(5)),
			}
		}, []bool{true, false, false}, entries{entry(on("a"), BreakerRecord{Returns: 1, Returned: at(1), Last: at(5)}, at(3))}},
		{"the next is counted after another move, even in the same moment", patience(), func(l *WorkloadBreaker) []bool {
			l.Moved(on("a"), nil, 0, at(0))
			first := l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1))
			l.Moved(on("a"), nil, 0, at(1))
			return []bool{first, l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1))}
		}, []bool{true, true}, entries{entry(on("a"), BreakerRecord{Returns: 2, Returned: at(1), Last: at(1)}, at(5))}},
		{"what another strategy or workload did is nothing to it", patience(), func(l *WorkloadBreaker) []bool {
			l.Moved(BreakerKey{"db", "S", "a"}, nil, 0, at(0))
			l.Moved(BreakerKey{"web", "T", "a"}, nil, 0, at(0))
			return []bool{l.Landed(BreakerKey{"web", "S", "a"}, "b", nil, at(1))}
		}, []bool{false}, entries{
			entry(BreakerKey{"db", "S", "a"}, BreakerRecord{Away: true, Last: at(0)}, time.Time{}),
			entry(BreakerKey{"web", "T", "a"}, BreakerRecord{Away: true, Last: at(0)}, time.Time{}),
		}},
		{"a move that another process made is one all the same", patience(), func(l *WorkloadBreaker) []bool {
			return []bool{l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1)), l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1))}
		}, []bool{true, false}, entries{entry(on("a"), BreakerRecord{Returns: 1, Returned: at(1), Last: at(1)}, at(3))}},
		{"a move of more than an hour ago is forgotten", patience(), func(l *WorkloadBreaker) []bool {
			l.Moved(on("a"), nil, 0, at(0))
			return []bool{l.Landed(BreakerKey{"web", "S", "a"}, "b", nil, at(60))}
		}, []bool{false}, entries{entry(on("a"), BreakerRecord{Away: true, Last: at(0)}, time.Time{})}},
		{"one that is forgotten is not added to", patience(), func(l *WorkloadBreaker) []bool {
			l.Restore(on("a"), BreakerRecord{Returns: 5, Returned: at(0), Last: at(0)}) // for 32 minutes
			l.Moved(on("a"), nil, 0, at(64))
			return []bool{l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(65))}
		}, []bool{true}, entries{entry(on("a"), BreakerRecord{Returns: 1, Returned: at(65), Last: at(65)}, at(67))}},
		{"and one that holds for long is remembered for long", patience(), func(l *WorkloadBreaker) []bool {
			l.Restore(on("a"), BreakerRecord{Returns: 5, Returned: at(0), Last: at(0)})
			l.Moved(on("a"), nil, 0, at(63))
			return []bool{l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(64))}
		}, []bool{true}, entries{entry(on("a"), BreakerRecord{Returns: 6, Returned: at(64), Last: at(64)}, at(128))}},
		{"pods without a workload have none", patience(), func(l *WorkloadBreaker) []bool {
			l.Moved(BreakerKey{"", "S", "a"}, nil, 0, at(0))
			l.Restore(BreakerKey{"", "S", "a"}, BreakerRecord{Returns: 1, Returned: at(0), Last: at(0)})
			return []bool{l.Landed(BreakerKey{"", "S", "a"}, "a", nil, at(1))}
		}, []bool{false}, nil},
		{"a delay of 0 knows none", policy.WorkloadBreaker{MaxDelay: time.Hour}, func(l *WorkloadBreaker) []bool {
			l.Moved(on("a"), nil, 0, at(0))
			l.Restore(on("b"), BreakerRecord{Returns: 1, Returned: at(0), Last: at(0)})
			return []bool{l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1)), l.Landed(BreakerKey{"web", "S", "b"}, "b", nil, at(1))}
		}, []bool{false, false}, nil},
		{"the longest delay bounds the first one too", policy.WorkloadBreaker{Delay: time.Hour, MaxDelay: time.Minute}, func(l *WorkloadBreaker) []bool {
			return []bool{l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1))}
		}, []bool{true}, entries{entry(on("a"), BreakerRecord{Returns: 1, Returned: at(1), Last: at(1)}, at(2))}},
		{"a clock that goes back shortens nothing", patience(), func(l *WorkloadBreaker) []bool {
			l.Restore(on("a"), BreakerRecord{Returns: 1, Returned: at(10), Last: at(10)})
			l.Moved(on("a"), nil, 0, at(8))
			return []bool{l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(9))}
		}, []bool{true}, entries{entry(on("a"), BreakerRecord{Returns: 2, Returned: at(10), Last: at(10)}, at(14))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewWorkloadBreaker(c.policy)
			expect.Equal(t, "opened", c.story(l), c.opened)
			expect.Equal(t, "remembered", entries(l.All()), c.want)
		})
	}
}

func TestPodsStayUntilDelayEnds(t *testing.T) {
	l := NewWorkloadBreaker(patience())
	l.Moved(on("a"), nil, 0, at(0))
	l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1))
	ask := func(k BreakerKey, now time.Time) time.Time { return l.Holds(k, now) }
	got := []time.Time{
		ask(on("a"), at(1)), ask(on("a"), at(3).Add(-1)), ask(on("a"), at(3)),
		ask(on("b"), at(1)), ask(BreakerKey{"db", "S", "a"}, at(1)), ask(BreakerKey{"web", "T", "a"}, at(1)),
	}
	expect.Equal(t, "held until", got, []time.Time{at(3), at(3), {}, {}, {}, {}})
}

func TestNewPolicyDelay(t *testing.T) {
	l := NewWorkloadBreaker(patience())
	for range 2 {
		l.Moved(on("a"), nil, 0, at(0))
		l.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(0))
	}
	var got []time.Time
	for _, p := range []policy.WorkloadBreaker{
		patience(), {Delay: time.Hour, MaxDelay: 3 * time.Hour}, {Delay: time.Hour, MaxDelay: 90 * time.Minute},
		{Delay: math.MaxInt64, MaxDelay: math.MaxInt64}, {Delay: time.Minute, MaxDelay: -1}, {}, patience(),
	} {
		l.Set(p)
		got = append(got, l.Holds(on("a"), at(1)))
	}
	expect.Equal(t, "held until", got, []time.Time{at(4), at(120), at(90), at(0).Add(math.MaxInt64), {}, {}, {}})
	expect.Equal(t, "remembered after it was switched off", l.All(), []BreakerEntry(nil))
}

func TestRecordRoundTrip(t *testing.T) {
	first, second := NewWorkloadBreaker(patience()), NewWorkloadBreaker(patience())
	first.Moved(on("a"), nil, 0, at(0))
	first.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(1))
	first.Moved(on("a"), nil, 0, at(4))
	for _, e := range first.All() {
		raw := expect.ToJSON(t, e)
		expect.Equal(t, "stored", string(raw), `{"workload":"web","strategy":"S","node":"a","returns":1,`+
			`"returned":"2026-03-01T12:01:00Z","away":true,"last":"2026-03-01T12:04:00Z","until":"2026-03-01T12:03:00Z"}`)
		stored := expect.FromJSON[BreakerEntry](t, raw)
		second.Restore(stored.BreakerKey, stored.BreakerRecord)
	}
	expect.Equal(t, "remembered", second.All(), first.All())
	expect.Equal(t, "opened", second.Landed(BreakerKey{"web", "S", "a"}, "a", nil, at(5)), true)
	expect.Equal(t, "held until", second.Holds(on("a"), at(5)), at(9))
	_, known := second.Entry(on("b"))
	expect.Equal(t, "another node is known", known, false)
}

func TestClearedBreaker(t *testing.T) {
	l := NewWorkloadBreaker(patience())
	for _, k := range []BreakerKey{{"web", "S", "a"}, {"web", "T", "a"}, {"web", "S", "b"}, {"db", "S", "a"}} {
		l.Moved(k, nil, 0, at(0))
		l.Landed(BreakerKey{k.Workload, k.Strategy, k.Node}, k.Node, nil, at(0))
	}
	expect.Equal(t, "cleared", l.Clear("web"), []BreakerKey{{"web", "S", "a"}, {"web", "S", "b"}, {"web", "T", "a"}})
	one := BreakerRecord{Returns: 1, Returned: at(0), Last: at(0)}
	expect.Equal(t, "left", l.All(), []BreakerEntry{{BreakerKey{"db", "S", "a"}, one, at(2)}})
	expect.Equal(t, "held until", l.Holds(on("a"), at(1)), time.Time{})
}

func TestForgettingReportsDroppedRecords(t *testing.T) {
	l := NewWorkloadBreaker(patience())
	l.Restore(on("long"), BreakerRecord{Returns: 6, Returned: at(0), Last: at(0)}) // 64 minutes, twice
	for _, node := range []string{"d", "b", "e", "a", "c"} {
		l.Moved(on(node), nil, 0, at(0))
	}
	l.Moved(on("late"), nil, 0, at(1))
	expect.Equal(t, "dropped within the hour", l.Forget(at(60).Add(-1)), []BreakerKey(nil))
	expect.Equal(t, "dropped after an hour", l.Forget(at(60)), []BreakerKey{on("a"), on("b"), on("c"), on("d"), on("e")})
	expect.Equal(t, "dropped after two delays", l.Forget(at(128)), []BreakerKey{on("late"), on("long")})
	expect.Equal(t, "left", l.All(), []BreakerEntry(nil))
}

// event is an input of a WorkloadBreaker.
type event struct {
	at       time.Time
	move     bool
	from, on string
}

// heldBy computes from the whole history until when a node is held: the rule without state.
func heldBy(p policy.WorkloadBreaker, history []event, node string, now time.Time) time.Time {
	var last, until time.Time
	returns, away := 0, false
	fresh := func(at time.Time) {
		keep := time.Hour
		if returns > 0 {
			keep = max(keep, 2*doubled(p, returns))
		}
		if at.Sub(last) >= keep {
			returns, away, last, until = 0, false, time.Time{}, time.Time{}
		}
	}
	for _, e := range history {
		fresh(e.at)
		switch {
		case e.move && e.from == node:
			away, last = true, e.at
		case !e.move && e.on == node && (away || last.IsZero() && e.from == node):
			returns, away, last = returns+1, false, e.at
			until = e.at.Add(doubled(p, returns))
		case !e.move && e.on == node && !last.IsZero():
			last = e.at
		}
	}
	if fresh(now); until.After(now) {
		return until
	}
	return time.Time{}
}

func doubled(p policy.WorkloadBreaker, returns int) time.Duration {
	return time.Duration(min(float64(p.Delay)*math.Pow(2, float64(returns-1)), float64(p.MaxDelay)))
}

func TestRandomHistoryFollowsRule(t *testing.T) {
	random := randtest.New(t)
	nodes := []string{"a", "b", "c"}
	held := 0
	for round := range 200 {
		p := policy.WorkloadBreaker{Delay: time.Duration(random.IntN(4)) * time.Minute, MaxDelay: time.Duration(1+random.IntN(90)) * time.Minute}
		l := NewWorkloadBreaker(p)
		now := noon
		var history []event
		for range 60 {
			now = now.Add(time.Duration(random.IntN(1+[]int{0, 3, 30, 200}[random.IntN(4)])) * time.Minute)
			e := event{now, random.IntN(2) == 0, nodes[random.IntN(3)], nodes[random.IntN(3)]}
			history = append(history, e)
			if e.move {
				l.Moved(on(e.from), nil, 0, now)
			} else {
				l.Landed(BreakerKey{"web", "S", e.on}, e.from, nil, now)
			}
			if random.IntN(3) == 0 {
				l.Forget(now)
			}
			for _, node := range nodes {
				ask := now.Add(time.Duration(random.IntN(20)) * time.Minute)
				got, want := l.Holds(on(node), ask), time.Time{}
				if p.Delay > 0 {
					want = heldBy(p, history, node, ask)
				}
				if !got.Equal(want) {
					t.Fatalf("round %d: %+v on node %s at %v: held until %v, want %v, after %+v", round, p, node, ask, got, want, history)
				}
				if !got.IsZero() {
					held++
				}
			}
		}
	}
	if held == 0 {
		t.Error("nothing was held: the test asks about nothing")
	}
}

func TestDelayAndMemoryBounds(t *testing.T) {
	random := randtest.New(t)
	l := NewWorkloadBreaker(policy.WorkloadBreaker{Delay: time.Minute, MaxDelay: time.Hour})
	now, most := noon, 0
	lastUsed := map[BreakerKey]time.Time{}
	delays := map[BreakerKey][]time.Duration{}
	for i := range 50_000 {
		now = now.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
		k := BreakerKey{types.UID(fmt.Sprint("w", random.IntN(20))), "S", fmt.Sprint("n", random.IntN(200))}
		if random.IntN(3) == 0 {
			k.Node += fmt.Sprint("-", now.Unix()) // a node without returns, as in a cluster that replaces its nodes
		}
		if l.Holds(k, now).IsZero() {
			l.Moved(k, nil, 0, now)
			lastUsed[k] = now
		}
		if random.IntN(2) == 0 {
			lastUsed[k] = now
			if l.Landed(BreakerKey{k.Workload, "S", k.Node}, k.Node, nil, now) {
				if r, _ := l.Entry(k); r.Returns == 1 {
					delays[k] = nil // the earlier ones are forgotten
				}
				delays[k] = append(delays[k], l.Holds(k, now).Sub(now))
			}
		}
		if i%100 == 0 {
			l.Forget(now)
		}
		most = max(most, len(l.records))
	}
	for k, d := range delays {
		if !slices.IsSorted(d) || d[0] != time.Minute || slices.Max(d) > time.Hour {
			t.Errorf("%+v was held for %v", k, d)
		}
	}
	l.Forget(now)
	for _, e := range l.All() {
		if age := now.Sub(lastUsed[e.BreakerKey]); age >= 2*time.Hour {
			t.Errorf("%+v is still remembered after %v", e, age)
		}
	}
	if most < 1000 || most > 4000+2400 { // 4000 keys with returns, and a third of two hours' moves
		t.Errorf("remembered %d keys at most", most)
	}
	l.Forget(now.Add(2 * time.Hour))
	expect.Equal(t, "left", l.All(), []BreakerEntry(nil))
}
