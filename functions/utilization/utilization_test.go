package utilization_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// strategy is one of the two.
type strategy interface {
	policy.Args
	policy.Gauged
	Decide(schemas.UsageScope) []schemas.Intent
}

// each calls do with both strategies many times, under random arguments and in random clusters.
func each(t *testing.T, do func(r random, s strategy, scope schemas.UsageScope, rules rules)) {
	t.Helper()
	r := random{randtest.New(t)}
	for range 700 {
		low, high := r.low(), r.high()
		scope := r.cluster(low.Load().Source)
		do(r, low, scope, rulesOfLow(low, scope))
		scope = r.cluster(policy.LoadRequests)
		do(r, high, scope, rulesOfHigh(high, scope))
	}
}

// leaving returns the pods of an answer.
func leaving(scope schemas.UsageScope, intents []schemas.Intent) (pods []schemas.UsingPod) {
	for _, m := range intents {
		i := slices.IndexFunc(scope.Pods, func(p schemas.UsingPod) bool { return p.Pod.UID == m.Pod.UID })
		pods = append(pods, scope.Pods[i])
	}
	return pods
}

func TestTargetPerMove(t *testing.T) {
	moved := 0
	each(t, func(_ random, s strategy, scope schemas.UsageScope, rules rules) {
		if err := s.Validate(); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		sources, targets := rules.groups()
		var names []string
		for _, n := range sources {
			names = append(names, n.Name)
		}
		if rules.perNode != nil && *rules.perNode == 0 {
			names = nil
		}
		if got := s.Sources(scope.Nodes); !slices.Equal(got, names) {
			t.Fatalf("%s\n%s\nsources: got %q, want %q", expect.ToJSON(t, s), expect.ToJSON(t, scope), got, names)
		}
		intents := s.Decide(scope)
		for _, m := range intents {
			if !strings.HasPrefix(m.Reason, m.Node+" is ") || !strings.Contains(m.Reason, " % of ") {
				t.Fatalf("reason %q", m.Reason)
			}
		}
		for _, p := range leaving(scope, intents) {
			if !rules.may(p) || !rules.placed([]schemas.UsingPod{p}, rules.places(targets)) || !slices.Contains(names, p.Pod.Spec.NodeName) {
				t.Fatalf("%s\n%s\nmoves %s, which no target can take or which must not leave", expect.ToJSON(t, s), expect.ToJSON(t, scope), p.Pod.Name)
			}
		}
		moved += len(intents)
	})
	if moved == 0 {
		t.Error("no pod moved in any round: the test tests nothing")
	}
}

// small keeps the first nodes and pods of a scope, so that an exhaustive search is quick. Its pods cost the same to
// move, and none is terminating.
func small(scope schemas.UsageScope) schemas.UsageScope {
	scope.Nodes = scope.Nodes[:min(len(scope.Nodes), 6)]
	kept := map[string]int{}
	scope.Pods = slices.DeleteFunc(slices.Clone(scope.Pods), func(p schemas.UsingPod) bool {
		known := slices.ContainsFunc(scope.Nodes, func(n schemas.NodeUsage) bool { return n.Name == p.Pod.Spec.NodeName })
		kept["all"]++
		return !known || kept["all"] > 12
	})
	for i := range scope.Pods {
		p := &scope.Pods[i].Pod
		p.Spec.Priority, p.Status.QOSClass, p.DeletionTimestamp = nil, corev1.PodQOSBurstable, nil
	}
	return scope
}

