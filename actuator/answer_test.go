package actuator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// onKey changes the scope of an answer.
func onKey(kind schemas.ScopeKind, key string) func(*schemas.Intents) {
	return func(a *schemas.Intents) { a.Scope.Kind, a.Scope.Key = kind, key }
}

// manyIntents makes an answer list that many pods.
func manyIntents(n int) func(*schemas.Intents) {
	return func(a *schemas.Intents) {
		one := a.Intents[0]
		a.Intents = nil
		for i := range n {
			one.ID, one.Pod.UID = fmt.Sprint("i", i), types.UID(fmt.Sprint("u", i))
			a.Intents = append(a.Intents, one)
		}
	}
}

// readAs reads a changed answer with two intents, on its own subject.
func readAs(t *testing.T, change func(*schemas.Intents)) error {
	t.Helper()
	a, good := answerTo("A", 1, "1", "2")
	if _, err := readMessage(good, noon); err != nil {
		t.Fatal(err)
	}
	change(&a)
	e := schematest.Event(t, "/test", a, noon, schemas.Event{})
	e.ID = "x"
	_, err := readMessage(e, noon)
	return err
}

func TestInvalidAnswer(t *testing.T) {
	const incomplete = "an intents message needs profile, strategy, scope.kind and scope.key"
	for _, c := range []struct {
		name  string
		spoil func(*schemas.Intents)
		want  string
	}{
		{"no strategy", func(a *schemas.Intents) { a.Strategy = "" }, incomplete},
		{"no profile", func(a *schemas.Intents) { a.Profile = "" }, incomplete},
		{"no kind", func(a *schemas.Intents) { a.Scope.Kind = "" }, incomplete},
		{"no key", func(a *schemas.Intents) { a.Scope.Key = "" }, incomplete},
		{"no id", func(a *schemas.Intents) { a.Intents[1].ID = "" }, "intents[1] has no id"},
		{"one id twice", func(a *schemas.Intents) { a.Intents[1].ID = a.Intents[0].ID }, "intents[1] has a duplicate id, A-1.1"},
		{"no UID", func(a *schemas.Intents) { a.Intents[1].Pod.UID = "" }, "intents[1].pod has no uid"},
		{"a name that leads elsewhere", func(a *schemas.Intents) { a.Intents[1].Pod.Name = "../secrets" },
			`intents[1].pod has the invalid name "web/../secrets"`},
		{"no namespace", func(a *schemas.Intents) { a.Intents[1].Pod.Namespace = "" },
			`intents[1].pod has the invalid name "/pod-2"`},
		{"one pod twice", func(a *schemas.Intents) { a.Intents[1].Pod = a.Intents[0].Pod }, "intents[1] lists pod web/pod-1 again"},
		{"one UID twice, under two names", func(a *schemas.Intents) { a.Intents[1].Pod.UID = a.Intents[0].Pod.UID },
			"intents[1] lists pod web/pod-2 again"},
		{"no node", func(a *schemas.Intents) { a.Intents[1].Node = "" }, "intents[1] has no node"},
		{"no end", func(a *schemas.Intents) { a.Intents[1].Expires = time.Time{} }, "intents[1] never expires"},
		{"an end that is far", func(a *schemas.Intents) { a.Intents[1].Expires = noon.Add(time.Hour + time.Second) },
			"intents[1].expires is 2026-01-02T13:00:01Z, want at most 1h0m0s after 2026-01-02T12:00:00Z"},
		{"a pod of another node", func(a *schemas.Intents) { a.Intents[1].Node = "worker-2" },
			"intents[1].node is worker-2, but the scope is node worker-1"},
		{"another pod", onKey(schemas.PodKind, "web/pod-1"),
			"intents[1].pod is web/pod-2, but the scope is pod web/pod-1"},
		{"a pod of another namespace than the workload", onKey(schemas.WorkloadKind, "shop/ReplicaSet/web"),
			"intents[0].pod is web/pod-1, but the scope is in namespace shop"},
		{"a pod of another namespace than the constraint", onKey(schemas.SpreadKind, "shop/zone/abc"),
			"intents[0].pod is web/pod-1, but the scope is in namespace shop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := readAs(t, c.spoil)
			want := "event x: invalid event: " + strings.ReplaceAll(c.want, "2026-01-02", noon.Format(time.DateOnly))
			if !errors.Is(err, schemas.ErrInvalid) || err.Error() != want {
				t.Errorf("got  %v\nwant %s, that wraps ErrInvalid", err, want)
			}
		})
	}
}

func TestValidAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*schemas.Intents)
	}{
		{"pods of a workload, on any node", func(a *schemas.Intents) {
			onKey(schemas.WorkloadKind, "web/ReplicaSet/web")(a)
			a.Intents[1].Node = "worker-2"
		}},
		{"pods of a constraint", onKey(schemas.SpreadKind, "web/zone/abc")},
		{"the pod of a scope", func(a *schemas.Intents) {
			onKey(schemas.PodKind, "web/pod-1")(a)
			a.Intents = a.Intents[:1]
		}},
		{"pods of a domain, of any namespace", func(a *schemas.Intents) {
			onKey(schemas.DomainKind, "zone=a")(a)
			a.Intents[1].Pod.Namespace = "shop"
		}},
		{"pods of the cluster", onKey(schemas.UsageKind, "cluster")},
		{"a kind that is made later", onKey("rack", "r1")},
		{"as many pods as there may be", manyIntents(5000)},
		{"an end in an hour", func(a *schemas.Intents) { a.Intents[1].Expires = noon.Add(time.Hour) }},
	} {
		if err := readAs(t, c.change); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The time of an event is the clock of its host, so the longest time of an intent must count from the actuator's clock.
func TestWrongClockOfHost(t *testing.T) {
	a, _ := answerTo("A", 1, "1", "2")
	for _, skew := range []time.Duration{-2 * time.Hour, 0, 2 * time.Hour} {
		for _, c := range []struct {
			expires time.Duration
			invalid bool
		}{{10 * time.Minute, false}, {time.Hour + time.Second, true}} {
			a.Intents[1].Expires = noon.Add(c.expires)
			e := schematest.Event(t, "/test", a, noon.Add(skew), schemas.Event{})
			if _, err := readMessage(e, noon); errors.Is(err, schemas.ErrInvalid) != c.invalid {
				t.Errorf("made at %v by the host, expires in %v: got %v, want invalid %v", skew, c.expires, err, c.invalid)
			}
		}
	}
}

func TestAnswerSubjectMismatch(t *testing.T) {
	a, e := answerTo("A", 1, "1")
	for _, c := range []struct {
		name    string
		subject func(*schemas.Intents)
	}{
		{"another strategy", func(a *schemas.Intents) { a.Strategy = "B" }},
		{"another profile", func(a *schemas.Intents) { a.Profile = "other" }},
		{"another kind", func(a *schemas.Intents) { a.Scope.Kind = schemas.DomainKind }},
		{"another key", func(a *schemas.Intents) { a.Scope.Key = "worker-2" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			other, forged := a, e
			c.subject(&other)
			forged.Channel = other.Channel()
			want := fmt.Sprintf("event %s: invalid event: the subject is %s, want rehome.intents.A.default.node.worker-1 "+
				"for its profile, strategy, scope.kind and scope.key", e.ID, forged.Channel)
			if _, err := readMessage(forged, noon); !errors.Is(err, schemas.ErrInvalid) || err.Error() != want {
				t.Errorf("got  %v\nwant %s, that wraps ErrInvalid", err, want)
			}
		})
	}
}

// An invalid answer goes to the dead letters, and others are executed.
func TestForgedAnswerDeadLetter(t *testing.T) {
	late := func(a *schemas.Intents) { a.Intents[0].Expires = a.Intents[0].Expires.Add(2 * time.Hour) }
	for name, forge := range map[string]struct {
		answer func(*schemas.Intents)
		event  func(*schemas.Event)
	}{
		"unreadable":                         {nil, func(e *schemas.Event) { e.Data = []byte(`{"intents":7}`) }},
		"on the subject of another strategy": {nil, func(e *schemas.Event) { e.Channel = "rehome.intents.C.default.node.worker-1" }},
		"a pod of another node":              {func(a *schemas.Intents) { a.Intents[0].Node = "worker-2" }, nil},
		"an end that is far":                 {late, nil},
		"an end that is far, of an event that says that it is made then": {late, func(e *schemas.Event) { e.Time = e.Time.Add(2 * time.Hour) }},
		"an end that is far, of an event without a time":                 {late, func(e *schemas.Event) { e.Time = time.Time{} }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Policy: fast}, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
				a, _ := answerTo("A", 1, "1")
				a.Intents[0].Expires = b.start.Add(10 * time.Minute)
				if forge.answer != nil {
					forge.answer(&a)
				}
				forged := schematest.Event(t, "/test", a, b.start, schemas.Event{})
				if forge.event != nil {
					forge.event(&forged)
				}
				b.bus.put(forged)
				b.put("B", 1, "2")
				synctest.Wait()
				expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{{"B-1.2", schemas.ReasonEvictionAccepted, 0}})
				if len(b.bus.dead) != 1 || !errors.Is(b.bus.dead[0], schemas.ErrInvalid) {
					t.Errorf("dead letters %v, want one that wraps ErrInvalid", b.bus.dead)
				}
			})
		})
	}
}
