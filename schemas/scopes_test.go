package schemas_test

import (
	"errors"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

func TestPodsOfScopeKinds(t *testing.T) {
	named := func(name string) schemas.ScopedPod {
		return schemas.ScopedPod{Pod: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}}
	}
	a, b, c := named("a"), named("b"), named("c")
	of := func(kind schemas.ScopeKind) schemas.ScopeHead { return schemas.ScopeHead{Kind: kind, Key: "k"} }
	for _, test := range []struct {
		scope schemas.Scope
		want  []schemas.ScopedPod
	}{
		{schemas.NodeScope{ScopeHead: of(schemas.NodeKind), Pods: []schemas.ScopedPod{b, a}}, []schemas.ScopedPod{b, a}},
		{schemas.PodScope{ScopeHead: of(schemas.PodKind), Pod: a}, []schemas.ScopedPod{a}},
		{schemas.WorkloadScope{ScopeHead: of(schemas.WorkloadKind), Pods: []schemas.ScopedPod{a, b}}, []schemas.ScopedPod{a, b}},
		{schemas.SpreadScope{ScopeHead: of(schemas.SpreadKind), Domains: []schemas.Domain{
			{Value: "1", Pods: []schemas.SpreadPod{{ScopedPod: c}}},
			{Value: "2"},
			{Value: "3", Pods: []schemas.SpreadPod{{ScopedPod: a}, {ScopedPod: b}}},
		}}, []schemas.ScopedPod{c, a, b}},
		{schemas.DomainScope{ScopeHead: of(schemas.DomainKind), Pods: []schemas.ContendingPod{
			{ScopedPod: a}, {ScopedPod: b},
		}}, []schemas.ScopedPod{a, b}},
		{schemas.UsageScope{ScopeHead: of(schemas.UsageKind), Pods: []schemas.UsingPod{
			{ScopedPod: b}, {ScopedPod: c},
		}}, []schemas.ScopedPod{b, c}},
	} {
		got, err := schemas.DecodeScope(newEvent(t, test.scope, schemas.Event{}), test.scope.Head().Kind)
		if err != nil {
			t.Errorf("%s: %v", test.scope.Head().Kind, err)
			continue
		}
		if reflect.TypeOf(got) != reflect.TypeOf(test.scope) || !reflect.DeepEqual(got.ScopedPods(), test.want) {
			t.Errorf("%s: got %T with %+v\nwant %T with %+v", test.scope.Head().Kind, got, got.ScopedPods(), test.scope, test.want)
		}
	}
}

func TestInvalidScopes(t *testing.T) {
	for name, c := range map[string]struct {
		kind      schemas.ScopeKind
		eventType string
		data      string
	}{
		"another type":       {schemas.NodeKind, schemas.DeltaType, `{"kind":"node"}`},
		"a kind of tomorrow": {"zone", schemas.ScopeType, `{"kind":"zone"}`},
		"no kind":            {"", schemas.ScopeType, `{}`},
		"no JSON":            {schemas.NodeKind, schemas.ScopeType, `{`},
		"no such shape":      {schemas.NodeKind, schemas.ScopeType, `{"kind":"node","pods":1}`},
	} {
		e := schemas.Event{ID: "1", Type: c.eventType, Data: []byte(c.data)}
		if got, err := schemas.DecodeScope(e, c.kind); !errors.Is(err, schemas.ErrInvalid) || got != nil {
			t.Errorf("%s: got %+v, %v; want an error that is ErrInvalid", name, got, err)
		}
	}
}
