package actuator

import (
	"context"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// from is an intent to move a pod of a namespace off a node.
func from(node, namespace string) Open {
	return Open{Intent: schemas.Intent{Node: node, Pod: schemas.PodRef{Namespace: namespace, Name: "p", UID: "u"}}}
}

// moved makes moves that are over.
func moved(l *limits, at time.Time, opens ...Open) {
	for _, o := range opens {
		l.begin(originOf(o))
		l.end(originOf(o), true, at)
	}
}

func TestALimitHoldsWhatExceedsItAndSaysForHowLong(t *testing.T) {
	held := func(reason schemas.ReasonCode, message string) Objection {
		return Objection{schemas.Deferred, reason, message}
	}
	type answer struct {
		Why  Objection
		Wait time.Duration
		OK   bool
	}
	minute := func(n time.Duration) time.Time { return noon.Add(n * time.Minute) }
	for _, c := range []struct {
		name   string
		limits policy.Limits
		before func(*limits)
		asked  Open
		want   answer
	}{
		{"no limit admits all", policy.Limits{}, func(l *limits) { moved(l, noon, from("a", "x"), from("a", "x")) },
			from("a", "x"), answer{OK: true}},
		{"there is room below a limit", policy.Limits{PerNode: new(uint(2)), PerNamespace: new(uint(2)), Total: new(uint(2))},
			func(l *limits) { moved(l, noon, from("a", "x")) }, from("a", "x"), answer{OK: true}},
		{"a node that is full holds its pods until its oldest move leaves the window", policy.Limits{PerNode: new(uint(2))},
			func(l *limits) { moved(l, minute(1), from("a", "x")); moved(l, minute(2), from("a", "y")) }, from("a", "z"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 2 pods in 5m0s"), 3 * time.Minute, false}},
		{"and not those of other nodes", policy.Limits{PerNode: new(uint(1))},
			func(l *limits) { moved(l, noon, from("a", "x")) }, from("b", "x"), answer{OK: true}},
		{"a namespace that is full holds its pods, and its window may be another", policy.Limits{PerNamespace: new(uint(1)), Window: time.Hour},
			func(l *limits) { moved(l, noon, from("a", "x")) }, from("b", "x"),
			answer{held(schemas.ReasonLimitNamespace, "namespace x has reached its limit of 1 pod in 1h0m0s"), 57 * time.Minute, false}},
		{"and not those of other namespaces", policy.Limits{PerNamespace: new(uint(1))},
			func(l *limits) { moved(l, noon, from("a", "x")) }, from("a", "y"), answer{OK: true}},
		{"the limit of the cluster holds all", policy.Limits{Total: new(uint(1))},
			func(l *limits) { moved(l, minute(2), from("a", "x")) }, from("b", "y"),
			answer{held(schemas.ReasonLimitTotal, "the cluster has reached its limit of 1 pod in 5m0s"), 4 * time.Minute, false}},
		{"a limit of 0 moves nothing", policy.Limits{PerNode: new(uint(0))}, func(*limits) {}, from("a", "x"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 0 pods in 5m0s"), never, false}},
		{"of several limits the one that holds longest is named", policy.Limits{PerNode: new(uint(1)), PerNamespace: new(uint(1)), Total: new(uint(2))},
			func(l *limits) { moved(l, noon, from("a", "x")); moved(l, minute(1), from("b", "y")) }, from("a", "y"),
			answer{held(schemas.ReasonLimitNamespace, "namespace y has reached its limit of 1 pod in 5m0s"), 3 * time.Minute, false}},
		{"an eviction that is on its way counts", policy.Limits{PerNode: new(uint(2))},
			func(l *limits) { moved(l, noon, from("a", "x")); l.begin(originOf(from("a", "x"))) }, from("a", "x"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 2 pods in 5m0s"), 2 * time.Minute, false}},
		{"those on their way leave a window after they arrive", policy.Limits{PerNode: new(uint(1))},
			func(l *limits) { l.begin(originOf(from("a", "x"))) }, from("a", "x"),
			answer{held(schemas.ReasonLimitNode, "node a has reached its limit of 1 pod in 5m0s"), 5 * time.Minute, false}},
		{"one that fails gives its place back", policy.Limits{PerNode: new(uint(1)), PerNamespace: new(uint(1)), Total: new(uint(1))},
			func(l *limits) {
				l.begin(originOf(from("a", "x")))
				l.end(originOf(from("a", "x")), false, minute(1))
			}, from("a", "x"), answer{OK: true}},
		{"a move that has left the window does not count", policy.Limits{PerNode: new(uint(1))},
			func(l *limits) { moved(l, minute(-2), from("a", "x")) }, from("a", "x"), answer{OK: true}},
		{"what was moved counts against limits that come later", policy.Limits{Total: new(uint(9))},
			func(l *limits) {
				moved(l, minute(1), from("a", "x"), from("b", "x"))
				l.set(policy.Limits{PerNamespace: new(uint(2))}, minute(2))
			}, from("c", "x"),
			answer{held(schemas.ReasonLimitNamespace, "namespace x has reached its limit of 2 pods in 5m0s"), 3 * time.Minute, false}},
		{"a lower limit waits for as many as exceed it", policy.Limits{Total: new(uint(9))},
			func(l *limits) {
				moved(l, noon, from("a", "x"))
				moved(l, minute(1), from("a", "x"))
				moved(l, minute(2), from("a", "x"))
				l.set(policy.Limits{Total: new(uint(1))}, minute(2))
			}, from("a", "x"),
			answer{held(schemas.ReasonLimitTotal, "the cluster has reached its limit of 1 pod in 5m0s"), 4 * time.Minute, false}},
		{"more than can be remembered is not moved", policy.Limits{PerNode: new(uint(mostMoves + 1))},
			func(l *limits) {
				for range mostMoves {
					moved(l, noon, from("a", "x"))
				}
			}, from("b", "x"),
			answer{held(schemas.ReasonLimitTotal, "the cluster has moved 100000 pods in 5m0s, and no more can be counted"), 2 * time.Minute, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLimits(c.limits)
			c.before(l)
			var got answer
			got.Why, got.Wait, got.OK = l.admits(c.asked, minute(3))
			check(t, "answer", got, c.want)
		})
	}
}

func TestLimitsRememberNothingThatDoesNotCount(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits policy.Limits
	}{{"with a limit, after the window", policy.Limits{PerNode: new(uint(5))}}, {"without a limit", policy.Limits{}}} {
		l := newLimits(c.limits)
		moved(l, noon, from("a", "x"), from("b", "y"))
		l.begin(originOf(from("c", "z")))
		l.end(originOf(from("c", "z")), false, noon)
		l.forget(noon.Add(policy.DefaultWindow))
		want := newLimits(c.limits)
		if len(l.log) != 0 || len(l.total.moved) != 0 || l.total.flying != 0 ||
			!reflect.DeepEqual(l.nodes, want.nodes) || !reflect.DeepEqual(l.namespaces, want.namespaces) {
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
	l := newLimits(rules)
	var done []counted
	var flying []origin
	now, held := noon, 0
	count := func(counts func(origin) bool) (n uint) {
		for _, m := range done {
			if now.Sub(m.at) < rules.Window && counts(m.origin) {
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
			l.end(flying[i], ok, now)
			if ok {
				done = append(done, counted{flying[i], now})
			}
			flying = append(flying[:i], flying[i+1:]...)
			continue
		}
		o := from(string(rune('a'+random.IntN(3))), string(rune('x'+random.IntN(2))))
		at := originOf(o)
		want := count(func(m origin) bool { return m.node == at.node }) < *rules.PerNode &&
			count(func(m origin) bool { return m.namespace == at.namespace }) < *rules.PerNamespace &&
			count(func(origin) bool { return true }) < *rules.Total
		why, wait, got := l.admits(o, now)
		if got != want || got != (wait == 0) || got != (why == Objection{}) {
			t.Fatalf("at %v: got %v, wait %v, %+v, want %v", now.Sub(noon), got, wait, why, want)
		}
		if !got {
			held++
			continue
		}
		l.begin(at)
		flying = append(flying, at)
	}
	if held < 100 || len(done) < 100 {
		t.Errorf("%d were held and %d moved, too few to say anything", held, len(done))
	}
}

func TestAPodThatALimitHoldsIsDeferredAndHoldsBackNoOther(t *testing.T) {
	evicted, rejected := schemas.ReasonEvictionAccepted, schemas.ReasonPodGone
	limited := func(l policy.Limits) Config { return Config{Policy: policy.Policy{Rate: fast.Rate, Limits: l}} }
	handle := func(_ context.Context, o Open, _ noteFunc) (schemas.Verdict, error) {
		time.Sleep(time.Second)
		if o.Strategy == "Stale" {
			return o.Verdict(schemas.Rejected, rejected, ""), nil
		}
		return o.Verdict(schemas.Evicted, evicted, ""), nil
	}
	inBubble(t, limited(policy.Limits{PerNode: new(uint(2))}), handle, func(t *testing.T, b *bench) {
		b.put("Stale", 1, "1")
		b.put("A", 2, "2", "3", "4")
		b.putOn("worker-2", "B", 3, "5")
		time.Sleep(10 * time.Second)
		b.put("C", 4, "6", "7") // the place of the one that was not moved is free again
		time.Sleep(5*time.Minute - 10*time.Second)
		b.put("C", 5, "7") // the window has passed since 2 was moved, but for a second
		time.Sleep(2 * time.Second)
		b.put("C", 6, "8")
		time.Sleep(2 * time.Second)
		limit := schemas.ReasonLimitNode
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-2.3", limit, 0}, {"A-2.4", limit, 0},
			{"A-2.2", evicted, time.Second}, {"B-3.5", evicted, time.Second}, {"Stale-1.1", rejected, time.Second},
			{"C-4.7", limit, 10 * time.Second}, {"C-4.6", evicted, 11 * time.Second},
			{"C-5.7", limit, 5 * time.Minute},
			{"C-6.8", evicted, 5*time.Minute + 3*time.Second},
		})
		check(t, "answers left in the table", b.bus.left(), 0)
	})
}

func TestADeferredPodIsToldTheLimitAndWhenThereIsRoom(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: fast.Rate, Limits: policy.Limits{Total: new(uint(1)), PerNode: new(uint(9))}}}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(500 * ms)
		b.put("A", 2, "2")
		time.Sleep(ms)
		b.SetPolicy(policy.Policy{Rate: fast.Rate, Limits: policy.Limits{PerNode: new(uint(0))}})
		b.put("A", 3, "3")
		time.Sleep(ms)
		got := b.bus.messages(t)
		room := b.start.Add(policy.DefaultWindow).UTC().Format(time.RFC3339)
		check(t, "messages", got, []string{
			"",
			"the cluster has reached its limit of 1 pod in 5m0s; there is room again at " + room,
			"node worker-1 has reached its limit of 0 pods in 5m0s; there is no room until the policy changes",
		})
		check(t, "there is room again", b.bus.again(t, b.start), []time.Duration{0, policy.DefaultWindow, 0})
		check(t, "lines of the log", strings.Count(b.log.String(), "\n"), 0)
	})
}

func TestAProcessThatLeadsAgainRemembersWhatItMoved(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: fast.Rate, Limits: policy.Limits{Total: new(uint(1))}}}
	handle := always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0)
	inBubble(t, cfg, handle, func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(time.Second)
		b.stop()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.lead(ctx, handle) }()
		b.put("A", 2, "2")
		time.Sleep(time.Second)
		cancel()
		check(t, "error of the second Lead", <-ended, nil)
		check(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-1.1", schemas.ReasonEvictionAccepted, 0}, {"A-2.2", schemas.ReasonLimitTotal, time.Second},
		})
	})
}
