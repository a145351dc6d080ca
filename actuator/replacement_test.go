package actuator

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// evicted returns the move of wish, of Deployment web/api: begun at noon, with three known pods, and accepted a second
// later.
func evicted() *inFlight {
	return &inFlight{
		record: record{Intent: wish(), Method: schemas.MethodEviction, Workload: &api, Begun: noon, Moved: noon.Add(time.Second)},
		at:     limitKeys{"worker-1", "web", "uid-api"}, seen: 3, reported: true,
	}
}

// numbered is a view of pods of one workload by creation. Pods with a one-digit name have that number.
type numbered struct {
	noView
	pods []cluster.Pod
}

func (n numbered) Pods(types.UID) []cluster.Pod { return n.pods }

func (n numbered) Pod(uid types.UID) (cluster.Pod, bool) {
	i := slices.IndexFunc(n.pods, func(p cluster.Pod) bool { return p.Ref.UID == uid })
	if i < 0 {
		return cluster.Pod{}, false
	}
	return n.pods[i], true
}

func (numbered) Seen(uid types.UID) uint64 {
	if n := uid[len("uid-"):]; len(n) == 1 {
		return uint64(n[0] - '0')
	}
	return 9
}

// replacementAmong returns the pod that a session takes for the replacement of a move. Those in taken replace other
// moves.
func replacementAmong(t *testing.T, x *inFlight, pods []cluster.Pod, taken map[types.UID]bool) types.UID {
	t.Helper()
	a := New(Config{View: numbered{pods: pods}, Log: slog.New(slog.DiscardHandler)})
	s := newSession(t.Context(), func() bool { return false }, a, nil, recorder{})
	defer s.queues.shutDown()
	s.moves.add(x, numbered{})
	for uid := range taken {
		w := s.moves.workloads[x.at.workload]
		if w.replacements[uid] = x; uid != x.replacement {
			w.replacements[uid] = evicted()
		}
	}
	s.overBy(x, noon)
	s.matchAll(x.at.workload, s.moves.workloads[x.at.workload])
	return x.replacement
}

func TestReplacementChoice(t *testing.T) {
	leaving := replica("5", "worker-2", 5)
	leaving.Leaving = true
	set := func(x *inFlight) {
		x.Workload = &schemas.ObjectRef{Kind: "StatefulSet", Namespace: "web", Name: "api", UID: "uid-api"}
	}
	again := replica("api-0", "worker-2", 5) // with the same name, as in a StatefulSet
	unknown := func(x *inFlight) { x.seen = 0 }
	for _, c := range []struct {
		name  string
		but   func(*inFlight)
		pods  []cluster.Pod // by creation; pods with a one-digit name have that number
		taken map[types.UID]bool
		want  string // empty means none
	}{
		{name: "there is none yet"},
		{name: "pods that were there before are none", pods: []cluster.Pod{replica("1", "worker-1", -9), replica("3", "worker-1", -1)}},
		{name: "one that came after", pods: []cluster.Pod{replica("3", "worker-1", -1), replica("4", "worker-2", 1)}, want: "4"},
		{name: "the oldest of them", pods: []cluster.Pod{replica("4", "worker-2", 1), replica("5", "worker-2", 2)}, want: "4"},
		{name: "not the replacement of another move", pods: []cluster.Pod{replica("4", "worker-2", 1), replica("5", "worker-2", 2)},
			taken: map[types.UID]bool{"uid-4": true}, want: "5"},
		{name: "not one that is being deleted", pods: []cluster.Pod{leaving, replica("6", "worker-2", 6)}, want: "6"},
		{name: "the one that was found before, whichever is older", but: func(x *inFlight) { x.replacement = "uid-5" },
			pods:  []cluster.Pod{replica("4", "worker-2", 1), replica("5", "worker-2", 2)},
			taken: map[types.UID]bool{"uid-5": true}, want: "5"},
		{name: "another one when that is being deleted", but: func(x *inFlight) { x.replacement = "uid-5" },
			pods: []cluster.Pod{leaving, replica("6", "worker-2", 6)}, taken: map[types.UID]bool{"uid-5": true}, want: "6"},
		{name: "another one when that is gone", but: func(x *inFlight) { x.replacement = "uid-5" },
			pods: []cluster.Pod{replica("6", "worker-2", 6)}, taken: map[types.UID]bool{"uid-5": true}, want: "6"},
		{name: "of a StatefulSet not one of another name", but: set, pods: []cluster.Pod{replica("4", "worker-2", 1)}},
		{name: "of a StatefulSet the one of the same name", but: set, pods: []cluster.Pod{replica("4", "worker-2", 1), again}, want: "api-0"},
		{name: "of an unknown workload, with any name", but: func(x *inFlight) { x.Workload = nil },
			pods: []cluster.Pod{replica("4", "worker-2", 1)}, want: "4"},
		{name: "never the pod itself", but: unknown, pods: []cluster.Pod{{Ref: wish().Pod, Created: noon}}},
		{name: "after a restart, an older pod is no replacement", but: unknown,
			pods: []cluster.Pod{replica("1", "worker-1", -3)}},
		{name: "after a restart one that was made since then, as far as clocks agree", but: unknown,
			pods: []cluster.Pod{replica("1", "worker-1", -3), replica("2", "worker-2", -2)}, want: "2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := evicted()
			if c.but != nil {
				c.but(x)
			}
			expect.Equal(t, "replacement", strings.TrimPrefix(string(replacementAmong(t, x, c.pods, c.taken)), "uid-"), c.want)
		})
	}
}

