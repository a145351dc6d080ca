package bus_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestListAnsweredScopes(t *testing.T) {
	b := bustest.New(t)
	want := []schemas.ScopeHead{
		{Profile: "default", Strategy: "S", Kind: schemas.DomainKind, Key: "topology.kubernetes.io/zone=eu west"},
		{Profile: "", Strategy: "S", Kind: schemas.PodKind, Key: "web/a.b_c"},
	}
	for _, h := range want {
		a := schemas.Intents{
			Profile: h.Profile, Strategy: h.Strategy, Scope: schemas.ScopeRef{Kind: h.Kind, Key: h.Key, Event: "e", Sequence: 1},
			Intents: []schemas.Intent{{ID: "1", Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: "u"}}},
		}
		e := schematest.Event(t, "/test", a, time.Now(), schemas.Event{})
		expect.Must(t, b.Answer(t.Context(), e, a))
	}
	got, err := b.AnsweredScopes(t.Context())
	expect.Must(t, err)
	slices.SortFunc(got, func(x, y schemas.ScopeHead) int { return cmp.Compare(x.Kind, y.Kind) })
	expect.Equal(t, "result", got, want)
}
