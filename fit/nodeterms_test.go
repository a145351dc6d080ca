package fit_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// The scheduler reads node affinity with component-helpers. This package must read it with the same result, even for
// terms that the API server would reject.
func TestNodeAffinityEquivalence(t *testing.T) {
	random := randtest.New(t)
	operators := []corev1.NodeSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"}
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	requirement := func(key string) corev1.NodeSelectorRequirement {
		r := corev1.NodeSelectorRequirement{Key: key, Operator: operators[random.IntN(len(operators))]}
		for range random.IntN(3) {
			r.Values = append(r.Values, pick("1", "2", "3", "ssd", "a", "b", "not a value!"))
		}
		return r
	}
	matched := map[bool]int{}
	for range 5_000 {
		p := pod("p")
		if random.IntN(4) == 0 {
			p.Spec.NodeSelector = map[string]string{"disk": pick("ssd", "1")}
		}
		var terms []corev1.NodeSelectorTerm
		for range random.IntN(4) {
			var term corev1.NodeSelectorTerm
			for range random.IntN(3) {
				term.MatchExpressions = append(term.MatchExpressions, requirement(pick("disk", "size", "color")))
			}
			if random.IntN(3) == 0 {
				term.MatchFields = append(term.MatchFields, requirement("metadata.name"))
			}
			terms = append(terms, term)
		}
		wantNode(terms...)(p)
		n := node(pick("a", "b"), nodeLabel("disk", pick("ssd", "1")), nodeLabel("size", pick("1", "2", "3")))
		want, _ := nodeaffinity.GetRequiredNodeAffinity(p).Match(n)
		matched[want]++
		if got := cluster(n).Ask(p).On(n.Name); got.OK != want {
			t.Fatalf("got %q, want %t for %+v and %v on %s %v", got, want, terms, p.Spec.NodeSelector, n.Name, n.Labels)
		}
	}
	if matched[true] < 200 || matched[false] < 200 {
		t.Errorf("matched %d times of 5000: the cases are too much alike", matched[true])
	}
}
