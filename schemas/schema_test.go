package schemas_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestSchema(t *testing.T) {
	for _, typ := range schemas.EventTypes() {
		got, err := schemas.Schema(typ)
		if err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		var s struct {
			ID string `json:"$id"`
		}
		expect.Must(t, json.Unmarshal(got, &s))
		if want := "/v1/" + strings.Split(typ, ".")[2] + ".schema.json"; !strings.HasSuffix(s.ID, want) {
			t.Errorf("%s: $id is %q, want one that ends in %q", typ, s.ID, want)
		}
	}
}

func TestSchemaOfUnknownType(t *testing.T) {
	for _, typ := range []string{
		"", "delta", "dev.rehome.delta", "dev.rehome.delta.v2", "dev.rehome.nothing.v1", "com.example.delta.v1",
		"dev.rehome.../v1/delta.v1", "dev.rehome.delta.v1.more",
	} {
		if _, err := schemas.Schema(typ); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%q: got error %v, want one that wraps ErrInvalid", typ, err)
		}
	}
}

// with returns e with the value at a path of its data set; a number in the path is an index.
func with(t *testing.T, e schemas.Event, value any, path ...any) schemas.Event {
	t.Helper()
	data := expect.FromJSON[any](t, e.Data)
	at := data
	for _, step := range path[:len(path)-1] {
		switch s := step.(type) {
		case string:
			at = at.(map[string]any)[s]
		case int:
			at = at.([]any)[s]
		}
	}
	last := path[len(path)-1].(string)
	if value == nil {
		delete(at.(map[string]any), last)
	} else {
		at.(map[string]any)[last] = value
	}
	e.Data = expect.ToJSON(t, data)
	return e
}

func TestUnknownFields(t *testing.T) {
	closed, err := schematest.New()
	expect.Must(t, err)
	open, err := schematest.NewOpen()
	expect.Must(t, err)
	delta, _ := example[schemas.Delta](t, "delta")
	scope, _ := example[schemas.NodeScope](t, "scope")
	intents, _ := example[schemas.Intents](t, "intents")
	verdict, _ := example[schemas.Verdict](t, "verdict-deferred")
	settled, _ := example[schemas.Verdict](t, "verdict-settled")
	told, _ := example[schemas.Maintenance](t, "maintenance")
	refused, _ := example[schemas.Maintenance](t, "maintenance-refused")
	for _, e := range []schemas.Event{
		with(t, delta, 1, "unknown"),
		with(t, delta, 1, "object", "unknown"),
		with(t, delta, 1, "after", "unknown"),
		with(t, scope, 1, "unknown"),
		with(t, scope, 1, "causes", 0, "unknown"),
		with(t, scope, 1, "pods", 0, "unknown"),
		with(t, scope, 1, "pods", 0, "protected", 0, "unknown"),
		with(t, intents, 1, "unknown"),
		with(t, intents, 1, "scope", "unknown"),
		with(t, intents, 1, "intents", 0, "unknown"),
		with(t, intents, 1, "intents", 0, "pod", "unknown"),
		with(t, verdict, 1, "unknown"),
		with(t, verdict, 1, "blockers", 0, "unknown"),
		with(t, settled, 1, "workload", "unknown"),
		with(t, settled, 1, "settlement", "unknown"),
		with(t, settled, 1, "settlement", "replacement", "unknown"),
		with(t, told, 1, "unknown"),
		with(t, told, 1, "summary", "unknown"),
		with(t, told, 1, "nodes", 0, "unknown"),
		with(t, told, 1, "nodes", 0, "blocked", 0, "unknown"),
		with(t, refused, 1, "refusal", "unknown"),
	} {
		if err := open.Validate(e); err != nil {
			t.Errorf("published schema: %v", err)
		}
		if err := closed.Validate(e); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("closed schema: got error %v for %s, want one that wraps ErrInvalid", err, e.Data)
		}
	}
}

func TestKubernetesObjectsMayHaveOtherFields(t *testing.T) {
	delta, _ := example[schemas.Delta](t, "delta")
	scope, _ := example[schemas.NodeScope](t, "scope")
	schematest.Check(t,
		with(t, delta, 1, "after", "taints", 0, "unknown"),
		with(t, scope, 1, "args", "unknown"),
		with(t, scope, 1, "node", "unknown"),
		with(t, scope, 1, "node", "metadata", "unknown"),
		with(t, scope, 1, "pods", 0, "pod", "spec", "unknown"),
		with(t, scope, 1, "pods", 0, "pod", "spec", "containers", 0, "unknown"),
	)
}

func instead(method, reason string) map[string]any {
	return map[string]any{"method": method, "reason": reason, "message": "m"}
}

