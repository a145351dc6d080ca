package dispatch

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

var at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func pod(name, node string) schemas.ScopedPod {
	return schemas.ScopedPod{Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}}
}

// asked returns the scope of a node with three pods. One is protected, and one has ended.
func asked(t testing.TB) (schemas.Event, schemas.ScopeHead) {
	t.Helper()
	guarded := pod("guarded", "worker-1")
	guarded.Protected = []schemas.Protection{{Rule: "DaemonSetPods", Detail: "it belongs to the DaemonSet agent"}}
	ended := pod("ended", "worker-1")
	ended.Pod.Status.Phase = corev1.PodFailed
	s := schemas.NodeScope{
		ScopeHead: schemas.ScopeHead{
			Kind: schemas.NodeKind, Key: "worker-1", Profile: "default", Strategy: "KeepOffSpot", Now: at, Since: at,
		},
		Pods: []schemas.ScopedPod{pod("cart", "worker-1"), guarded, ended},
	}
	e := schematest.Event(t, "/test", s, at, schemas.Event{})
	return e, s.ScopeHead
}

// right returns an answer to that scope that moves two pods.
func right(scope schemas.Event) schemas.Intents {
	intent := func(name, reason string) schemas.Intent {
		return schemas.Intent{
			ID: "mine", Pod: schemas.PodRef{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}, Node: "worker-1",
			Reason: reason, Expires: at.Add(100 * time.Hour),
		}
	}
	return schemas.Intents{
		Profile: "default", Strategy: "KeepOffSpot",
		Scope:   schemas.ScopeRef{Kind: schemas.NodeKind, Key: "worker-1", Event: scope.ID, Sequence: 99, Since: at.Add(time.Hour)},
		Intents: []schemas.Intent{intent("ended", "it has failed"), intent("cart", "")},
	}
}

// replyOf returns the event with an answer.
func replyOf(t *testing.T, a schemas.Intents) schemas.Event {
	t.Helper()
	data := expect.ToJSON(t, a)
	return schemas.Event{ID: "9", Source: "/f", Type: schemas.IntentsType, Data: data}
}

func TestCheckTakesPodsAndReasons(t *testing.T) {
	scope, head := asked(t)
	got, err := check(scope, head, replyOf(t, right(scope)))
	want := []schemas.Intent{
		{Pod: schemas.PodRef{Namespace: "shop", Name: "ended", UID: "uid-ended"}, Node: "worker-1", Ended: true, Reason: "it has failed"},
		{Pod: schemas.PodRef{Namespace: "shop", Name: "cart", UID: "uid-cart"}, Node: "worker-1", Reason: "KeepOffSpot gave no reason"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

func TestCheckInvalidAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*schemas.Intents)
		want   string
	}{
		"another strategy": {func(a *schemas.Intents) { a.Strategy = "PodLifeTime" }, `strategy: want "KeepOffSpot", got "PodLifeTime"`},
		"another profile":  {func(a *schemas.Intents) { a.Profile = "other" }, `profile: want "default", got "other"`},
		"another kind":     {func(a *schemas.Intents) { a.Scope.Kind = schemas.PodKind }, `scope.kind: want "node", got "pod"`},
		"another key":      {func(a *schemas.Intents) { a.Scope.Key = "worker-2" }, `scope.key: want "worker-1", got "worker-2"`},
		"another event":    {func(a *schemas.Intents) { a.Scope.Event = "older" }, `scope.event: want "SCOPE", got "older"`},
		"no list":          {func(a *schemas.Intents) { a.Intents = nil }, `intents: want a list, empty if no pod should move, got none`},
		"a pod outside the scope": {
			func(a *schemas.Intents) {
				a.Intents[1].Pod = schemas.PodRef{Namespace: "kube-system", Name: "dns", UID: "uid-dns"}
			},
			`intents[1]: the pod "kube-system"/"dns" with the UID "uid-dns" is not in the scope, or is listed twice`,
		},
		"a pod without a UID": {
			func(a *schemas.Intents) { a.Intents[1].Pod.UID = "" },
			`intents[1]: the pod "shop"/"cart" with the UID "" is not in the scope, or is listed twice`,
		},
		"a new pod with the same name": {
			func(a *schemas.Intents) { a.Intents[1].Pod.UID = "uid-cart-2" },
			`intents[1]: the pod "shop"/"cart" with the UID "uid-cart-2" is not in the scope, or is listed twice`,
		},
		"the name of another pod": {
			func(a *schemas.Intents) { a.Intents[1].Pod.Name = "guarded" },
			`intents[1]: the pod with the UID uid-cart is shop/cart, not "shop"/"guarded"`,
		},
		"another namespace": {
			func(a *schemas.Intents) { a.Intents[1].Pod.Namespace = "web" },
			`intents[1]: the pod with the UID uid-cart is shop/cart, not "web"/"cart"`,
		},
		"another node": {
			func(a *schemas.Intents) { a.Intents[0].Node = "worker-2" },
			`intents[0]: the pod shop/ended is on worker-1, not on "worker-2"`,
		},
		"a protected pod": {
			func(a *schemas.Intents) { a.Intents[0].Pod.Name, a.Intents[0].Pod.UID = "guarded", "uid-guarded" },
			`intents[0]: the pod shop/guarded is protected: DaemonSetPods: it belongs to the DaemonSet agent`,
		},
		"a pod twice": {
			func(a *schemas.Intents) { a.Intents[1] = a.Intents[0] },
			`intents[1]: the pod "shop"/"ended" with the UID "uid-ended" is not in the scope, or is listed twice`,
		},
		"more intents than pods": {
			func(a *schemas.Intents) { a.Intents = append(a.Intents, a.Intents...) },
			`intents: want at most the 3 pods of the scope, got 4`,
		},
	} {
		scope, head := asked(t)
		a := right(scope)
		c.change(&a)
		got, err := check(scope, head, replyOf(t, a))
		want := "invalid event: " + strings.Replace(c.want, "SCOPE", scope.ID, 1)
		if got != nil || !errors.Is(err, schemas.ErrInvalid) || err.Error() != want {
			t.Errorf("%s: got %+v, %v\nwant %s", name, got, err, want)
		}
	}
}

func TestCheckInvalidEvents(t *testing.T) {
	scope, head := asked(t)
	for name, reply := range map[string]schemas.Event{
		"another type":  {ID: "9", Source: "/f", Type: schemas.VerdictType, Data: []byte(`{}`)},
		"another shape": {ID: "9", Source: "/f", Type: schemas.IntentsType, Data: []byte(`{"intents":7}`)},
		"the scope":     scope,
	} {
		if got, err := check(scope, head, reply); got != nil || !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: got %+v, %v; want an error that is ErrInvalid", name, got, err)
		}
	}
}

func TestReasonOf(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"plain":             {"it is on spot", "it is on spot"},
		"none":              {"", "KeepOffSpot gave no reason"},
		"only space":        {" \n\t", "KeepOffSpot gave no reason"},
		"lines":             {"one\r\n two\x00three\x1b[31m", "one two three [31m"},
		"no text":           {"a\xffb", "ab"},
		"long":              {strings.Repeat("x", 100000), strings.Repeat("x", mostReason) + "…"},
		"cut inside a rune": {strings.Repeat("x", mostReason-1) + "éé", strings.Repeat("x", mostReason-1) + "…"},
	} {
		if got := reasonOf(c.text, "KeepOffSpot"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
