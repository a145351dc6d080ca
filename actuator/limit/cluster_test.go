package limit

import (
	"fmt"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// nodes returns that many nodes: some that are not ready, some that were tainted at the given minutes, and good ones.
func nodes(all, unready int, tainted ...int) []cluster.Node {
	list := make([]cluster.Node, all)
	for i := range list {
		list[i] = cluster.Node{Name: fmt.Sprint("node-", i), Ready: i >= unready}
		if k := i - unready; k >= 0 && k < len(tainted) {
			list[i].Tainted = at(tainted[k])
		}
	}
	return list
}

// maintained returns nodes under maintenance; every other one is switched off.
func maintained(n int) []cluster.Node {
	list := nodes(n, 0)
	for i := range list {
		list[i].Maintained, list[i].Ready, list[i].Tainted = true, i%2 == 1, at(0)
	}
	return list
}

// waiting returns replacements that have been pending since the given minutes.
func waiting(since ...int) []time.Time {
	var list []time.Time
	for _, m := range since {
		list = append(list, at(m))
	}
	return list
}

func TestClusterBreaker(t *testing.T) {
	const (
		nodesBad   = schemas.ReasonStormNodes
		pendingBad = schemas.ReasonStormPending
	)
	for _, c := range []struct {
		name   string
		policy policy.ClusterBreaker
		now    ClusterState
		open   []Condition
	}{
		{"no node and no replacement is no storm", policy.DefaultCircuitBreakers().Cluster, ClusterState{Now: at(0)}, nil},
		{"as many nodes as the policy says are one", policy.ClusterBreaker{Nodes: 30},
			ClusterState{Now: at(0), Nodes: nodes(10, 3)},
			[]Condition{{Reason: nodesBad, Message: "3 of 10 nodes went bad: 3 not ready, 0 tainted within 10m0s; moves stop at 30 percent"}}},
		{"fewer are none", policy.ClusterBreaker{Nodes: 30}, ClusterState{Now: at(0), Nodes: nodes(11, 3)}, nil},
		{"nodes that a maintenance holds are none, cordoned or not ready as they may be", policy.ClusterBreaker{Nodes: 30},
			ClusterState{Now: at(0), Nodes: append(nodes(7, 2), maintained(3)...)}, nil},
		{"and count among all", policy.ClusterBreaker{Nodes: 30}, ClusterState{Now: at(0), Nodes: append(nodes(7, 3), maintained(3)...)},
			[]Condition{{Reason: nodesBad, Message: "3 of 10 nodes went bad: 3 not ready, 0 tainted within 10m0s; moves stop at 30 percent"}}},
		{"two nodes are none, however few there are", policy.ClusterBreaker{Nodes: 30}, ClusterState{Now: at(0), Nodes: nodes(2, 2)}, nil},
		{"a share that no cluster reaches is switched on in vain", policy.ClusterBreaker{Nodes: 101}, ClusterState{Now: at(0), Nodes: nodes(9, 9)}, nil},
		{"0 switches it off", policy.ClusterBreaker{}, ClusterState{Now: at(0), Nodes: nodes(10, 10)}, nil},
		{"a taint counts for ten minutes, and the storm ends when so many are older that the share is too small", policy.ClusterBreaker{Nodes: 40},
			ClusterState{Now: at(9), Nodes: nodes(10, 2, 4, 0, 7)},
			[]Condition{{Reason: nodesBad, Message: "5 of 10 nodes went bad: 2 not ready, 3 tainted within 10m0s; moves stop at 40 percent"}}},
		{"and not for longer", policy.ClusterBreaker{Nodes: 50}, ClusterState{Now: at(10), Nodes: nodes(10, 2, 4, 0, 7)}, nil},
		{"a node that is not ready does not get better with time, however old its taint", policy.ClusterBreaker{Nodes: 30},
			ClusterState{Now: at(60), Nodes: []cluster.Node{{Tainted: at(0)}, {Tainted: at(0)}, {Tainted: at(0)}, {Ready: true}}},
			[]Condition{{Reason: nodesBad, Message: "3 of 4 nodes went bad: 3 not ready, 0 tainted within 10m0s; moves stop at 30 percent"}}},
		{"a storm of taints among nodes that are not ready outlasts them", policy.ClusterBreaker{Nodes: 30},
			ClusterState{Now: at(1), Nodes: nodes(10, 3, 0)},
			[]Condition{{Reason: nodesBad, Message: "4 of 10 nodes went bad: 3 not ready, 1 tainted within 10m0s; moves stop at 30 percent"}}},
		{"replacements that wait for long are one", policy.ClusterBreaker{Pending: 2, PendingFor: 5 * time.Minute},
			ClusterState{Now: at(8), Pending: waiting(4, 3, 0)},
			[]Condition{{Reason: pendingBad, Message: "2 replacements have been waiting for 5m0s or longer; moves stop at 2"}}},
		{"a single one can be", policy.ClusterBreaker{Pending: 1, PendingFor: 5 * time.Minute},
			ClusterState{Now: at(8), Pending: waiting(0)},
			[]Condition{{Reason: pendingBad, Message: "1 replacement has been waiting for 5m0s or longer; moves stop at 1"}}},
		{"it begins when the last of so many has waited for so long", policy.ClusterBreaker{Pending: 2, PendingFor: 5 * time.Minute},
			ClusterState{Now: at(7), Pending: waiting(4, 3, 0)}, nil},
		{"too few are none, however long they wait", policy.ClusterBreaker{Pending: 4, PendingFor: 5 * time.Minute},
			ClusterState{Now: at(7), Pending: waiting(4, 3, 0)}, nil},
		{"0 replacements switch it off", policy.ClusterBreaker{}, ClusterState{Now: at(60), Pending: waiting(0, 0)}, nil},
		{"several conditions hold at once", policy.ClusterBreaker{Nodes: 30, Pending: 1, PendingFor: time.Minute},
			ClusterState{Now: at(8), Nodes: nodes(4, 0, 0, 1, 2), Pending: waiting(0)},
			[]Condition{
				{Reason: nodesBad, Message: "3 of 4 nodes went bad: 0 not ready, 3 tainted within 10m0s; moves stop at 30 percent"},
				{Reason: pendingBad, Message: "1 replacement has been waiting for 1m0s or longer; moves stop at 1"},
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewClusterBreaker(c.policy)
			open, changed := s.Look(c.now)
			expect.Equal(t, "open", unsince(open), c.open)
			expect.Equal(t, "changed", changed, len(c.open) > 0)
		})
	}
}

func TestClusterBreakerChanges(t *testing.T) {
	s := NewClusterBreaker(policy.ClusterBreaker{Nodes: 30, Pending: 1, PendingFor: time.Minute})
	var got []bool
	for _, now := range []ClusterState{
		{Now: at(0), Nodes: nodes(10, 2)},
		{Now: at(1), Nodes: nodes(10, 3)},
		{Now: at(2), Nodes: nodes(10, 4)},
		{Now: at(3), Nodes: nodes(10, 4), Pending: waiting(0)},
		{Now: at(4), Nodes: nodes(10, 0), Pending: waiting(0)},
		{Now: at(5), Nodes: nodes(10, 0), Pending: waiting(0)},
		{Now: at(6), Nodes: nodes(10, 0)},
		{Now: at(7), Nodes: nodes(10, 0)},
		{Now: at(8), Nodes: nodes(10, 3)},
		{Now: at(9), Nodes: nodes(10, 0), Pending: waiting(0)}, // another one in its place
	} {
		_, changed := s.Look(now)
		got = append(got, changed)
	}
	expect.Equal(t, "changed", got, []bool{false, true, false, true, true, false, true, false, true, true})
}

// answer is the state of a ClusterBreaker at a moment.
type answer struct {
	Open  []Condition
	Trial bool
}

func TestClusterBreakerCalls(t *testing.T) {
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	// calls makes one call each second: x fails, o succeeds.
	calls := func(s *ClusterBreaker, from int, ends string) {
		for i, end := range ends {
			s.Called([]string{"a", "b"}[i%2], end == 'x', end == 'x', second(from+i))
		}
	}
	tooMany := func(failed int, until string) []Condition {
		return []Condition{{Reason: schemas.ReasonStormFailures, Message: fmt.Sprintf(
			"%d of the latest 20 evictions failed, and 50 percent are too many; one is tried at %s", failed, until)}}
	}
	again := []Condition{{Reason: schemas.ReasonStormFailures, Message: "the first eviction after a pause failed; one is tried at 2026-03-01T12:01:21Z"}}
	const twenty = "xxxxxxxxxxoooooooooo"
	for _, c := range []struct {
		name  string
		story func(*ClusterBreaker)
		at    int // seconds after noon
		want  answer
	}{
		{"half of twenty are too many", func(s *ClusterBreaker) { calls(s, 0, twenty) }, 20,
			answer{tooMany(10, "2026-03-01T12:00:49Z"), true}},
		{"fewer are not", func(s *ClusterBreaker) { calls(s, 0, "xxxxxxxxxooooooooooo") }, 20, answer{}},
		{"nineteen calls say nothing yet", func(s *ClusterBreaker) { calls(s, 0, "xxxxxxxxxxxxxxxxxxx") }, 20, answer{}},
		{"only the latest twenty count", func(s *ClusterBreaker) { calls(s, 0, "xxxxxxxxx"+"oooooooooooooooooooo"+"xxxxxxxxx") }, 40, answer{}},
		{"and all of those", func(s *ClusterBreaker) { calls(s, 0, "ooooooooooooooooooooxxxxxxxxxx") }, 30,
			answer{tooMany(10, "2026-03-01T12:00:59Z"), true}},
		{"twenty calls within ten minutes are enough", func(s *ClusterBreaker) {
			s.Called("c", true, true, second(0))
			calls(s, 582, "xxxxxxxxxxxxxxxxxxx") // the last at 600 seconds
		}, 601, answer{tooMany(20, "2026-03-01T12:10:30Z"), true}},
		{"twenty calls in more than ten minutes say nothing about the present", func(s *ClusterBreaker) {
			s.Called("c", true, true, second(0))
			calls(s, 583, "xxxxxxxxxxxxxxxxxxx") // the last at 601 seconds
		}, 602, answer{}},
		{"the pause is over after 30 seconds, and one call is tried", func(s *ClusterBreaker) { calls(s, 0, twenty) }, 49, answer{Trial: true}},
		{"calls that were begun before the pause decide nothing", func(s *ClusterBreaker) { calls(s, 0, twenty+"xoxoxo") }, 49, answer{Trial: true}},
		{"the trial waits for as long as no call is made", func(s *ClusterBreaker) { calls(s, 0, twenty) }, 100_000, answer{Trial: true}},
		{"if it fails, there is a pause at once", func(s *ClusterBreaker) { calls(s, 0, twenty); s.Called("c", true, true, second(51)) }, 52,
			answer{again, true}},
		{"if not, the circuit breaker is closed", func(s *ClusterBreaker) { calls(s, 0, twenty); s.Called("c", false, false, second(51)) }, 52, answer{}},
		{"and starts a new count: eighteen more failures are not enough", func(s *ClusterBreaker) {
			calls(s, 0, twenty)
			calls(s, 51, "oxxxxxxxxxxxxxxxxxx")
		}, 90, answer{}},
		{"but nineteen are", func(s *ClusterBreaker) {
			calls(s, 0, twenty)
			calls(s, 51, "oxxxxxxxxxxxxxxxxxxx")
		}, 90, answer{tooMany(19, "2026-03-01T12:01:40Z"), true}},
		{"a new policy keeps the pause", func(s *ClusterBreaker) {
			calls(s, 0, twenty)
			s.Set(policy.ClusterBreaker{Failures: 90})
		}, 20, answer{tooMany(10, "2026-03-01T12:00:49Z"), true}},
		{"one without a limit ends it, and nothing is counted", func(s *ClusterBreaker) {
			calls(s, 0, twenty)
			s.Set(policy.ClusterBreaker{})
			calls(s, 20, "xxxxxxxxxxxxxxxxxxx")
			s.Set(policy.ClusterBreaker{Failures: 1})
			s.Called("c", true, true, second(40))
		}, 41, answer{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewClusterBreaker(policy.ClusterBreaker{Failures: 50})
			c.story(s)
			now := ClusterState{Now: second(c.at)}
			open, _ := s.Look(now)
			expect.Equal(t, "the circuit breaker", answer{unsince(open), s.Trial()}, c.want)
		})
	}
}

// TestClusterBreakerTrials lets the trials after a pause fail.
func TestClusterBreakerTrials(t *testing.T) {
	const pause = policy.ClusterBreakerPause
	s := NewClusterBreaker(policy.ClusterBreaker{Failures: 50})
	for i := range 20 {
		s.Called([]string{"a", "b"}[i%2], true, false, noon)
	}
	refused := func(after time.Duration) map[string]bool {
		got := map[string]bool{}
		for _, namespace := range []string{"a", "b", "c"} {
			why, _ := s.Refuses(namespace, noon.Add(after))
			got[namespace] = why != ""
		}
		return got
	}
	expect.Equal(t, "refused at the first trial", refused(pause), map[string]bool{"a": false, "b": false, "c": false})
	s.Called("a", true, false, noon.Add(pause))
	expect.Equal(t, "refused at the second trial", refused(2*pause), map[string]bool{"a": true, "b": false, "c": false})
	expect.Equal(t, "refused without a second trial", refused(3*pause), map[string]bool{"a": false, "b": false, "c": false})
	s.Called("b", true, false, noon.Add(2*pause))
	expect.Equal(t, "refused at the third trial", refused(3*pause), map[string]bool{"a": true, "b": true, "c": false})
	s.Called("c", false, false, noon.Add(3*pause))
	expect.Equal(t, "refused after a trial that succeeded", refused(3*pause), map[string]bool{"a": false, "b": false, "c": false})
}

// unsince returns the conditions without their times.
func unsince(list []Condition) []Condition {
	for i := range list {
		list[i].Since = time.Time{}
	}
	return list
}

// TestClusterBreakerRefusals refuses all calls in some namespaces while the API server works. Only these namespaces stop.
func TestClusterBreakerRefusals(t *testing.T) {
	s := NewClusterBreaker(policy.DefaultCircuitBreakers().Cluster)
	for i := range 100 {
		s.Called([]string{"x", "y"}[i%2], false, true, noon)
	}
	s.Called("z", false, false, noon)
	if open, _ := s.Look(ClusterState{Now: noon}); open != nil {
		t.Errorf("open: got %+v, want none", open)
	}
	for namespace, want := range map[string]bool{"x": true, "y": true, "z": false} {
		if why, _ := s.Refuses(namespace, noon); (why != "") != want {
			t.Errorf("namespace %s: got %q, want a refusal: %v", namespace, why, want)
		}
	}
}
