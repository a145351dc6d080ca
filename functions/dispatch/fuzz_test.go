package dispatch

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// FuzzCheck checks that any reply is either invalid, or moves unprotected pods of the scope, each once, from their node, with a
// reason on one line.
func FuzzCheck(f *testing.F) {
	scope, head := asked(f)
	scope.ID = "scope-1"
	for _, change := range []func(*schemas.Intents){
		func(*schemas.Intents) {},
		func(a *schemas.Intents) { a.Intents = []schemas.Intent{} },
		func(a *schemas.Intents) {
			a.Intents[0].Pod = schemas.PodRef{Namespace: "shop", Name: "guarded", UID: "uid-guarded"}
		},
		func(a *schemas.Intents) {
			a.Intents[0].Pod = schemas.PodRef{Namespace: "shop", Name: "other", UID: "uid-other"}
		},
		func(a *schemas.Intents) { a.Intents[1] = a.Intents[0] },
		func(a *schemas.Intents) { a.Intents[0].Reason = strings.Repeat("ä\r\n\x00", 1000) },
		func(a *schemas.Intents) { a.Intents[0].Node = "worker-2" },
		func(a *schemas.Intents) { a.Strategy = "RemoveFailedPods" },
	} {
		answer := right(scope)
		change(&answer)
		data := expect.ToJSON(f, answer)
		f.Add(schemas.IntentsType, data)
	}
	f.Add(schemas.ScopeType, []byte(scope.Data))
	may := map[types.UID]string{"uid-cart": "shop/cart", "uid-ended": "shop/ended"}
	f.Fuzz(func(t *testing.T, eventType string, data []byte) {
		intents, err := check(scope, head, schemas.Event{ID: "9", Source: "/f", Type: eventType, Data: data})
		if err != nil {
			if !errors.Is(err, schemas.ErrInvalid) || len(intents) > 0 {
				t.Fatalf("got %+v, %v; want an error that is ErrInvalid, and no intents", intents, err)
			}
			return
		}
		moved := map[types.UID]bool{}
		for _, i := range intents {
			if may[i.Pod.UID] != i.Pod.String() || moved[i.Pod.UID] || i.Node != "worker-1" || i.Ended != (i.Pod.Name == "ended") {
				t.Errorf("it moves %+v", i)
			}
			if i.Reason == "" || len(i.Reason) > mostReason+len("…") || strings.ContainsAny(i.Reason, "\r\n\x00") ||
				!utf8.ValidString(i.Reason) {
				t.Errorf("the reason of %s is %q", i.Pod, i.Reason)
			}
			moved[i.Pod.UID] = true
		}
	})
}
