package functions

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/functions/nodetaints"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func strategies() []policy.Strategy {
	var all []policy.Strategy
	for _, f := range All() {
		all = append(all, f.Strategy)
	}
	return all
}

func TestStrategyNameAndDeltas(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range strategies() {
		if s.Name == "" || seen[s.Name] {
			t.Errorf("strategy %q: its name is empty or taken", s.Name)
		}
		seen[s.Name] = true
		if s.Point != policy.Deschedule && s.Point != policy.Balance {
			t.Errorf("%s: extension point %q is neither %s nor %s", s.Name, s.Point, policy.Deschedule, policy.Balance)
		}
		if !strings.HasPrefix(s.Summary, "Moves ") || !strings.HasSuffix(s.Summary, ".") || strings.Contains(s.Summary, "\n") {
			t.Errorf("%s: its summary is not a sentence about the moved pods: %q", s.Name, s.Summary)
		}
		if len(s.Wakes) == 0 {
			t.Errorf("%s: nothing wakes it", s.Name)
		}
		for i, kind := range s.Wakes {
			if !slices.Contains(schemas.DeltaKinds(), kind) || slices.Contains(s.Wakes[:i], kind) {
				t.Errorf("%s: wakes[%d] is %q, which is no kind of delta or given twice", s.Name, i, kind)
			}
		}
	}
}

func TestDefaultArguments(t *testing.T) {
	missing := map[string]string{
		"RemovePodsHavingTooManyRestarts": "podRestartThreshold: must be at least 1, got 0; 100 is usual",
		"PodLifeTime":                     "would move every pod; give at least one of maxPodLifeTimeSeconds, states, conditions and exitCodes",
		"RemovePodsViolatingNodeAffinity": "nodeAffinityType: is missing; want requiredDuringSchedulingIgnoredDuringExecution or " +
			"preferredDuringSchedulingIgnoredDuringExecution, or both",
		"LowNodeUtilization": "thresholds: names no resource; want at least one, such as cpu: 20\n" +
			"targetThresholds: names no resource; want at least one, such as cpu: 20",
		"HighNodeUtilization": "thresholds: names no resource; want at least one, such as cpu: 20",
	}
	for _, s := range strategies() {
		got := ""
		if err := s.NewArgs().Validate(); err != nil {
			got = err.Error()
		}
		if want := missing[s.Name]; got != want {
			t.Errorf("%s: its defaults: got %q, want %q", s.Name, got, want)
		}
	}
}

func TestDefaultArgumentsRoundTrip(t *testing.T) {
	for _, s := range strategies() {
		args := s.NewArgs()
		data, err := json.Marshal(args)
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		again := s.NewArgs()
		if err := json.Unmarshal(data, again); err != nil || !reflect.DeepEqual(again, args) {
			t.Errorf("%s: got %+v, %v from %s, want %+v", s.Name, again, err, data, args)
		}
		if s.NewArgs() == s.NewArgs() {
			t.Errorf("%s: NewArgs returns the same pointer twice", s.Name)
		}
	}
}

// TestTraits checks that the data of each strategy matches the methods of its arguments: each fact with a method is
// declared, and vice versa.
func TestTraits(t *testing.T) {
	for _, f := range Hosted() {
		s := f.Strategy
		t.Run(s.Name, func(t *testing.T) {
			args := s.NewArgs()
			_, timed := args.(policy.Timed)
			_, seeker := args.(policy.Seeker)
			_, spreading := args.(policy.Spreading)
			_, gauged := args.(policy.Gauged)
			_, concerned := args.(policy.Concerned)
			got := []bool{timed, seeker, spreading, gauged, concerned}
			want := []bool{
				s.Needs(policy.FactDue), s.Needs(policy.FactElsewhere), s.Scope == schemas.SpreadKind, s.Scope == schemas.UsageKind,
				s.Needs(policy.FactConcerned),
			}
			if !slices.Equal(got, want) {
				t.Errorf("the arguments have Due, Seeks, Constraints, Sources, Concerns: %v; the line says %v", got, want)
			}
			if s.Needs(policy.FactDue) != (s.Scope == schemas.PodKind) {
				t.Errorf("it decides on a %s and needs the fact due: %v", s.Scope, s.Needs(policy.FactDue))
			}
			if s.Scope == schemas.NodeKind && !s.Needs(policy.FactConcerned) {
				t.Error("it decides on a node, and does not need the fact concerned: each pod on the node would build the scope")
			}
			if !slices.Contains(policy.Priorities(), s.Priority) {
				t.Errorf("priority %q is not one of %v", s.Priority, policy.Priorities())
			}
		})
	}
}

