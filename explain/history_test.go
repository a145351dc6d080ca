package explain_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestMain(m *testing.M) { bustest.Main(m) }

// at returns a time, in seconds after the start of the scenario.
func at(seconds int) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

// world is a bus with the events of one test.
type world struct {
	*testing.T
	bus     *bus.Bus
	answers int
}

func newWorld(t *testing.T) *world { return &world{T: t, bus: bustest.New(t)} }

// event returns an event with this ID, time, correlation ID, and cause.
func (w *world) event(id string, second int, p schemas.Payload, chain, cause string) schemas.Event {
	w.Helper()
	e := schematest.Event(w, "/test", p, at(second), schemas.Event{})
	e.ID, e.CorrelationID, e.CausationID = id, chain, cause
	return e
}

func (w *world) publish(e schemas.Event) {
	w.Helper()
	if _, err := w.bus.Publish(w.Context(), e); err != nil {
		w.Fatal(err)
	}
}

// taint publishes a taint on a node.
func (w *world) taint(id string, second int, node string) *schemas.Delta {
	w.Helper()
	d := schemas.Delta{
		Kind: schemas.NodeTaints, Object: schemas.ObjectRef{Kind: "Node", Name: node, UID: types.UID(node)},
		After: &schemas.State{Taints: []corev1.Taint{{Key: "gone", Effect: corev1.TaintEffectNoSchedule}}},
	}
	w.publish(w.event(id, second, d, id, ""))
	return &d
}

// change publishes a change of the pod db-0 with this UID.
func (w *world) change(id string, second int, kind schemas.DeltaKind, uid types.UID) {
	w.Helper()
	object := schemas.ObjectRef{Kind: "Pod", Namespace: "shop", Name: "db-0", UID: uid}
	w.publish(w.event(id, second, schemas.Delta{Kind: kind, Object: object, Node: "n1"}, id, ""))
}

// wants publishes an answer that lists these pods, and waits until it is in the history.
func (w *world) wants(id string, second int, node, chain, scope string, pods ...schemas.PodRef) {
	w.Helper()
	a := schemas.Intents{Profile: "p", Strategy: "Taints", Scope: scopeOf(node, scope, second)}
	for _, p := range pods {
		a.Intents = append(a.Intents, intentOf(p, node))
	}
	w.answers++
	a.Scope.Sequence = uint64(w.answers)
	if err := w.bus.Answer(w.Context(), w.event(id, second, a, chain, scope), a); err != nil {
		w.Fatal(err)
	}
	expect.Eventually(w, "the answer is in the history", func() bool {
		found := false
		err := w.bus.Events(w.Context(), bus.Query{Channels: []string{bus.IntentsChannels}}, func(e schemas.Event) error {
			found = found || e.ID == id
			return nil
		})
		return err == nil && found
	})
}

func scopeOf(node, event string, second int) schemas.ScopeRef {
	return schemas.ScopeRef{Kind: schemas.NodeKind, Key: node, Event: event, Since: at(second)}
}

func intentOf(p schemas.PodRef, node string) schemas.Intent {
	return schemas.Intent{ID: "i-" + string(p.UID), Pod: p, Node: node, Reason: "does not tolerate gone:NoSchedule", Expires: at(600)}
}

// verdict publishes a verdict on a pod of that node.
func (w *world) verdict(id string, second int, p schemas.PodRef, node, chain, cause string, v schemas.Verdict) {
	w.Helper()
	v.Profile, v.Strategy, v.Intent = "p", "Taints", intentOf(p, node)
	if v.Scope.Key == "" {
		v.Scope = scopeOf(node, "scope-of-"+cause, second)
	}
	w.publish(w.event(id, second, v, chain, cause))
}

// read returns the history of the pod shop/db-0.
func (w *world) read(q explain.Query) []explain.Life {
	w.Helper()
	q.Namespace, q.Name = "shop", "db-0"
	read := func(ctx context.Context, channels []string, since time.Time, handle func(schemas.Event) error) error {
		return w.bus.Events(ctx, bus.Query{Channels: channels, Since: since}, handle)
	}
	got, err := explain.Read(w.Context(), read, q)
	expect.Must(w, err)
	return got
}

func (w *world) same(got, want []explain.Life) {
	w.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	g, _ := json.MarshalIndent(got, "", "  ")
	x, _ := json.MarshalIndent(want, "", "  ")
	w.Errorf("got\n%s\nwant\n%s", g, x)
}

var (
	db0   = schemas.PodRef{Namespace: "shop", Name: "db-0", UID: "u-old"}
	db0b  = schemas.PodRef{Namespace: "shop", Name: "db-0", UID: "u-new"}
	other = schemas.PodRef{Namespace: "shop", Name: "web-1", UID: "u-web"}
)

