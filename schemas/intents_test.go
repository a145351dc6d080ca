package schemas_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

func TestIntentsLines(t *testing.T) {
	checkLines(t, "intents", map[string]string{
		"intents": "intents node/worker-7: RemovePodsViolatingNodeTaints: move 3: shop/cart-0, web/api-5d8f7c9b6d-2xkqv, " +
			"web/login-6f9c7d8b54-vt8zn",
		"intents-maintenance": "intents maintenance/kernel: Maintenance: move 2: shop/cart-0, shop/search-0",
	})
	intent := schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "api"}}
	scope := schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"}
	checkTexts(t, []described{
		{"an answer", schemas.Intents{Strategy: "S", Scope: scope, Intents: []schemas.Intent{intent}}, "S: move 1: web/api"},
		{"an answer with many pods", schemas.Intents{Strategy: "S", Scope: scope, Intents: []schemas.Intent{intent, intent, intent, intent}},
			"S: move 4: web/api, web/api, web/api and 1 more"},
		{"an answer that withdraws", schemas.Intents{Strategy: "S", Scope: scope}, "S: nothing should move any more"},
	})
}

// TestIntentsLimit decodes lists that are longer than a message may have.
func TestIntentsLimit(t *testing.T) {
	message := func(list string) schemas.Event {
		return schemas.Event{ID: "e", Type: schemas.IntentsType, Data: []byte(`{"strategy":"S","intents":` + list + `}`)}
	}
	list := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("{},", n), ",") + "]" }
	const tooMany = "event e of type dev.rehome.intents.v1: invalid event: it has more than 5000 intents"
	for name, c := range map[string]struct {
		list string
		want int
		err  string
	}{
		"none":          {list: "[]"},
		"null":          {list: "null"},
		"the most":      {list: list(schemas.MostIntents), want: schemas.MostIntents},
		"one too many":  {list: list(schemas.MostIntents + 1), err: tooMany},
		"not a list":    {list: "{}", err: "json: cannot unmarshal object into Go struct field Intents.intents of type []schemas.Intent"},
		"not an intent": {list: "[7]", err: "json: cannot unmarshal number into Go struct field Intents.intents of type schemas.Intent"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := schemas.Decode[schemas.Intents](message(c.list))
			if (err == nil) != (c.err == "") || err != nil && !strings.HasSuffix(err.Error(), c.err) || err == nil && len(got.Intents) != c.want {
				t.Errorf("got %d intents and %v, want %d and %q", len(got.Intents), err, c.want, c.err)
			}
		})
	}
	t.Run("memory", func(t *testing.T) {
		e := message(list(4 << 20))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := schemas.Decode[schemas.Intents](e)
		runtime.ReadMemStats(&after)
		if used, most := after.TotalAlloc-before.TotalAlloc, uint64(3*len(e.Data)); err == nil || used > most {
			t.Errorf("decoding %d bytes allocates %d bytes, want at most %d; error %v", len(e.Data), used, most, err)
		}
	})
}