func TestDeschedulerPolicy(t *testing.T) {
	data, err := os.ReadFile("testdata/nodetaints.yaml")
	expect.Must(t, err)
	p, err := policy.Parse("nodetaints.yaml", data, strategies())
	expect.Must(t, err)
	threshold := int32(10000)
	evictor, err := policy.NewEvictor(policy.EvictorArgs{
		MinPodAge:         metav1.Duration{Duration: 5 * time.Minute},
		NoEvictionPolicy:  policy.Preferred,
		PriorityThreshold: policy.PriorityThreshold{Value: &threshold},
		PodProtections: policy.PodProtections{
			DefaultDisabled: []string{policy.PodsWithLocalStorage}, ExtraEnabled: []string{policy.PodsWithPVC},
		},
	})
	expect.Must(t, err)
	args, _ := json.Marshal(nodetaints.Args{
		Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}, LabelSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"tier": "web"},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "environment", Operator: metav1.LabelSelectorOpIn, Values: []string{"staging", "production"}},
			},
		}},

		IncludePreferNoSchedule: true,
		ExcludedTaints:          []string{"dedicated=special-user", "reserved"},
	})
	grace := int64(30)
	want := policy.Default()
	want.NodeSelector, want.GracePeriodSeconds = "pool=web", &grace
	want.Profiles = []policy.Profile{{Name: "taints", Evictor: evictor, Strategies: []policy.Enabled{{Args: args}}}}
	if len(p.Profiles) != 1 || len(p.Profiles[0].Strategies) != 1 {
		t.Fatalf("got %+v, want one profile with one strategy", p)
	}
	got := &p.Profiles[0].Strategies[0]
	if got.Name != "RemovePodsViolatingNodeTaints" || got.Scope != schemas.NodeKind {
		t.Errorf("got %s on %s, want RemovePodsViolatingNodeTaints on %s", got.Name, got.Scope, schemas.NodeKind)
	}
	got.Strategy = policy.Strategy{} // has a function, which cannot be compared
	p.Known = nil
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
}

// evaluateFirst answers a scope of the node worker-1, with a taint and a pod that does not tolerate it, under the
// policy's arguments for the first strategy of the profile.
func evaluateFirst(t *testing.T, policyText string) (schemas.Event, schemas.Intents) {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(policyText), strategies())
	expect.Must(t, err)
	strategy := p.Profiles[0].Strategies[0]
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	event := schematest.Event(t, "/test", schemas.NodeScope{
		ScopeHead: schemas.ScopeHead{Kind: schemas.NodeKind, Key: "worker-1", Profile: p.Profiles[0].Name,
			Strategy: strategy.Name, Args: strategy.Args, Now: now, Since: now.Add(-time.Second)},
		Node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}}},
		Pods: []schemas.ScopedPod{{Pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api", UID: "u1"}, Spec: corev1.PodSpec{NodeName: "worker-1"},
		}}},
	}, now, schemas.Event{})
	event.Sequence = 7
	for _, f := range All() {
		if f.Strategy.Name == strategy.Name {
			intents, err := f.Evaluate(event)
			expect.Must(t, err)
			return event, intents
		}
	}
	t.Fatalf("no strategy %s", strategy.Name)
	return schemas.Event{}, schemas.Intents{}
}