// held is a deferral because of a PodDisruptionBudget.
func held() schemas.Verdict {
	return schemas.Verdict{Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget, Message: "2 of 2 needed"}
}

// step is an intent for the pod on n1, with the times of its answer and of its first and last verdict.
func step(made, said, last, times int) explain.Step {
	return explain.Step{
		Time: at(made), Profile: "p", Strategy: "Taints", Scope: "node/n1", Node: "n1", Why: "does not tolerate gone:NoSchedule",
		Times: times, Said: at(said), Last: at(last),
	}
}

func TestMoveChain(t *testing.T) {
	w := newWorld(t)
	d := w.taint("d1", 0, "n1")
	w.change("d2", 1, schemas.PodLabels, db0.UID)
	w.change("d3", 2, schemas.PodLabels, db0.UID)
	w.wants("a1", 1, "n1", "d1", "s1", other, db0)
	for i, id := range []string{"v1", "v2", "v3"} {
		w.verdict(id, 2+i, db0, "n1", "d1", "a1", held())
	}
	w.verdict("v4", 3, other, "n1", "d1", "a1", held())
	w.wants("a2", 8, "n1", "d1", "s2", db0)
	w.verdict("v5", 9, db0, "n1", "d1", "a2", schemas.Verdict{
		Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Message: "evicted from n1", Method: schemas.MethodEviction,
	})
	w.change("d4", 10, schemas.PodScheduled, db0b.UID)
	settlement := schemas.Settlement{Replacement: &db0b, Node: "n2", Seconds: 3}
	w.verdict("v6", 12, db0, "n1", "d1", "v5", schemas.Verdict{
		Outcome: schemas.Settled, Reason: schemas.ReasonReplaced, Message: "replaced", Settlement: &settlement,
	})

	deferred := step(1, 2, 4, 3)
	deferred.Outcome, deferred.Reason, deferred.Message = schemas.Deferred, schemas.ReasonDisruptionBudget, "2 of 2 needed"
	evicted := step(8, 9, 9, 1)
	evicted.Outcome, evicted.Reason, evicted.Message = schemas.Evicted, schemas.ReasonEvictionAccepted, "evicted from n1"
	evicted.Method = schemas.MethodEviction
	evicted.Settled = &explain.Settled{Time: at(12), Reason: schemas.ReasonReplaced, Message: "replaced", Settlement: settlement}
	w.same(w.read(explain.Query{}), []explain.Life{
		{
			Pod: db0, Chains: []explain.Chain{{ID: "d1", Began: at(0), Delta: d, Steps: []explain.Step{deferred, evicted}}},
			Changes: []explain.Changes{{Kind: schemas.PodLabels, Times: 2, First: at(1), Last: at(2)}},
		},
		{
			Pod: db0b, CameFor: &db0, Chains: []explain.Chain{},
			Changes: []explain.Changes{{Kind: schemas.PodScheduled, Times: 1, First: at(10), Last: at(10)}},
		},
	})
}

func TestMergeUnchangedChains(t *testing.T) {
	w := newWorld(t)
	said := []schemas.Verdict{held(), held(), {Outcome: schemas.Rejected, Reason: schemas.ReasonProtected, Message: "it is"}, held()}
	for i, v := range said {
		id := string(rune('a' + i))
		v.Scope = scopeOf("n1", "s-"+id, i)
		w.verdict("v-"+id, i, db0, "n1", "s-"+id, "answer-"+id, v)
	}
	first, second, third := step(0, 0, 1, 2), step(2, 2, 2, 1), step(3, 3, 3, 1)
	for _, s := range []*explain.Step{&first, &third} {
		s.Outcome, s.Reason, s.Message = schemas.Deferred, schemas.ReasonDisruptionBudget, "2 of 2 needed"
	}
	second.Outcome, second.Reason, second.Message = schemas.Rejected, schemas.ReasonProtected, "it is"
	const without = "no change: a full evaluation, or a time was reached"
	w.same(w.read(explain.Query{}), []explain.Life{{Pod: db0, Chains: []explain.Chain{
		{ID: "s-a", Began: at(0), Without: without, Steps: []explain.Step{first}},
		{ID: "s-c", Began: at(2), Without: without, Steps: []explain.Step{second}},
		{ID: "s-d", Began: at(3), Without: without, Steps: []explain.Step{third}},
	}}})
}

