package functionstest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// ThroughJSON encodes the arguments of a strategy and decodes them again. The test fails if they change.
func ThroughJSON[A any](t testing.TB, args A) A {
	t.Helper()
	var none A
	return ThroughJSONOver(t, none, args)
}

// ThroughJSONOver is [ThroughJSON] for a strategy with defaults.
func ThroughJSONOver[A any](t testing.TB, defaults, args A) A {
	t.Helper()
	data, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	got := defaults
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, args) {
		t.Errorf("got %+v from %s, want %+v", got, data, args)
	}
	return got
}

// Strategy is the type of the arguments of a strategy for one kind of scope.
type Strategy[S any] interface {
	Validate() error
	Decide(scope S) []schemas.Intent
}

// Decides compares the answer to a scope with the expected intents, both for the arguments and for their decoded form. The
// arguments must be valid. An answer without intents is nil.
func Decides[A Strategy[S], S any](t testing.TB, args, defaults A, scope S, want []schemas.Intent) {
	t.Helper()
	if err := args.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, args := range []A{args, ThroughJSONOver(t, defaults, args)} {
		if got := args.Decide(scope); !reflect.DeepEqual(got, want) {
			t.Errorf("with %+v:\ngot  %+v\nwant %+v", args, got, want)
		}
	}
}

// BenchmarkDecide measures an answer with one intent.
func BenchmarkDecide[A Strategy[S], S any](b *testing.B, args A, scope S) {
	b.ReportAllocs()
	for b.Loop() {
		if got := args.Decide(scope); len(got) != 1 {
			b.Fatalf("got %+v, want one intent", got)
		}
	}
}

// BenchmarkDue measures when a pod is due, which is later than [Now] or never. Most pods are like that, and each resync checks every
// pod of the cluster.
func BenchmarkDue(b *testing.B, args interface {
	Due(pod *corev1.Pod) (at time.Time, ever bool)
}, pod corev1.Pod, later bool) {
	b.ReportAllocs()
	for b.Loop() {
		if at, ever := args.Due(&pod); ever != later || ever && at.Before(Now()) {
			b.Fatalf("due at %v, %v, want later: %v", at, ever, later)
		}
	}
}

// InvalidSelection returns a selection of pods with the mistakes of [SelectionMistakes].
func InvalidSelection() candidate.Selection {
	return candidate.Selection{
		Namespaces:    policy.Namespaces{Include: []string{"a"}, Exclude: []string{"B"}},
		LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}},
	}
}

// SelectionMistakes returns the lines of the error for an [InvalidSelection].
func SelectionMistakes() []string {
	return []string{
		"namespaces: has both include and exclude; keep one",
		`namespaces.exclude[0]: is not the name of a namespace, got "B"; write an exact name, or its beginning and a *`,
		`labelSelector.matchExpressions[0].operator: not a valid selector operator, got "Near"`,
	}
}

// Refused compares the errors of Validate with the expected lines.
func Refused(t testing.TB, err error, want ...string) {
	t.Helper()
	var got []string
	if err != nil {
		got = strings.Split(err.Error(), "\n")
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Steady returns the answer to a scope. The test fails if a second answer differs, if the answer to the reordered scope differs,
// or if Decide changes the scope. copied is a deep copy of the scope.
func Steady[S any](t testing.TB, decide func(S) []schemas.Intent, scope, copied, reordered S) []schemas.Intent {
	t.Helper()
	unchanged := func() { // after each answer, because two changes could cancel out
		t.Helper()
		if !reflect.DeepEqual(scope, copied) {
			t.Fatalf("the scope was changed:\n%+v\n%+v", scope, copied)
		}
	}
	first := decide(scope)
	unchanged()
	if again := decide(scope); !reflect.DeepEqual(again, first) {
		t.Fatalf("the second answer differs:\n%+v\n%+v", again, first)
	}
	unchanged()
	if got := decide(reordered); !reflect.DeepEqual(got, first) {
		t.Fatalf("in another order:\ngot  %+v\nwant %+v", got, first)
	}
	return first
}
