package actuator

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// waiting is a pod that waits with that rank, with an intent of that ID.
func waiting(l *lanes, id string, r rank) *pod {
	p := &pod{
		claims: []*claim{{open: Open{Intent: schemas.Intent{ID: id, Pod: schemas.PodRef{UID: types.UID(id)}}}}},
		at:     inLane, rank: r, number: l.number(),
	}
	l.push(p)
	return p
}

// popped takes everybody out in their order.
func popped(l *lanes) []string {
	var out []string
	for p := l.pop(); p != nil; p = l.pop() {
		out = append(out, p.claims[0].open.Intent.ID)
	}
	return out
}

func TestTurnsComeByLaneThenPriorityThenQualityOfServiceThenAge(t *testing.T) {
	type one struct {
		id   string
		rank rank
	}
	best, burst, sure := qualityOf(corev1.PodQOSBestEffort), qualityOf(corev1.PodQOSBurstable), qualityOf(corev1.PodQOSGuaranteed)
	for _, c := range []struct {
		name string
		came []one
		want []string
	}{
		{"nobody waits", nil, nil},
		{"nodes before what a person asked for before violations before balance",
			[]one{
				{"manual", rank{lane: laneManual}}, {"balance", rank{lane: laneBalance}},
				{"violation", rank{lane: laneViolations}}, {"node", rank{lane: laneNodes}},
			},
			[]string{"node", "manual", "violation", "balance"}},
		{"the lane counts more than the priority",
			[]one{{"low", rank{laneBalance, -100, best}}, {"high", rank{laneNodes, 1000, sure}}}, []string{"high", "low"}},
		{"low priority first",
			[]one{{"high", rank{priority: 1000}}, {"none", rank{}}, {"below none", rank{priority: -1}}},
			[]string{"below none", "none", "high"}},
		{"the priority counts more than the quality of service",
			[]one{{"sure", rank{priority: -1, quality: sure}}, {"best", rank{quality: best}}}, []string{"sure", "best"}},
		{"BestEffort before Burstable before Guaranteed, and what is not known first",
			[]one{{"sure", rank{quality: sure}}, {"burst", rank{quality: burst}}, {"best", rank{quality: best}}, {"none", rank{quality: qualityOf("")}}},
			[]string{"none", "best", "burst", "sure"}},
		{"of equals, who came first", []one{{"1", rank{}}, {"2", rank{}}, {"3", rank{}}}, []string{"1", "2", "3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l lanes
			for _, o := range c.came {
				waiting(&l, o.id, o.rank)
			}
			check(t, "waiting", l.Len(), len(c.came))
			check(t, "turns", popped(&l), c.want)
		})
	}
}

func TestAPodKeepsItsPlaceByItsNumberWhenItComesBack(t *testing.T) {
	var l lanes
	first := waiting(&l, "1", rank{})
	waiting(&l, "2", rank{})
	l.remove(first)
	l.push(first)
	check(t, "turns", popped(&l), []string{"1", "2"})
}

func TestNoLaneStarves(t *testing.T) {
	var l lanes
	for i := range 3 {
		waiting(&l, fmt.Sprint("m", i), rank{lane: laneManual})
	}
	var turns []string
	for i := range 30 { // there is always somebody of the first lane
		waiting(&l, fmt.Sprint("n", i), rank{lane: laneNodes})
		turns = append(turns, l.pop().claims[0].open.Intent.ID[:1])
	}
	const eight = "nnnnnnnn"
	want := []byte(eight + "m" + eight + "m" + eight + "m" + "nnn")
	var got []byte
	for _, turn := range turns {
		got = append(got, turn...)
	}
	check(t, "lanes of the turns", string(got), string(want))
}

func TestOfTwoLanesThatWaitedTooLongTheOneThatWaitedLongerIsNext(t *testing.T) {
	var l lanes
	waiting(&l, "manual", rank{lane: laneManual})
	var got []string
	for i := range 12 {
		if i == 2 {
			waiting(&l, "balance", rank{lane: laneBalance})
		}
		waiting(&l, fmt.Sprint("n", i), rank{lane: laneNodes})
		got = append(got, l.pop().claims[0].open.Intent.ID)
	}
	check(t, "turns", got, []string{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "manual", "n8", "balance", "n9"})
}

func TestALaneInWhichNobodyWaitsAnyMoreBeginsAnew(t *testing.T) {
	var l lanes
	p := waiting(&l, "m1", rank{lane: laneManual})
	for i := range 20 {
		waiting(&l, fmt.Sprint("n", i), rank{lane: laneNodes})
	}
	for range patience {
		l.pop()
	}
	l.remove(p)
	waiting(&l, "m2", rank{lane: laneManual})
	check(t, "next", l.front().claims[0].open.Intent.ID, "n8")
}

// prioritized is a policy that enables a strategy of each priority, named for it.
func prioritized(r policy.Rate) policy.Policy {
	p := enabling(r, "node", "violation", "balance")
	p.Known = map[string]policy.Traits{}
	for _, priority := range []policy.Priority{policy.PriorityNode, policy.PriorityViolation, policy.PriorityBalance} {
		p.Known[string(priority)] = policy.Traits{Priority: priority}
	}
	return p
}

func TestPriority(t *testing.T) {
	t.Run("nodes_then_requests_then_violations_then_balance", func(t *testing.T) {
		cfg := Config{Policy: prioritized(policy.Rate{EvictionsPerSecond: 1, Burst: 1})}
		inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, ms), func(t *testing.T, b *bench) {
			b.put("node", 1, "1") // takes the only token
			time.Sleep(10 * ms)
			b.put("balance", 2, "2")
			b.put("violation", 3, "3")
			b.put(schemas.RequestStrategy, 4, "4")
			b.put("node", 6, "6")
			time.Sleep(time.Minute)
			var got []string
			for _, v := range b.bus.heard(t, b.start) {
				got = append(got, v.ID)
			}
			check(t, "order", got, []string{"node-1.1", "node-6.6", "Request-4.4", "violation-3.3", "balance-2.2"})
		})
	})
	t.Run("declared_by_any_strategy", func(t *testing.T) {
		for i, p := range policy.Priorities() {
			check(t, "lane of "+string(p), laneOf(p), lane(i))
		}
		check(t, "lane of none", laneOf(""), laneViolations)
	})
}
