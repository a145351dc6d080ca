package policy

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestTraits(t *testing.T) {
	const text = start + `
functions:
- {name: Own, scope: pod, wakes: [pod.labels], point: balance, renewsPods: true, http: {url: http://a}}
`
	p, err := Parse("policy.yaml", []byte(text), []Strategy{{
		Name: "BuiltIn", Point: Deschedule, Scope: schemas.PodKind,
		Traits: Traits{Priority: PriorityNode, Facts: []Fact{FactDue}}, NewArgs: func() Args { return &ownArguments{} },
	}})
	expect.Must(t, err)
	for name, want := range map[string]Traits{
		"Own":                       {Priority: PriorityBalance, RenewsPods: true, Opaque: true},
		"BuiltIn":                   {Priority: PriorityNode, Facts: []Fact{FactDue}},
		"Unknown":                   {Priority: PriorityViolation},
		schemas.RequestStrategy:     {Priority: PriorityManual},
		schemas.MaintenanceStrategy: {Priority: PriorityNode, MayReturn: true},
	} {
		if got := p.Traits(name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

func TestScopeRules(t *testing.T) {
	own := func(kind schemas.ScopeKind, facts ...Fact) Enabled {
		return Enabled{Args: []byte(`{}`), Strategy: Strategy{
			Name: "S", Scope: kind, Traits: Traits{Facts: facts}, NewArgs: func() Args { return &ownArguments{} },
		}}
	}
	type has struct{ timed, seeker, spreading, gauged bool }
	for _, c := range []struct {
		name    string
		enabled Enabled
		want    has
		err     string
	}{
		{"none", own(schemas.NodeKind), has{}, ""},
		{"by_fact", own(schemas.NodeKind, FactElsewhere), has{seeker: true}, ""},
		{"by_spread_scope", own(schemas.SpreadKind), has{spreading: true}, ""},
		{"by_usage_scope", own(schemas.UsageKind, FactElsewhere), has{seeker: true, gauged: true}, ""},
		{"fact_without_a_rule", own(schemas.PodKind, FactDue), has{}, `strategy S needs the fact "due"`},
		{"unknown_fact", own(schemas.PodKind, "weather"), has{}, `strategy S needs the fact "weather"`},
		{"scope_without_a_rule", Enabled{Args: []byte(`{}`), Strategy: Strategy{
			Name: "S", Scope: schemas.UsageKind, NewArgs: func() Args { return &taintArgs{} },
		}}, has{}, "strategy S decides on scopes of kind usage"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := c.enabled.ScopeRules()
			if got := (has{r.Timed != nil, r.Seeker != nil, r.Spreading != nil, r.Gauged != nil}); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("got the error %v, want %q", err, c.err)
			}
		})
	}
	if r, err := own(schemas.NodeKind, FactElsewhere).ScopeRules(); err != nil || !r.Seeker.Seeks(&corev1.Pod{}, &corev1.Node{}) {
		t.Errorf("a function of the file does not get to know where else a pod fits: %v", err)
	}
}
