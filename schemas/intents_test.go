package schemas_test

import (
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
		{
			"an answer with many pods", schemas.Intents{Strategy: "S", Scope: scope, Intents: []schemas.Intent{intent, intent, intent, intent}},
			"S: move 4: web/api, web/api, web/api and 1 more",
		},
		{"an answer that withdraws", schemas.Intents{Strategy: "S", Scope: scope}, "S: nothing should move any more"},
	})
}