func TestIntentWithoutVerdict(t *testing.T) {
	w := newWorld(t)
	d := w.taint("d1", 0, "n1")
	w.wants("a1", 1, "n1", "d1", "s1", db0)
	w.wants("a2", 2, "n1", "d1", "s2", db0) // the same intent again
	v := held()
	v.Scope = scopeOf("n1", "s1", 1)
	w.verdict("v1", 3, db0, "n1", "d1", "a1", v)
	w.wants("a3", 4, "n1", "d1", "s3", db0)
	deferred, open := step(1, 3, 3, 1), step(4, 0, 0, 1)
	deferred.Outcome, deferred.Reason, deferred.Message = schemas.Deferred, schemas.ReasonDisruptionBudget, "2 of 2 needed"
	open.Said, open.Last, open.Expires = time.Time{}, time.Time{}, at(600)
	want := []explain.Life{{
		Pod: db0, Chains: []explain.Chain{{ID: "d1", Began: at(0), Delta: d, Steps: []explain.Step{deferred, open}}},
	}}
	w.same(w.read(explain.Query{}), want)
	w.same(w.read(explain.Query{Node: "n1"}), want)
}

func TestIntentsOfNode(t *testing.T) {
	w := newWorld(t)
	w.wants("a1", 1, "n1", "gone", "s1", db0)
	open := step(1, 0, 0, 1)
	open.Said, open.Last, open.Expires = time.Time{}, time.Time{}, at(600)
	want := []explain.Life{{Pod: db0, Chains: []explain.Chain{{
		ID: "gone", Began: at(1), Without: "the change that started it is no longer stored", Steps: []explain.Step{open},
	}}}}
	w.same(w.read(explain.Query{}), want)
	w.same(w.read(explain.Query{Node: "n1"}), want)
	w.same(w.read(explain.Query{Node: "n2"}), []explain.Life{})
}

func TestChangeOfAnotherNode(t *testing.T) {
	w := newWorld(t)
	d := w.taint("d1", 0, "n9") // another node gained capacity, or a group became uneven
	v := held()
	v.Scope = schemas.ScopeRef{Kind: schemas.WorkloadKind, Key: "shop/Deployment/db", Event: "s1", Since: at(0)}
	w.verdict("v1", 3, db0, "n1", "d1", "a1", v)
	deferred := step(3, 3, 3, 1)
	deferred.Scope = "workload/shop/Deployment/db"
	deferred.Outcome, deferred.Reason, deferred.Message = schemas.Deferred, schemas.ReasonDisruptionBudget, "2 of 2 needed"
	w.same(w.read(explain.Query{}), []explain.Life{{
		Pod: db0, Chains: []explain.Chain{{ID: "d1", Began: at(0), Delta: d, Steps: []explain.Step{deferred}}},
	}})
}

func TestRequestedMove(t *testing.T) {
	w := newWorld(t)
	v := held()
	v.Scope = schemas.ScopeRef{Kind: schemas.RequestKind, Key: "admin/drain", Event: "s1", Since: at(0)}
	w.verdict("v1", 3, db0, "n1", "r1", "a1", v)
	deferred := step(3, 3, 3, 1)
	deferred.Scope = "request/admin/drain"
	deferred.Outcome, deferred.Reason, deferred.Message = schemas.Deferred, schemas.ReasonDisruptionBudget, "2 of 2 needed"
	w.same(w.read(explain.Query{}), []explain.Life{{Pod: db0, Chains: []explain.Chain{{
		ID: "r1", Began: at(3), Without: "requested: admin/drain", Steps: []explain.Step{deferred},
	}}}})
}

func TestSince(t *testing.T) {
	w := newWorld(t)
	w.verdict("v1", 3, db0, "n1", "d1", "a1", held())
	w.same(w.read(explain.Query{Since: time.Now().Add(time.Hour)}), []explain.Life{})
}

func TestPodEventFilter(t *testing.T) {
	w := newWorld(t)
	var asked []string
	w.verdict("v1", 3, other, "n1", "d1", "a1", held())
	read := func(ctx context.Context, channels []string, since time.Time, handle func(schemas.Event) error) error {
		asked = append(asked, channels...)
		return w.bus.Events(ctx, bus.Query{Channels: channels, Since: since}, handle)
	}
	got, err := explain.Read(t.Context(), read, explain.Query{Namespace: "shop", Name: "db-0", Node: "n.1"})
	want := []string{
		"rehome.verdict.*.*.shop.db-0", "rehome.delta.pod.*.shop.db-0", "rehome.verdict.settled.*.shop.*",
		"rehome.intents.*.*.pod.shop=2Fdb-0", "rehome.intents.*.*.node.n_1", "rehome.intents.*.*.workload.*",
		"rehome.intents.*.*.spread.*", "rehome.intents.*.*.domain.*", "rehome.intents.*.*.usage.*",
		"rehome.intents.*.*.request.*", "rehome.intents.*.*.maintenance.*",
	}
	if err != nil || len(got) != 0 || !slices.Equal(asked, want) {
		t.Errorf("error %v, got %v, asked for\n%q\nwant\n%q", err, got, asked, want)
	}
}