func nodeTaintsPolicy(args string) string {
	return `{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, profiles: [{
		pluginConfig: [{name: RemovePodsViolatingNodeTaints, args: ` + args + `}],
		plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}}]}`
}

func TestAnswerScope(t *testing.T) {
	event, got := evaluateFirst(t, nodeTaintsPolicy("{}"))
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	want := schemas.Intents{
		Profile: "default", Strategy: "RemovePodsViolatingNodeTaints",
		Scope: schemas.ScopeRef{
			Kind: schemas.NodeKind, Key: "worker-1", Event: event.ID, Sequence: 7, Since: now.Add(-time.Second), Now: now,
		},
		Intents: []schemas.Intent{{
			ID: event.ID + ".u1", Pod: schemas.PodRef{Namespace: "web", Name: "api", UID: "u1"}, Node: "worker-1",
			Reason: "does not tolerate dedicated=gpu:NoSchedule", Expires: now.Add(IntentTTL),
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEmptyIncludedTaints(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"{includedTaints: []}", "[]"}, // none counts; and an answer without intents is a list, not null
		{"{includedTaints: [other]}", "[]"},
	} {
		_, intents := evaluateFirst(t, nodeTaintsPolicy(c.args))
		got, err := json.Marshal(intents.Intents)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v, want %s", c.args, got, err, c.want)
		}
	}
	for _, args := range []string{"{}", "{includedTaints: }", "{includedTaints: [dedicated]}"} {
		if _, intents := evaluateFirst(t, nodeTaintsPolicy(args)); len(intents.Intents) != 1 {
			t.Errorf("%s: got %+v, want the pod to move", args, intents.Intents)
		}
	}
}

func TestInvalidArgumentLines(t *testing.T) {
	_, err := policy.Parse("policy.yaml", []byte(`apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- pluginConfig:
  - name: RemovePodsViolatingNodeTaints
    args:
      includedTaints:
      - dedicated
      - dedicated=gpu:NoSchedule
      excludedTaints: [spot]
      labelselector: {}
`), strategies())
	want := `policy.yaml:7: profiles[0].pluginConfig[0].args.includedTaints: cannot be used together with excludedTaints; keep one
policy.yaml:9: profiles[0].pluginConfig[0].args.includedTaints[1]: can match no taint, got "dedicated=gpu:NoSchedule"; ` +
		`write KEY or KEY=VALUE, without an effect or a pattern
policy.yaml:11: profiles[0].pluginConfig[0].args.labelselector: unknown field; did you mean labelSelector?`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func TestEventOfOtherScope(t *testing.T) {
	f := All()[0]
	scope := func(head schemas.ScopeHead) schemas.Event {
		return schematest.Event(t, "/test", schemas.NodeScope{ScopeHead: head}, time.Now(), schemas.Event{})
	}
	delta := schematest.Event(t, "/test", schemas.Delta{Kind: schemas.NodeAdded}, time.Now(), schemas.Event{})
	for name, event := range map[string]schemas.Event{
		"a delta":               delta,
		"of another kind":       scope(schemas.ScopeHead{Kind: schemas.PodKind, Strategy: f.Strategy.Name}),
		"of no kind":            scope(schemas.ScopeHead{Strategy: f.Strategy.Name}),
		"for another strategy":  scope(schemas.ScopeHead{Kind: schemas.NodeKind, Strategy: "Other"}),
		"arguments of no field": scope(schemas.ScopeHead{Kind: schemas.NodeKind, Strategy: f.Strategy.Name, Args: []byte(`{"a":1}`)}),
		"arguments refused":     scope(schemas.ScopeHead{Kind: schemas.NodeKind, Strategy: f.Strategy.Name, Args: []byte(`{"includedTaints":["a*"]}`)}),
	} {
		got, err := f.Evaluate(event)
		if !errors.Is(err, schemas.ErrInvalid) || !reflect.DeepEqual(got, schemas.Intents{}) {
			t.Errorf("%s: got %+v and %v, want ErrInvalid", name, got, err)
		}
	}
}