func TestMoveEnds(t *testing.T) {
	here := replica("0", "worker-1", -60)
	here.Ref, here.Ready, here.Leaving = wish().Pod, false, true
	stopped := here
	stopped.Ended = true
	ready := replica("1", "worker-2", 2)
	back := replica("1", "worker-1", 2)
	done := ready
	done.Ready, done.Ended = false, true
	pending := replica("1", "", 2)
	pending.Ready, pending.Why = false, "0/3 nodes are available"
	enough, short := cluster.Tally{Wanted: 3, Ready: 3}, cluster.Tally{Wanted: 3, Ready: 2}
	var none cluster.Pod
	alone := func(x *inFlight) { x.at.workload = "" }
	slow := func(x *inFlight) { x.Left = x.Moved.Add(time.Hour) }

	// over is the end of a move that long after its acceptance.
	over := func(after time.Duration, reason schemas.ReasonCode, by *cluster.Pod, message string) ended {
		e := ended{reason: reason, message: message, settlement: schemas.Settlement{Seconds: after.Seconds()}}
		if by != nil {
			e.settlement.Replacement, e.settlement.Node = &by.Ref, by.Node
		}
		return e
	}
	for _, c := range []struct {
		name             string
		but              func(*inFlight)
		pod, replacement cluster.Pod
		tally            cluster.Tally
		after            time.Duration
		want             ended // the zero value means that it goes on
	}{
		{"a replacement that is ready elsewhere", nil, none, ready, short, 3200 * ms,
			over(3200*ms, schemas.ReasonReplaced, &ready, "web/1 runs on worker-2, after 3.2s")},
		{"one that is ready before the pod is gone", nil, here, ready, short, 3 * time.Second,
			over(3*time.Second, schemas.ReasonReplaced, &ready, "web/1 runs on worker-2, after 3s")},
		{"a replacement on the old node", nil, none, back, enough, time.Second,
			over(time.Second, schemas.ReasonCameBack, &back, "web/1 runs on worker-1, after 1s")},
		{"one there of a strategy that only wants a new pod", func(x *inFlight) { x.Intent.Strategy = "Renewal" }, none, back, enough,
			time.Second, over(time.Second, schemas.ReasonReplaced, &back, "web/1 runs on worker-1, after 1s")},
		{"one that has done its work already", nil, none, done, enough, time.Second,
			over(time.Second, schemas.ReasonReplaced, &done, "web/1 runs on worker-2, after 1s")},
		{"an unready replacement delays the end", nil, none, pending, short, followFor - 1, ended{}},
		{"and not for ever", nil, none, pending, short, followFor,
			over(followFor, schemas.ReasonReplacementPending, &pending, "web/1 is not ready: 0/3 nodes are available")},
		{"a pod without a controller has no replacement", alone, none, none, cluster.Tally{}, 0,
			over(0, schemas.ReasonNotReplaced, nil, "the pod is gone and has no controller to replace it")},
		{"a terminating pod delays the end", alone, here, none, cluster.Tally{}, time.Second, ended{}},
		{"a pod that has stopped is gone", alone, stopped, none, cluster.Tally{}, time.Second,
			over(time.Second, schemas.ReasonNotReplaced, nil, "the pod is gone and has no controller to replace it")},
		{"a missing replacement delays the end", nil, none, none, enough, replacedWithin - 1, ended{}},
		{"and not when the workload has all of its pods", nil, none, none, enough, replacedWithin,
			over(replacedWithin, schemas.ReasonNotReplaced, nil, "no pod replaced it; 3 of 3 pods are ready")},
		{"a desired replacement delays the end longer", nil, none, none, short, followFor - 1, ended{}},
		{"and given up", nil, none, none, short, followFor, over(followFor, schemas.ReasonNotReplaced, nil, "no replacement was made")},
		{"a stopping pod delays the end", nil, here, none, enough, followFor - 1, ended{}},
		{"and given up, too", nil, here, none, enough, followFor,
			over(followFor, schemas.ReasonReplacementPending, nil, "the pod is still being deleted")},
		{"a slow move has the whole time for a replacement", slow, none, none, enough, time.Hour + replacedWithin - 1, ended{}},
		{"and no longer", slow, none, none, enough, time.Hour + replacedWithin,
			over(time.Hour+replacedWithin, schemas.ReasonNotReplaced, nil, "no pod replaced it; 3 of 3 pods are ready")},
		{"its replacement has the whole time to be ready", slow, none, pending, short, time.Hour + followFor - 1, ended{}},
		{"and no longer, too", slow, none, pending, short, time.Hour + followFor,
			over(time.Hour+followFor, schemas.ReasonReplacementPending, &pending, "web/1 is not ready: 0/3 nodes are available")},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := evicted()
			if c.but != nil {
				c.but(x)
			}
			got, over := settled(x, policy.Traits{RenewsPods: x.Intent.Strategy == "Renewal"}, c.pod, c.replacement, c.tally, x.Moved.Add(c.after))
			expect.Equal(t, "end", got, c.want)
			expect.Equal(t, "over", over, c.want.reason != "")
		})
	}
}

