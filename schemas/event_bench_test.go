package schemas_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/expect"
)

func benchIntents(n int) schemas.Intents {
	a := schemas.Intents{
		Profile: "default", Strategy: "RemovePodsViolatingNodeTaints",
		Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "node-0007", Event: "abc", Sequence: 7, Since: time.Unix(1_790_000_000, 0).UTC()},
	}
	for i := range n {
		a.Intents = append(a.Intents, schemas.Intent{
			ID:   fmt.Sprintf("abcdefghijklmnopqrstuvwxyz.%012d", i),
			Pod:  schemas.PodRef{Namespace: "web", Name: fmt.Sprintf("api-5d9c7b8f6d-%05d", i), UID: types.UID(fmt.Sprintf("%036d", i))},
			Node: "node-0007", Reason: "does not tolerate dedicated=gpu:NoSchedule", Expires: time.Unix(1_790_000_600, 0).UTC(),
		})
	}
	return a
}

func benchEncode(b *testing.B, p schemas.Payload) {
	b.Helper()
	cause := schemas.Event{ID: "cause", CorrelationID: "first"}
	for b.Loop() {
		e, err := schemas.NewEvent("/clusters/bench/role", p, time.Now(), cause)
		expect.Must(b, err)
		b.SetBytes(int64(len(e.Data)))
	}
}

func BenchmarkEncodeDelta(b *testing.B) {
	benchEncode(b, schemas.Delta{
		Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: "node-0007", UID: "uid"},
		After: &schemas.State{Taints: []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}},
	})
}

func BenchmarkEncodeIntents(b *testing.B) {
	for _, pods := range []int{20, 110} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) { benchEncode(b, benchIntents(pods)) })
	}
}

func BenchmarkDecodeIntents(b *testing.B) {
	for _, pods := range []int{20, 110} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			e, err := schemas.NewEvent("/s", benchIntents(pods), time.Now(), schemas.Event{})
			expect.Must(b, err)
			for b.Loop() {
				if _, err := schemas.Decode[schemas.Intents](e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeVerdict(b *testing.B) {
	a := benchIntents(1)
	benchEncode(b, schemas.Verdict{
		Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Message: "evicted from node-0007",
		Profile: a.Profile, Strategy: a.Strategy, Scope: a.Scope, Intent: a.Intents[0],
	})
}
