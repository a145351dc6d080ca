package limit

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// from is the Origin of a pod of a namespace on a node.
func from(node, namespace string) Origin { return Origin{node, namespace} }

// why is what Admits says.
type why struct {
	reason  schemas.ReasonCode
	message string
}

// moved makes moves that are over.
func moved(l *Windows, at time.Time, opens ...Origin) {
	for _, o := range opens {
		l.Begin(o)
		l.End(o, true, at)
	}
}

func TestALimitHoldsWhatExceedsItAndSaysForHowLong(t *testing.T) {
	held := func(reason schemas.ReasonCode, message string) why {
		return why{reason, message}
	}
	type answer struct {
		Why  why
		Wait time.Duration
		OK   bool
	}
	minute := func(n time.Duration) time.Time { return noon.Add(n * time.Minute) }
	for _, c := range []struct {
		name   string
		limits policy.Limits
		before func(*Windows)
		asked  Origin
		want   answer
	}{
		{"no limit admits all", policy.Limits{}, func(l *Windows) { moved(l, noon, from("a", "x"), from("a", "x")) },
			from("a", "x"), answer{OK: true}},
		{"there is room below a limit", policy.Limits{PerNode: new(uint(2)), PerNamespace: new(uint(2)), Total: new(uint(2))},
			func(l *Windows) { moved(l, noon, from("a", "x")) }, from("a", "x"), answer{OK: true}},
		{"a node that is full holds its pods until its oldest move leaves the window", policy.Limits{PerNode: new(uint(2))},
			func(l *Windows) { moved(l, minute(1), from("a", "x")); moved(l, minute(2), from("a", "y")) }, from("a", "z"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 2 pods in 5m0s"), 3 * time.Minute, false}},
		{"and not those of other nodes", policy.Limits{PerNode: new(uint(1))},
			func(l *Windows) { moved(l, noon, from("a", "x")) }, from("b", "x"), answer{OK: true}},
		{"a namespace that is full holds its pods, and its window may be another", policy.Limits{PerNamespace: new(uint(1)), Window: time.Hour},
			func(l *Windows) { moved(l, noon, from("a", "x")) }, from("b", "x"),
			answer{held(schemas.ReasonLimitNamespace, "namespace x has reached its limit of 1 pod in 1h0m0s"), 57 * time.Minute, false}},
		{"and not those of other namespaces", policy.Limits{PerNamespace: new(uint(1))},
			func(l *Windows) { moved(l, noon, from("a", "x")) }, from("a", "y"), answer{OK: true}},
		{"the limit of the cluster holds all", policy.Limits{Total: new(uint(1))},
			func(l *Windows) { moved(l, minute(2), from("a", "x")) }, from("b", "y"),
			answer{held(schemas.ReasonLimitTotal, "the cluster has reached its limit of 1 pod in 5m0s"), 4 * time.Minute, false}},
		{"a limit of 0 moves nothing", policy.Limits{PerNode: new(uint(0))}, func(*Windows) {}, from("a", "x"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 0 pods in 5m0s"), Never, false}},
		{"of several limits the one that holds longest is named", policy.Limits{PerNode: new(uint(1)), PerNamespace: new(uint(1)), Total: new(uint(2))},
			func(l *Windows) { moved(l, noon, from("a", "x")); moved(l, minute(1), from("b", "y")) }, from("a", "y"),
			answer{held(schemas.ReasonLimitNamespace, "namespace y has reached its limit of 1 pod in 5m0s"), 3 * time.Minute, false}},
		{"an eviction that is on its way counts", policy.Limits{PerNode: new(uint(2))},
			func(l *Windows) { moved(l, noon, from("a", "x")); l.Begin(from("a", "x")) }, from("a", "x"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 2 pods in 5m0s"), 2 * time.Minute, false}},
		{"those on their way leave a window after they arrive", policy.Limits{PerNode: new(uint(1))},
			func(l *Windows) { l.Begin(from("a", "x")) }, from("a", "x"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 1 pod in 5m0s"), 5 * time.Minute, false}},
		{"one that fails gives its place back", policy.Limits{PerNode: new(uint(1)), PerNamespace: new(uint(1)), Total: new(uint(1))},
			func(l *Windows) {
				l.Begin(from("a", "x"))
				l.End(from("a", "x"), false, minute(1))
			}, from("a", "x"), answer{OK: true}},
		{"a move that has left the window does not count", policy.Limits{PerNode: new(uint(1))},
			func(l *Windows) { moved(l, minute(-2), from("a", "x")) }, from("a", "x"), answer{OK: true}},
		{"what was moved counts against limits that come later", policy.Limits{Total: new(uint(9))},
			func(l *Windows) {
				moved(l, minute(1), from("a", "x"), from("b", "x"))
				l.Limits = policy.Limits{PerNamespace: new(uint(2))}
			}, from("c", "x"),
			answer{held(schemas.ReasonLimitNamespace, "namespace x has reached its limit of 2 pods in 5m0s"), 3 * time.Minute, false}},
		{"a lower limit waits for as many as exceed it", policy.Limits{Total: new(uint(9))},
			func(l *Windows) {
				moved(l, noon, from("a", "x"))
				moved(l, minute(1), from("a", "x"))
				moved(l, minute(2), from("a", "x"))
				l.Limits = policy.Limits{Total: new(uint(1))}
			}, from("a", "x"),
			answer{held(schemas.ReasonLimitTotal, "the cluster has reached its limit of 1 pod in 5m0s"), 4 * time.Minute, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := NewWindows(c.limits)
			c.before(l)
			var got answer
			got.Why.reason, got.Why.message, got.Wait = l.Admits(c.asked, minute(3))
			got.OK = got.Wait == 0
			check(t, "answer", got, c.want)
		})
	}
}

func TestLimitsRememberNothingThatDoesNotCount(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits policy.Limits
	}{{"with a limit, after the window", policy.Limits{PerNode: new(uint(5))}}, {"without a limit", policy.Limits{}}} {
		l := NewWindows(c.limits)
		moved(l, noon, from("a", "x"), from("b", "y"))
		l.Begin(from("c", "z"))
		l.End(from("c", "z"), false, noon)
		l.Forget(noon.Add(policy.DefaultWindow))
		if len(l.tallies) != 0 {
			t.Errorf("%s: got %+v, want nothing", c.name, l)
		}
	}
}

// TestNoWindowEverHasMoreMovesThanItsLimits makes moves at random and counts them anew, in the plainest way.
func TestNoWindowEverHasMoreMovesThanItsLimits(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d; repeat with rand.NewPCG(seed, 0)", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	rules := policy.Limits{PerNode: new(uint(3)), PerNamespace: new(uint(4)), Total: new(uint(6)), Window: time.Minute}
	l := NewWindows(rules)
	type counted struct {
		Origin
		at time.Time
	}
	var done []counted
	var flying []Origin
	now, held := noon, 0
	count := func(counts func(Origin) bool) (n uint) {
		for _, m := range done {
			if now.Sub(m.at) < rules.Window && counts(m.Origin) {
				n++
			}
		}
		for _, o := range flying {
			if counts(o) {
				n++
			}
		}
		return n
	}
	for range 3000 {
		now = now.Add(time.Duration(random.Int64N(int64(10 * time.Second))))
		if i := random.IntN(4); i < len(flying) {
			ok := random.IntN(3) > 0
			l.End(flying[i], ok, now)
			if ok {
				done = append(done, counted{flying[i], now})
			}
			flying = append(flying[:i], flying[i+1:]...)
			continue
		}
		o := from(string(rune('a'+random.IntN(3))), string(rune('x'+random.IntN(2))))
		at := o
		want := count(func(m Origin) bool { return m.Node == at.Node }) < *rules.PerNode &&
			count(func(m Origin) bool { return m.Namespace == at.Namespace }) < *rules.PerNamespace &&
			count(func(Origin) bool { return true }) < *rules.Total
		reason, message, wait := l.Admits(o, now)
		got := wait == 0
		if got != want || got != (reason == "" && message == "") {
			t.Fatalf("at %v: got %v, wait %v, %s, want %v", now.Sub(noon), got, wait, message, want)
		}
		if !got {
			held++
			continue
		}
		l.Begin(at)
		flying = append(flying, at)
	}
	if held < 100 || len(done) < 100 {
		t.Errorf("%d were held and %d moved, too few to say anything", held, len(done))
	}
}