func TestEvictionWithInstead(t *testing.T) {
	evicted, _ := example[schemas.Verdict](t, "verdict")
	schematest.Check(t,
		with(t, evicted, instead("rollout-restart", "RestartVolume"), "instead"),
		with(t, evicted, instead("surge", "RestartNoRoom"), "instead"),
	)
}

func TestInvalidEvents(t *testing.T) {
	delta, _ := example[schemas.Delta](t, "delta")
	gone, _ := example[schemas.Delta](t, "delta-pod")
	scope, _ := example[schemas.NodeScope](t, "scope")
	intents, _ := example[schemas.Intents](t, "intents")
	verdict, _ := example[schemas.Verdict](t, "verdict")
	restarted, _ := example[schemas.Verdict](t, "verdict-restarted")
	settled, _ := example[schemas.Verdict](t, "verdict-settled")
	told, _ := example[schemas.Maintenance](t, "maintenance")
	envelope := func(e schemas.Event, change func(*schemas.Event)) schemas.Event {
		change(&e)
		return e
	}
	v, err := schematest.New()
	expect.Must(t, err)
	for name, e := range map[string]schemas.Event{
		"an unknown kind":                           with(t, delta, "node.painted", "kind"),
		"a node with a node":                        with(t, delta, "worker-7", "node"),
		"a pod without a namespace":                 with(t, gone, nil, "object", "namespace"),
		"a taint without an effect":                 with(t, delta, nil, "after", "taints", 0, "effect"),
		"a node scope without a node":               with(t, scope, nil, "node"),
		"an invalid time":                           with(t, scope, "yesterday", "now"),
		"an invalid quantity":                       with(t, scope, "much", "node", "status", "capacity", "cpu"),
		"pods that are null":                        with(t, scope, json.RawMessage("null"), "pods"),
		"causes that are null":                      with(t, scope, json.RawMessage("null"), "causes"),
		"intents that are null":                     with(t, intents, json.RawMessage("null"), "intents"),
		"an intent without an id":                   with(t, intents, "", "intents", 0, "id"),
		"a sequence below zero":                     with(t, intents, -1, "scope", "sequence"),
		"an unknown outcome":                        with(t, verdict, "vanished", "outcome"),
		"a reason of another outcome":               with(t, verdict, "PodGone", "reason"),
		"an unknown method":                         with(t, restarted, "persuasion", "method"),
		"an unknown method in instead":              with(t, restarted, instead("persuasion", "RestartNoRoom"), "instead"),
		"a wrong reason in instead":                 with(t, restarted, instead("surge", "Replaced"), "instead"),
		"a settlement of a new move":                with(t, restarted, map[string]any{"seconds": 1}, "settlement"),
		"a settled move without a settlement":       with(t, settled, nil, "settlement"),
		"a settlement without its time":             with(t, settled, nil, "settlement", "seconds"),
		"a settlement before the move began":        with(t, settled, -1, "settlement", "seconds"),
		"a maintenance without a UID":               with(t, told, nil, "uid"),
		"a maintenance without accepted":            with(t, told, nil, "accepted"),
		"a maintenance without a summary":           with(t, told, nil, "summary"),
		"a node of a maintenance without a stage":   with(t, told, nil, "nodes", 0, "stage"),
		"a negative number of other nodes":          with(t, told, -1, "more"),
		"a refusal without a reason":                with(t, told, map[string]any{"message": "m"}, "refusal"),
		"a node change without an action":           with(t, told, []any{map[string]any{"name": "n", "uid": "u"}}, "changes"),
		"an event without an id":                    envelope(delta, func(e *schemas.Event) { e.ID, e.CorrelationID = "", "" }),
		"an event without a time":                   envelope(scope, func(e *schemas.Event) { e.Time = time.Time{} }),
		"an event without a source":                 envelope(delta, func(e *schemas.Event) { e.Source = "" }),
		"an event without a trace":                  envelope(delta, func(e *schemas.Event) { e.TraceParent = "" }),
		"an invalid trace":                          envelope(delta, func(e *schemas.Event) { e.TraceParent = "00-1-2-01" }),
		"an unknown type":                           envelope(delta, func(e *schemas.Event) { e.Type = "dev.rehome.rumour.v1" }),
		"a wrong subject":                           envelope(delta, func(e *schemas.Event) { e.Subject = "nodes/worker-8" }),
		"a wrong NATS subject":                      envelope(delta, func(e *schemas.Event) { e.Channel = "rehome.delta.node.taints.worker-8" }),
		"a first event with another correlation ID": envelope(delta, func(e *schemas.Event) { e.CorrelationID = "another" }),
		"data that is not JSON":                     envelope(delta, func(e *schemas.Event) { e.Data = json.RawMessage("{") }),
	} {
		if err := v.Validate(e); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: got error %v, want one that wraps ErrInvalid", name, err)
		}
	}
}
