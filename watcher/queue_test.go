package watcher

import (
	"context"
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/scopetest"
	"github.com/rehome-dev/rehome/watcher/scope"
)

func key(name string) scope.Key {
	return scope.Key{Profile: "p", Strategy: "s", Kind: schemas.NodeKind, Name: name}
}

func cause(kind string) schemas.Cause { return schemas.Cause{Kind: schemas.CauseKind(kind)} }

// taken is the part of a pending evaluation that tests compare.
type taken struct {
	key    string
	causes []schemas.Cause
	first  string
}

func takeAll(q *queue, max int) []taken {
	var list []taken
	for _, p := range q.take(max) {
		list = append(list, taken{p.key.Name, p.causes, p.first.ID})
	}
	return list
}

func TestQueueJoinsCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := newQueue(t.Context(), time.Now), time.Now()
		q.add(key("a"), trigger{at: start.Add(10 * time.Millisecond), cause: cause("one"), event: schemas.Event{ID: "1"}})
		time.Sleep(5 * time.Millisecond)
		q.add(key("a"), trigger{at: time.Now().Add(10 * time.Millisecond), cause: cause("two"), event: schemas.Event{ID: "2"}})
		got := takeAll(q, 9)
		want := []taken{{"a", []schemas.Cause{cause("one"), cause("two")}, "1"}}
		expect.Equal(t, "result", got, want)
		if waited := time.Since(start); waited != 10*time.Millisecond {
			t.Errorf("settled after %v, want 10ms from the first cause on", waited)
		}
	})
}

func TestQueueUrgentCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := newQueue(t.Context(), time.Now), time.Now()
		q.add(key("a"), trigger{at: start.Add(time.Minute), cause: cause("retry"), event: schemas.Event{}})
		go func() {
			time.Sleep(time.Second)
			q.add(key("a"), trigger{at: time.Now(), cause: cause("freed"), event: schemas.Event{}})
		}()
		got := takeAll(q, 9)
		want := []taken{{"a", []schemas.Cause{cause("retry"), cause("freed")}, ""}}
		if !reflect.DeepEqual(got, want) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want %v after 1s", got, time.Since(start), want)
		}
	})
}

func TestQueueDueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, now := newQueue(t.Context(), time.Now), time.Now()
		for i, name := range []string{"c", "a", "b"} {
			q.add(key(name), trigger{at: now.Add(time.Duration([]int{3, 1, 2}[i]) * time.Second), cause: cause("x"), event: schemas.Event{}})
		}
		time.Sleep(time.Minute)
		x := []schemas.Cause{cause("x")}
		expect.Equal(t, "taken", takeAll(q, 2), []taken{{"a", x, ""}, {"b", x, ""}})
		expect.Equal(t, "result", takeAll(q, 2), []taken{{"c", x, ""}})
	})
}

func TestQueueRequeueKeepsNewCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t.Context(), time.Now)
		q.add(key("a"), trigger{at: time.Now(), cause: cause("one"), event: schemas.Event{ID: "1"}})
		q.add(key("b"), trigger{at: time.Now(), cause: cause("one"), event: schemas.Event{ID: "1"}})
		list := q.take(9)
		q.add(key("a"), trigger{at: time.Now().Add(time.Second), cause: cause("two"), event: schemas.Event{ID: "2"}})
		q.requeue(list, time.Now().Add(time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		got := map[string]taken{}
		for _, p := range takeAll(q, 9) {
			got[p.key] = p
		}
		want := map[string]taken{
			"a": {"a", []schemas.Cause{cause("one"), cause("two")}, "1"},
			"b": {"b", []schemas.Cause{cause("one")}, "1"},
		}
		expect.Equal(t, "result", got, want)
	})
}

func TestCauseLimit(t *testing.T) {
	q := newQueue(t.Context(), time.Now)
	for range 10 * schemas.MaxCauses {
		q.add(key("a"), trigger{at: time.Now(), cause: cause("x"), event: schemas.Event{}})
	}
	expect.Equal(t, "causes", len(q.take(1)[0].causes), schemas.MaxCauses)
}

// Each resync finds the same due time of a pod again.
func TestQueueRepeatedCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, due := newQueue(t.Context(), time.Now), time.Now().Add(time.Hour)
		first, later := schemas.Cause{Kind: schemas.CauseDue, Time: due}, schemas.Cause{Kind: schemas.CauseDue, Time: due.Add(1)}
		for _, c := range []schemas.Cause{first, first, later} {
			q.add(key("a"), trigger{at: due, cause: c})
		}
		got, want := takeAll(q, 9), []taken{{"a", []schemas.Cause{first, later}, ""}}
		expect.Equal(t, "result", got, want)
	})
}

