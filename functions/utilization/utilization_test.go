package utilization_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/functionstest"
)

// strategy is one of the two.
type strategy interface {
	policy.Args
	policy.Gauged
	Decide(schemas.UsageScope) []schemas.Intent
}

// each calls do with both strategies, under random arguments and in random clusters, many times.
func each(t *testing.T, do func(r random, s strategy, scope schemas.UsageScope, rules rules)) {
	t.Helper()
	r := random{test.Random(t)}
	for range 700 {
		low, high := r.low(), r.high()
		scope := r.cluster(low.Load().Source)
		do(r, low, scope, rulesOfLow(low, scope))
		scope = r.cluster(policy.LoadRequests)
		do(r, high, scope, rulesOfHigh(high, scope))
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestTheAnswerIsWhatTheRulesSayOnePodAfterTheOther(t *testing.T) {
	stops, moved := map[string]int{}, 0
	each(t, func(_ random, s strategy, scope schemas.UsageScope, rules rules) {
		if err := s.Validate(); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		leaving, sources := rules.answer(stops)
		intents := s.Decide(scope)
		var want, got []schemas.Intent
		for _, p := range leaving {
			want = append(want, p.Move(""))
		}
		for _, i := range intents {
			if !strings.HasPrefix(i.Reason, i.Node+" is ") || !strings.Contains(i.Reason, " % of ") {
				t.Fatalf("reason %q", i.Reason)
			}
			i.Reason = ""
			got = append(got, i)
		}
		if !reflect.DeepEqual(got, want) || !slices.Equal(s.Sources(scope.Nodes), sources) {
			t.Fatalf("%s\n%s\nsources: got %q, want %q\ngot  %+v\nwant %+v",
				asJSON(t, s), asJSON(t, scope), s.Sources(scope.Nodes), sources, got, want)
		}
		moved += len(got)
	})
	t.Logf("%d pods moved; %v", moved, stops)
	for _, why := range []string{"there is no room", "as many as may have left", "there is no need"} {
		if stops[why] == 0 {
			t.Errorf("nothing ever stopped because %s: the test tests too little", why)
		}
	}
	if moved == 0 {
		t.Error("no pod moved in any round: the test tests nothing")
	}
}

func TestTheAnswerDependsOnNothingButTheSetsOfNodesAndPods(t *testing.T) {
	each(t, func(r random, s strategy, scope schemas.UsageScope, _ rules) {
		other := r.shuffled(scope)
		test.Steady(t, s.Decide, scope, deepCopy(scope), other)
		if got, want := s.Sources(other.Nodes), s.Sources(scope.Nodes); !slices.Equal(got, want) {
			t.Fatalf("sources in another order: got %q, want %q", got, want)
		}
	})
}

func TestPodsOfOtherNodesThanTheSourcesDoNotMatter(t *testing.T) {
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

func TestTheAnswerInTheMiddleOfTheMovesIsTheRestOfThem(t *testing.T) {
	rest := 0
	each(t, func(r random, s strategy, scope schemas.UsageScope, _ rules) {
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
		if len(got) != len(all)-done || len(got) > 0 && !reflect.DeepEqual(got, all[done:]) {
			t.Fatalf("%s\nafter %d of them:\ngot  %+v\nwant %+v", asJSON(t, s), done, got, all[done:])
		}
		rest += len(got)
	})
	if rest == 0 {
		t.Error("nothing was ever left to do: the test tests nothing")
	}
}

// TestNoPodMovesThatMustNot says once more, without the rules, what must never happen.
func TestNoPodMovesThatMustNot(t *testing.T) {
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
