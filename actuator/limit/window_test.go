package limit

import (
	"slices"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// begun returns a move of a pod that is not accepted yet.
func begun(node, namespace string) Move { return Move{Node: node, Namespace: namespace} }

// why is the answer of Admits.
type why struct {
	reason  schemas.ReasonCode
	message string
}

// moved returns an accepted move.
func moved(at time.Time, node, namespace string) Move { return Move{node, namespace, at} }

func TestWindowLimitDelays(t *testing.T) {
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
		before []Move
		asked  Move
		want   answer
	}{
		{"no limit admits all", policy.Limits{}, []Move{moved(noon, "a", "x"), moved(noon, "a", "x")}, begun("a", "x"), answer{OK: true}},
		{"there is room below a limit", policy.Limits{PerNode: new(uint(2)), PerNamespace: new(uint(2)), Total: new(uint(2))},
			[]Move{moved(noon, "a", "x")}, begun("a", "x"), answer{OK: true}},
		{"a node that is full holds its pods until its oldest move leaves the window", policy.Limits{PerNode: new(uint(2))},
			[]Move{moved(minute(2), "a", "y"), moved(minute(1), "a", "x")}, begun("a", "z"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 2 pods in 5m0s"), 3 * time.Minute, false}},
		{"moves off other nodes do not count", policy.Limits{PerNode: new(uint(1))},
			[]Move{moved(noon, "a", "x")}, begun("b", "x"), answer{OK: true}},
		{"a namespace that is full holds its pods, and its window may be another", policy.Limits{PerNamespace: new(uint(1)), Window: time.Hour},
			[]Move{moved(noon, "a", "x")}, begun("b", "x"),
			answer{held(schemas.ReasonLimitNamespace, "namespace x has reached its limit of 1 pod in 1h0m0s"), 57 * time.Minute, false}},
		{"moves in other namespaces do not count", policy.Limits{PerNamespace: new(uint(1))},
			[]Move{moved(noon, "a", "x")}, begun("a", "y"), answer{OK: true}},
		{"the limit of the cluster holds all", policy.Limits{Total: new(uint(1))},
			[]Move{moved(minute(2), "a", "x")}, begun("b", "y"),
			answer{held(schemas.ReasonLimitTotal, "the cluster has reached its limit of 1 pod in 5m0s"), 4 * time.Minute, false}},
		{"a limit of 0 moves nothing", policy.Limits{PerNode: new(uint(0))}, nil, begun("a", "x"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 0 pods in 5m0s"), Never, false}},
		{"of several limits the one that holds longest is named", policy.Limits{PerNode: new(uint(1)), PerNamespace: new(uint(1)), Total: new(uint(2))},
			[]Move{moved(noon, "a", "x"), moved(minute(1), "b", "y")}, begun("a", "y"),
			answer{held(schemas.ReasonLimitNamespace, "namespace y has reached its limit of 1 pod in 5m0s"), 3 * time.Minute, false}},
		{"an eviction that is on its way counts", policy.Limits{PerNode: new(uint(2))},
			[]Move{moved(noon, "a", "x"), begun("a", "x")}, begun("a", "x"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 2 pods in 5m0s"), 2 * time.Minute, false}},
		{"moves in flight leave the window after they arrive", policy.Limits{PerNode: new(uint(1))},
			[]Move{begun("a", "x")}, begun("a", "x"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 1 pod in 5m0s"), 5 * time.Minute, false}},
		{"a move that has left the window does not count", policy.Limits{PerNode: new(uint(1))},
			[]Move{moved(minute(-2), "a", "x")}, begun("a", "x"), answer{OK: true}},
		{"a lower limit waits for as many as exceed it", policy.Limits{Total: new(uint(1))},
			[]Move{moved(noon, "a", "x"), moved(minute(1), "a", "x"), moved(minute(2), "a", "x")}, begun("a", "x"),
			answer{held(schemas.ReasonLimitTotal, "the cluster has reached its limit of 1 pod in 5m0s"), 4 * time.Minute, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got answer
			got.Why.reason, got.Why.message, got.Wait = Admits(
				c.limits, slices.Values(c.before), c.asked.Node, c.asked.Namespace, minute(3))
			got.OK = got.Wait == 0
			expect.Equal(t, "answer", got, c.want)
		})
	}
}

// TestWindowLimitInvariant makes random moves and counts them again in the simplest way.
func TestWindowLimitInvariant(t *testing.T) {
	random := randtest.New(t)
	rules := policy.Limits{PerNode: new(uint(3)), PerNamespace: new(uint(4)), Total: new(uint(6)), Window: time.Minute}
	var done, flying []Move
	now, held := noon, 0
	count := func(counts func(Move) bool) (n uint) {
		for _, m := range done {
			if now.Sub(m.Accepted) < rules.Window && counts(m) {
				n++
			}
		}
		for _, m := range flying {
			if counts(m) {
				n++
			}
		}
		return n
	}
	for range 3000 {
		now = now.Add(time.Duration(random.Int64N(int64(10 * time.Second))))
		if i := random.IntN(4); i < len(flying) {
			if random.IntN(3) > 0 {
				done = append(done, moved(now, flying[i].Node, flying[i].Namespace))
			}
			flying = slices.Delete(flying, i, i+1)
			continue
		}
		o := begun(string(rune('a'+random.IntN(3))), string(rune('x'+random.IntN(2))))
		want := count(func(m Move) bool { return m.Node == o.Node }) < *rules.PerNode &&
			count(func(m Move) bool { return m.Namespace == o.Namespace }) < *rules.PerNamespace &&
			count(func(Move) bool { return true }) < *rules.Total
		reason, message, wait := Admits(rules, slices.Values(slices.Concat(done, flying)), o.Node, o.Namespace, now)
		got := wait == 0
		if got != want || got != (reason == "" && message == "") {
			t.Fatalf("at %v: got %v, wait %v, %s, want %v", now.Sub(noon), got, wait, message, want)
		}
		if !got {
			held++
			continue
		}
		flying = append(flying, o)
	}
	if held < 100 || len(done) < 100 {
		t.Errorf("%d were held and %d moved, too few to say anything", held, len(done))
	}
}
