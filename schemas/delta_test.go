package schemas_test

import (
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

func TestDeltaLines(t *testing.T) {
	checkLines(t, "delta", map[string]string{
		"delta":     "delta node/worker-7: taints: none → dedicated=gpu:NoSchedule",
		"delta-pod": "delta pod/web/api-5d8f7c9b6d-2xkqv: deleted",
	})
	yes, no := true, false
	checkTexts(t, []described{
		{"a delta without values", schemas.Delta{Kind: schemas.PodScheduled, Object: schemas.ObjectRef{Kind: "Pod"}}, "scheduled"},
		{
			"a delta with values",
			schemas.Delta{
				Kind: schemas.NodeUnschedulable, Object: schemas.ObjectRef{Kind: "Node"},
				Before: &schemas.State{Unschedulable: &no}, After: &schemas.State{Unschedulable: &yes},
			}, `unschedulable: "unschedulable":false → "unschedulable":true`,
		},
	})
}