// A workqueue cannot remove a key, so a removed key must not stay in it until its due time.
func TestQueueRemovedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := newQueue(t.Context(), time.Now), time.Now()
		due := start.Add(7 * 24 * time.Hour)
		q.add(key("gone"), trigger{at: due, cause: cause("due")})
		q.add(key("now"), trigger{at: start, cause: cause("changed")})
		q.remove(key("gone"), start)
		q.remove(key("now"), start)
		q.remove(key("unknown"), start)
		expect.Equal(t, "taken", takeAll(q, 9), []taken{{"now", []schemas.Cause{cause("changed")}, ""}})
		time.Sleep(longestWait)
		synctest.Wait()
		if got := q.keys.Len(); got != 1 {
			t.Errorf("after %v: %d keys have left the timers, want 1", longestWait, got)
		}
		q.add(key("left"), trigger{at: due, cause: cause("due")})
		got, want := takeAll(q, 9), []taken{{"left", []schemas.Cause{cause("due")}, ""}}
		if !reflect.DeepEqual(got, want) || !time.Now().Equal(due) {
			t.Errorf("got %v after %v, want %v after %v", got, time.Since(start), want, due.Sub(start))
		}
	})
}

func TestTakingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		expect.Equal(t, "taken", newQueue(ctx, time.Now).take(1), nil)
	})
}

func TestQueueRequeueDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := newQueue(t.Context(), time.Now), time.Now()
		q.add(key("a"), trigger{at: start, cause: cause("one"), event: schemas.Event{ID: "1"}})
		list := q.take(9)
		q.add(key("a"), trigger{at: start.Add(time.Hour), cause: cause("due"), event: schemas.Event{}})
		q.requeue(list, start.Add(time.Second))
		got := takeAll(q, 9)
		want := []taken{{"a", []schemas.Cause{cause("one"), cause("due")}, "1"}}
		if !reflect.DeepEqual(got, want) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, want %v after 1s", got, time.Since(start), want)
		}
	})
}

func TestThrottle(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		time.Microsecond: 0, 10 * time.Millisecond: 200 * time.Millisecond, 4 * time.Second: 10 * time.Second,
	} {
		if got := throttle(took); got != want {
			t.Errorf("after a build of %v: got %v, want %v", took, got, want)
		}
	}
}

// delayedArgs are the arguments of a strategy whose scope takes a second to build.
type delayedArgs struct{ scopetest.Args }

func (*delayedArgs) Sources([]schemas.NodeUsage) []string {
	time.Sleep(time.Second)
	return nil
}

// At a resync of a large cluster, all groups are due at once.
func TestSlowGroupsDoNotDelayNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := policy.Strategy{Name: "groups", Scope: schemas.UsageKind, NewArgs: func() policy.Args { return &delayedArgs{} }}
		var p policy.Policy
		for _, name := range []string{"a", "b", "c"} {
			p.Profiles = append(p.Profiles, policy.Profile{Name: name, Strategies: []policy.Enabled{
				{Strategy: groups, Args: json.RawMessage(`{}`)}, {Strategy: nodesStrategy(), Args: json.RawMessage(`{}`)},
			}})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := testSession(ctx, testWatcher(view(t, p, []*corev1.Node{tenCores("n1"), tenCores("n2")}, nil), &collected{}))
		add := func(strategy int, name string) {
			s.queue.add(s.policy.Strategies[strategy].Key(name), trigger{at: time.Now()})
		}
		var built [][]string
		build := func() {
			synctest.Wait()
			var keys []string
			due := s.queue.take(batch)
			s.Reconcile(due, time.Now())
			for _, item := range due {
				if s.queue.items[item.key] == nil {
					keys = append(keys, item.key.Profile+" "+item.key.Name)
				}
			}
			built = append(built, keys)
		}
		add(0, scope.Cluster)
		add(2, scope.Cluster)
		add(4, scope.Cluster)
		add(1, "n1")
		build()
		add(1, "n2")
		build()
		build()
		want := [][]string{{"a n1", "a cluster"}, {"a n2", "b cluster"}, {"c cluster"}}
		expect.Equal(t, "built", built, want)
	})
}

func TestQueueGroupsDoNotStarve(t *testing.T) {
	q := newGroupsLast()
	var want []scope.Key
	for i := range 2 * groupTurn {
		group := scope.Key{Profile: "p", Strategy: "s", Kind: schemas.UsageKind, Name: strconv.Itoa(i)}
		other := key(strconv.Itoa(i))
		if q.Push(other); i < 3 {
			q.Push(group)
		}
		if i == groupTurn-1 || i == 2*groupTurn-2 {
			want = append(want, scope.Key{Profile: "p", Strategy: "s", Kind: schemas.UsageKind, Name: strconv.Itoa(i / groupTurn)})
		}
		want = append(want, other)
	}
	want = append(want, scope.Key{Profile: "p", Strategy: "s", Kind: schemas.UsageKind, Name: "2"})
	var got []scope.Key
	for q.Len() > 0 {
		got = append(got, q.Pop())
	}
	expect.Equal(t, "result", got, want)
}
