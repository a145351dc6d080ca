package schemas_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func exampleEvents(t *testing.T) []schemas.Event {
	t.Helper()
	var events []schemas.Event
	for _, e := range schematest.Examples(t) {
		events = append(events, e.Event)
	}
	return events
}

// example finds one example and decodes it.
func example[P schemas.Payload](t *testing.T, name string) (schemas.Event, P) {
	t.Helper()
	e := schematest.ExampleOf(t, name).Event
	return e, schematest.Decode[P](t, e)
}

// canonical is JSON with its fields in order and without white space. Numbers keep their digits.
func canonical(t *testing.T, document []byte) string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(string(document)))
	d.UseNumber()
	expect.Must(t, d.Decode(&v))
	return string(expect.ToJSON(t, v))
}

func TestValidExamples(t *testing.T) {
	schematest.Check(t, exampleEvents(t)...)
}

func TestExampleNames(t *testing.T) {
	var got []string
	for _, e := range schematest.Examples(t) {
		noun, _, more := strings.Cut(e.Name, "-")
		if want := "dev.rehome." + noun + ".v1"; e.Event.Type != want {
			t.Errorf("%s: type is %q, want %q", e.Name, e.Event.Type, want)
		}
		if !more {
			got = append(got, e.Event.Type)
		}
	}
	slices.Sort(got)
	expect.Equal(t, "types with an example", got, schemas.EventTypes())
}

func TestScopeKindExamples(t *testing.T) {
	got, want := map[string]string{}, map[string]string{"scope": "node"}
	for _, p := range schemas.ScopeTypes() {
		if kind := strings.ToLower(strings.TrimSuffix(reflect.TypeOf(p).Name(), "Scope")); kind != "node" {
			want["scope-"+kind] = kind
		}
	}
	for _, e := range schematest.Examples(t) {
		if e.Event.Type != schemas.ScopeType {
			continue
		}
		head, err := schemas.Decode[schemas.ScopeHead](e.Event)
		expect.Must(t, err)
		got[e.Name] = string(head.Kind)
	}
	expect.Equal(t, "kinds of the scopes", got, want)
}

func TestExamplesRoundTrip(t *testing.T) {
	for _, e := range schematest.Examples(t) {
		p, err := schemas.DecodePayload(e.Event)
		expect.Must(t, err)
		written := expect.ToJSON(t, p)
		expect.Equal(t, e.Name, canonical(t, written), canonical(t, e.Event.Data))
	}
}

func TestMoveExampleChain(t *testing.T) {
	delta, change := example[schemas.Delta](t, "delta")
	scope, question := example[schemas.NodeScope](t, "scope")
	intents, answer := example[schemas.Intents](t, "intents")
	deferred, later := example[schemas.Verdict](t, "verdict-deferred")
	evicted, done := example[schemas.Verdict](t, "verdict")
	restarted, begun := example[schemas.Verdict](t, "verdict-restarted")
	settled, over := example[schemas.Verdict](t, "verdict-settled")

	type link struct{ id, correlation, causation, trace string }
	linkOf := func(e schemas.Event) link {
		return link{e.ID, e.CorrelationID, e.CausationID, e.TraceParent[3:35]}
	}
	trace := delta.TraceParent[3:35]
	got := []link{
		linkOf(delta), linkOf(scope), linkOf(intents), linkOf(deferred), linkOf(evicted), linkOf(restarted), linkOf(settled),
	}
	want := []link{
		{delta.ID, delta.ID, "", trace},
		{scope.ID, delta.ID, delta.ID, trace},
		{intents.ID, delta.ID, scope.ID, trace},
		{deferred.ID, delta.ID, intents.ID, trace},
		{evicted.ID, delta.ID, intents.ID, trace},
		{restarted.ID, delta.ID, intents.ID, trace},
		{settled.ID, delta.ID, evicted.ID, trace},
	}
	expect.Equal(t, "chain", got, want)

	cause := schemas.Cause{Kind: schemas.CauseKind(change.Kind), Object: &change.Object, Event: delta.ID, Time: delta.Time}
	expect.Equal(t, "causes of the scope", question.Causes, []schemas.Cause{cause})
	ref := schemas.ScopeRef{
		Kind: question.Kind, Key: question.Key, Event: scope.ID, Sequence: answer.Scope.Sequence, Since: question.Since,
		Now: question.Now,
	}
	named := []schemas.ScopeRef{answer.Scope, later.Scope, done.Scope, begun.Scope, over.Scope}
	expect.Equal(t, "scopes named", named, []schemas.ScopeRef{ref, ref, ref, ref, ref})
	expect.Equal(t, "intents with a verdict", []schemas.Intent{later.Intent, done.Intent, begun.Intent}, answer.Intents)
	var movable []schemas.PodRef
	for _, p := range question.Pods {
		if len(p.Protected) == 0 {
			movable = append(movable, p.Move("").Pod)
		}
	}
	var moved []schemas.PodRef
	for _, i := range answer.Intents {
		moved = append(moved, i.Pod)
		if want := scope.ID + "." + string(i.Pod.UID); i.ID != want {
			t.Errorf("id of the intent is %q, want %q", i.ID, want)
		}
	}
	expect.Equal(t, "pods to move", moved, movable)

	end := done // the same pod, except for the result
	end.Outcome, end.Reason, end.Message, end.Settlement = over.Outcome, over.Reason, over.Message, over.Settlement
	expect.Equal(t, "the move that is settled", over, end)
	if took := settled.Time.Sub(evicted.Time).Seconds(); over.Outcome != schemas.Settled || over.Settlement.Seconds != took {
		t.Errorf("%s after %v seconds, want settled after %v", over.Outcome, over.Settlement.Seconds, took)
	}
}