// TestFewestMoves searches all sets of moves in worlds of at most six nodes and twelve pods.
func TestFewestMoves(t *testing.T) {
	r := random{randtest.New(t)}
	worlds, relievedNodes, more := 0, 0, 0
	for worlds < 2000 {
		var s strategy
		low, high := r.low(), r.high()
		scope := small(r.cluster(policy.LoadRequests))
		var rules rules
		if s, rules = high, rulesOfHigh(high, scope); r.IntN(2) == 0 {
			s, rules = low, rulesOfLow(low, scope)
		}
		if rules.blind {
			continue
		}
		worlds++
		sources, targets := rules.groups()
		left := leaving(scope, s.Decide(scope))
		if !rules.placed(left, rules.places(targets)) {
			t.Fatalf("%s\n%s\nno way to place all of %d pods", expect.ToJSON(t, s), expect.ToJSON(t, scope), len(left))
		}
		relieved := map[string]bool{}
		for _, n := range sources {
			if rules.relieved(n, left) && !rules.relieved(n, nil) {
				relieved[n.Name] = true
				relievedNodes++
			}
		}
		if len(relieved) == 0 {
			continue // what moves helps, but no node is done with it
		}
		var needed []schemas.UsingPod // the moves of the relieved nodes
		for _, p := range left {
			if relieved[p.Pod.Spec.NodeName] {
				needed = append(needed, p)
			}
		}
		fewest := rules.fewest(sources, targets, relieved, len(needed))
		if len(needed) > fewest+1 {
			t.Fatalf("%s\n%s\n%d moves, and %d are enough", expect.ToJSON(t, s), expect.ToJSON(t, scope), len(needed), fewest)
		}
		if len(needed) > fewest {
			more++
		}
	}
	t.Logf("%d nodes relieved in %d worlds, %d worlds with one move more than needed", relievedNodes, worlds, more)
	if relievedNodes < 50 {
		t.Errorf("%d nodes relieved, want at least 50", relievedNodes)
	}
}

func TestAnswerIgnoresOrder(t *testing.T) {
	each(t, func(r random, s strategy, scope schemas.UsageScope, _ rules) {
		other := r.shuffled(scope)
		test.Steady(t, s.Decide, scope, deepCopy(scope), other)
		if got, want := s.Sources(other.Nodes), s.Sources(scope.Nodes); !slices.Equal(got, want) {
			t.Fatalf("sources in another order: got %q, want %q", got, want)
		}
	})
}

func TestAnswerIgnoresOtherNodes(t *testing.T) {
	each(t, func(_ random, s strategy, scope schemas.UsageScope, _ rules) {
		sources := s.Sources(scope.Nodes)
		fewer := scope
		fewer.Pods = slices.DeleteFunc(slices.Clone(scope.Pods), func(p schemas.UsingPod) bool {
			return !slices.Contains(sources, p.Pod.Spec.NodeName)
		})
		if got, want := s.Decide(fewer), s.Decide(scope); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

func TestAnswerDuringMoves(t *testing.T) {
	rest, more, withdrawn := 0, 0, 0
	each(t, func(r random, s strategy, scope schemas.UsageScope, _ rules) {
		scope.Pods = slices.DeleteFunc(slices.Clone(scope.Pods), func(p schemas.UsingPod) bool { return p.Pod.DeletionTimestamp != nil })
		all := s.Decide(scope)
		if len(all) == 0 {
			return
		}
		done := r.IntN(len(all) + 1)
		scope.Pods = slices.Clone(scope.Pods)
		for i := range scope.Pods {
			if slices.ContainsFunc(all[:done], func(m schemas.Intent) bool { return m.Pod.UID == scope.Pods[i].Pod.UID }) {
				test.Deleted()(&scope.Pods[i].ScopedPod)
			}
		}
		got := s.Decide(scope)
		// Pods that have left chose their targets first, so sometimes another pod finds one.
		for _, m := range all[done:] {
			if !slices.ContainsFunc(got, func(o schemas.Intent) bool { return reflect.DeepEqual(o, m) }) {
				withdrawn++
			}
		}
		more += max(len(got)-len(all)+done, 0)
		rest += len(all) - done
	})
	if more > rest/100 || withdrawn > rest/100 {
		t.Errorf("of %d moves %d were withdrawn, and %d were added; want at most one in a hundred", rest, withdrawn, more)
	}
	if rest == 0 {
		t.Error("nothing was ever left to do: the test tests nothing")
	}
}

// TestMoveInvariants checks the invariants without the rules.
func TestMoveInvariants(t *testing.T) {
	each(t, func(_ random, s strategy, scope schemas.UsageScope, _ rules) {
		seen := map[string]bool{}
		for _, m := range s.Decide(scope) {
			i := slices.IndexFunc(scope.Pods, func(p schemas.UsingPod) bool { return p.Pod.UID == m.Pod.UID })
			p := scope.Pods[i]
			if seen[string(m.Pod.UID)] || len(p.Protected) > 0 || p.Pod.DeletionTimestamp != nil || p.Pod.Status.Phase != corev1.PodRunning {
				t.Fatalf("%+v moves %+v", s, p)
			}
			seen[string(m.Pod.UID)] = true
		}
	})
}
