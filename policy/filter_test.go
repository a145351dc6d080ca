package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestNamespaceNames(t *testing.T) {
	all := []string{"a", "ab", "b", "kube-system"}
	for _, c := range []struct {
		name string
		n    Namespaces
		want []string
	}{
		{"the zero value has all", Namespaces{}, all},
		{"only those included", Namespaces{Include: []string{"a", "b"}}, []string{"a", "b"}},
		{"all but those excluded", Namespaces{Exclude: []string{"a"}}, []string{"ab", "b", "kube-system"}},
		{"by how their names begin", Namespaces{Include: []string{"kube-*", "a*"}}, []string{"a", "ab", "kube-system"}},
		{"all except names with the prefix", Namespaces{Exclude: []string{"kube-*", "b"}}, []string{"a", "ab"}},
		{"a star anywhere else stands for nothing", Namespaces{Include: []string{"*", "*b", "a*b"}}, nil},
		{"empty lists have all", Namespaces{Include: []string{}, Exclude: []string{}}, all},
	} {
		var got []string
		for _, namespace := range all {
			if c.n.Has(namespace) {
				got = append(got, namespace)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNamespaceEntry(t *testing.T) {
	for entry, want := range map[string]bool{
		"a": true, "kube-system": true, "kube-*": true, "a*": true, "0-*": true,
		"": false, "*": false, "-*": false, "A*": false, "a**": false, "*a": false, "a*b": false, "a_*": false,
		strings.Repeat("a", 63): true, strings.Repeat("a", 63) + "*": false, strings.Repeat("a", 62) + "*": true,
	} {
		err := Namespaces{Exclude: []string{entry}}.Validate()
		if got := err == nil; got != want {
			t.Errorf("%q is accepted: %v, want %v (%v)", entry, got, want, err)
		}
	}
}

func BenchmarkNamespacesHas(b *testing.B) {
	n := Namespaces{Exclude: []string{"kube-system", "hypershift", "openshift-*", "team-a", "team-b"}}
	b.ReportAllocs()
	for b.Loop() {
		if !n.Has("team-c-production") {
			b.Fatal("excluded")
		}
	}
}

func TestSelector(t *testing.T) {
	wrong := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	for _, c := range []struct {
		name     string
		selector *metav1.LabelSelector
		want     bool
	}{
		{"absent", nil, true}, {"empty", &metav1.LabelSelector{}, true}, {"wrong", wrong, false},
	} {
		if got := Selects(c.selector).Matches(labels.Set{"a": "b"}); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestFindingPaths(t *testing.T) {
	var inner, outer Findings
	inner.Add("", 1, "is one", "")
	inner.Add("[2]", "x", "is text", "want a number")
	inner.Add("below", nil, "is missing", "")
	outer.Join("list", inner.Err())
	outer.Join("other", errors.New("something else"))
	outer.Join("fine", nil)
	got := strings.Split(outer.Err().Error(), "\n")
	want := []string{
		"list: is one, got 1",
		`list[2]: is text, got "x"; want a number`,
		"list.below: is missing",
		"other: something else",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if err := new(Findings).Err(); err != nil {
		t.Errorf("got %v from no findings, want nil", err)
	}
}