func TestSettledVerdictFields(t *testing.T) {
	x := evicted()
	x.Instead = &schemas.Instead{Method: schemas.MethodRestart, Reason: schemas.ReasonRestartVolume, Message: "one disk"}
	settlement := schemas.Settlement{Node: "worker-2", Seconds: 3}
	want := decidedOn(wish(), schemas.Settled, schemas.ReasonReplaced, "done")
	want.Method, want.Instead, want.Workload, want.Settlement = schemas.MethodEviction, x.Instead, &api, &settlement
	expect.Equal(t, "verdict", x.verdict(ended{schemas.ReasonReplaced, "done", settlement}), want)
}

func TestSiblingAfterRestart(t *testing.T) {
	made := func(name string, after time.Duration) cluster.Pod {
		p := replica(name, "worker-1", 0)
		p.Created = noon.Add(after)
		return p
	}
	sibling, twin, later := made("1", 0), made("2", time.Second), made("3", 2*time.Second)
	x := evicted()
	x.seen, x.Newest, x.Begun = 0, twin.Created, noon.Add(1500*time.Millisecond)
	expect.Equal(t, "a replacement among the siblings", replacementAmong(t, x, []cluster.Pod{sibling, twin}, nil), "")
	expect.Equal(t, "the replacement", replacementAmong(t, x, []cluster.Pod{sibling, twin, later}, nil), later.Ref.UID)
}

// A pod whose move takes hours can become ready again. It is still about to go then.
func TestReadyAgainDuringMove(t *testing.T) {
	x := evicted()
	view := &numbered{pods: []cluster.Pod{{Ref: x.Intent.Pod, Created: noon, Ready: true}}}
	a := New(Config{View: view, Log: slog.New(slog.DiscardHandler)})
	s := newSession(t.Context(), func() bool { return false }, a, nil, recorder{})
	defer s.queues.shutDown()
	s.moves.add(x, view)
	var going []int
	for _, ready := range []bool{true, false, true} {
		view.pods[0].Ready = ready
		s.learn(cluster.Change{Workload: x.at.workload, Pod: x.uid()})
		going = append(going, len(s.moves.workloads[x.at.workload].going))
	}
	expect.Equal(t, "pods about to go", going, []int{1, 0, 1})
}
