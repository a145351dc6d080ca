package schemas_test

import (
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

func TestVerdictLines(t *testing.T) {
	checkLines(t, "verdict", map[string]string{
		"verdict": "verdict pod/web/api-5d8f7c9b6d-2xkqv: evicted from worker-7: does not tolerate dedicated=gpu:NoSchedule",
		"verdict-deferred": "verdict pod/shop/cart-0: deferred: DisruptionBudget: PodDisruptionBudget shop/cart allows no disruption: " +
			"3 of 3 pods must be available",
		"verdict-restarted": "verdict pod/web/login-6f9c7d8b54-vt8zn: restarted from worker-7 by rollout-restart: does not tolerate " +
			"dedicated=gpu:NoSchedule",
		"verdict-settled": "verdict pod/web/api-5d8f7c9b6d-2xkqv: settled Replaced web/api-5d8f7c9b6d-2xkqv on worker-3 after 3.2s: " +
			"replacement api-5d8f7c9b6d-q9h4s",
	})
	intent := schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "api"}, Node: "n1", Reason: "does not tolerate x"}
	checkTexts(t, []described{
		{"an eviction", schemas.Verdict{Outcome: schemas.Evicted, Intent: intent}, "evicted from n1: does not tolerate x"},
		{"an eviction that was not one", schemas.Verdict{Outcome: schemas.Evicted, Intent: intent, DryRun: true},
			"evicted (dry run) from n1: does not tolerate x"},
		{"a deferral", schemas.Verdict{Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget, Message: "m", Intent: intent},
			"deferred: DisruptionBudget: m"},
		{"an eviction in place of a restart",
			schemas.Verdict{
				Outcome: schemas.Evicted, Intent: intent, Method: schemas.MethodEviction,
				Instead: &schemas.Instead{Method: schemas.MethodRestart, Reason: schemas.ReasonRestartVolume},
			}, "evicted from n1 instead of rollout-restart (RestartVolume): does not tolerate x"},
		{"a request", schemas.Verdict{Outcome: schemas.Requested, Intent: intent, Method: schemas.MethodBackground},
			"requested from n1 by background-eviction: does not tolerate x"},
		{"the end of a move before its replacement has a node",
			schemas.Verdict{
				Outcome: schemas.Settled, Reason: schemas.ReasonReplacementPending, Intent: intent,
				Settlement: &schemas.Settlement{Replacement: &schemas.PodRef{Namespace: "web", Name: "api-2"}, Seconds: 600},
			}, "settled ReplacementPending web/api after 600.0s: replacement api-2"},
		{"the end of a move without a replacement",
			schemas.Verdict{
				Outcome: schemas.Settled, Reason: schemas.ReasonNotReplaced, Message: "m", Intent: intent,
				Settlement: &schemas.Settlement{Seconds: 60.04},
			}, "settled NotReplaced web/api after 60.0s: m"},
		{"the end of a move that failed",
			schemas.Verdict{
				Outcome: schemas.Settled, Reason: schemas.ReasonMoveFailed, Message: "m", Intent: intent,
				Settlement: &schemas.Settlement{Seconds: 3600},
			}, "settled MoveFailed web/api after 3600.0s: m"},
		{"the end of a move that does not say how", schemas.Verdict{Outcome: schemas.Settled, Reason: "New", Message: "m", Intent: intent},
			"settled: New: m"},
	})
}