func TestRequestExampleChain(t *testing.T) {
	asked, request := example[schemas.Request](t, "request")
	accepted, receipt := example[schemas.Receipt](t, "receipt")
	scope, question := example[schemas.RequestScope](t, "scope-request")
	finished, end := example[schemas.Receipt](t, "receipt-finished")
	for _, e := range []schemas.Event{accepted, scope, finished} {
		got := [...]string{e.CorrelationID, e.CausationID, e.TraceParent[3:35]}
		expect.Equal(t, "chain of "+e.Type, got, [...]string{asked.ID, asked.ID, asked.TraceParent[3:35]})
	}
	expect.Equal(t, "request of the scope", question.Request, request)
	expect.Equal(t, "causes", question.Causes, []schemas.Cause{{Kind: schemas.CauseRequest, Event: asked.ID, Time: question.Since}})
	var open []schemas.PodRef
	for _, p := range receipt.Pods {
		if len(p.Protected) == 0 {
			open = append(open, p.Pod)
		}
	}
	expect.Equal(t, "pods of the scope", []schemas.PodRef{question.Pods[0].Move("").Pod}, open)
	expect.Equal(t, "pods in the end", end.Gone+len(end.Remaining), len(receipt.Pods))
}

func TestMaintenanceExample(t *testing.T) {
	_, intents := example[schemas.Intents](t, "intents-maintenance")
	_, told := example[schemas.Maintenance](t, "maintenance")
	expect.Equal(t, "name", intents.Scope.Key, told.Name)
	for _, i := range intents.Intents {
		expect.Equal(t, "node of "+i.Pod.String(), i.Node, told.Nodes[0].Name)
	}
}

// checkLines compares the description of each example of a noun with "NOUN ABOUT: TEXT".
func checkLines(t *testing.T, noun string, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, e := range schematest.Examples(t) {
		if schemas.NounOf(e.Event.Type) == noun {
			noun, about, text := schemas.Describe(e.Event)
			got[e.Name] = noun + " " + about + ": " + text
		}
	}
	expect.Equal(t, "result", got, want)
}

// described is a payload with its description.
type described struct {
	name    string
	payload schemas.Payload
	want    string
}

func checkTexts(t *testing.T, cases []described) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if _, got := c.payload.Describe(); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestDescribeUnreadableEvents(t *testing.T) {
	for _, typ := range []string{schemas.DeltaType, "dev.rehome.delta.v2"} {
		noun, about, text := schemas.Describe(schemas.Event{Type: typ, Subject: "nodes/n1", Data: []byte("{")})
		expect.Equal(t, typ, []string{noun, about, text}, []string{"event", "nodes/n1", typ})
	}
}
