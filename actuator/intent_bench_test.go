package actuator

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/schematest"
)

// benchAnswer returns the answer to evaluation number sequence of a node.
func benchAnswer(pods, sequence int, now time.Time) schemas.Intents {
	a := schemas.Intents{
		Profile: "default", Strategy: "RemovePodsViolatingNodeTaints",
		Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "node-0007", Event: fmt.Sprint(sequence), Sequence: uint64(sequence)},
	}
	for i := range pods {
		a.Intents = append(a.Intents, schemas.Intent{
			ID: fmt.Sprintf("%d.%d", sequence, i), Pod: schemas.PodRef{Namespace: "web", Name: fmt.Sprintf("api-%d", i), UID: types.UID(fmt.Sprint(i))},
			Node: "node-0007", Reason: "does not tolerate dedicated=gpu:NoSchedule", Expires: now.Add(10 * time.Minute),
		})
	}
	return a
}

func BenchmarkReadAnswer(b *testing.B) {
	for _, pods := range []int{20, 110} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			now := time.Unix(1_790_000_000, 0)
			e := schematest.Event(b, "/s", benchAnswer(pods, 1, now), now, schemas.Event{})
			for b.Loop() {
				if _, err := readMessage(e, noon); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
