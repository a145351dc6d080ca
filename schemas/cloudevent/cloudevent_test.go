package cloudevent

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// full has a value for every attribute.
var full = schemas.Event{
	ID: "1234", Source: "/clusters/default/watcher", Type: schemas.DeltaType, Subject: `ns/naïve pod "x" 100%`,
	Time:          time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC),
	Expires:       time.Date(2026, 3, 4, 5, 16, 7, 0, time.UTC),
	CorrelationID: "root", CausationID: "parent",
	TraceParent:  "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	Installation: "0f7ad7f2-5f13-4a3e-8d3b-8d3c8e8f8d11/rehome",
	Data:         json.RawMessage(`{"kind":"node.taints","object":{"kind":"Node","name":"worker-1"}}`),
}

// least has no more than an event needs.
var least = schemas.Event{ID: "1", Source: "a", Type: "t", Data: json.RawMessage(`{}`)}

func TestRoundTripInBothModes(t *testing.T) {
	for _, want := range []schemas.Event{full, least} {
		headers := map[string][]string{}
		if err := WriteAttributes(want, func(name, value string) { headers["CE-"+name] = []string{value} }); err != nil {
			t.Fatal(err)
		}
		attributes, err := ReadAttributes(headers)
		expect.Must(t, err)
		if got, err := ReadBinary(attributes, want.Data); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("binary: error %v\ngot  %+v\nwant %+v", err, got, want)
		}
		document, err := WriteStructured(want)
		expect.Must(t, err)
		if got, err := ReadStructured(document); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("structured: error %v\ngot  %+v\nwant %+v", err, got, want)
		}
	}
}

func TestWriteAttributes(t *testing.T) {
	got := map[string]string{}
	if err := WriteAttributes(full, func(name, value string) { got[name] = value }); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"specversion": "1.0", "id": "1234", "source": "/clusters/default/watcher", "type": "dev.rehome.delta.v1",
		"subject":         "ns/na%C3%AFve%20pod%20%22x%22%20100%25",
		"time":            "2026-03-04T05:06:07.000000089Z",
		"datacontenttype": "application/json",
		"dataschema":      "https://rehome.dev/schemas/v1/delta.schema.json",
		"correlationid":   "root", "causationid": "parent",
		"traceparent":  "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"expirytime":   "2026-03-04T05:16:07Z",
		"installation": "0f7ad7f2-5f13-4a3e-8d3b-8d3c8e8f8d11/rehome",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestWriteIncompleteEvent(t *testing.T) {
	for name, change := range map[string]func(*schemas.Event){
		"no id":         func(e *schemas.Event) { e.ID = "" },
		"no source":     func(e *schemas.Event) { e.Source = "" },
		"no type":       func(e *schemas.Event) { e.Type = "" },
		"data not JSON": func(e *schemas.Event) { e.Data = json.RawMessage(`{`) },
	} {
		e := full
		change(&e)
		if got, err := WriteStructured(e); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: got %s, %v; want an error that is ErrInvalid", name, got, err)
		}
	}
}

func TestInvalidUTF8Data(t *testing.T) {
	attributes := map[string]string{"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}
	const want = `read CloudEvent "1": invalid event: data is not UTF-8`
	if e, err := ReadBinary(attributes, []byte("{\"a\":\"\xff\"}")); !errors.Is(err, schemas.ErrInvalid) || err.Error() != want {
		t.Errorf("got %+v, %v\nwant %s", e, err, want)
	}
}

func TestMissingAttributeOrder(t *testing.T) {
	want := `read CloudEvent "": invalid event: id: MUST be a non-empty string; source: REQUIRED; type: MUST be a non-empty string`
	for range 50 {
		if got, err := ReadStructured([]byte(`{"specversion":"1.0"}`)); err == nil || err.Error() != want {
			t.Fatalf("got %+v, %v\nwant %s", got, err, want)
		}
	}
}

func TestEventSchema(t *testing.T) {
	for eventType, want := range map[string]string{
		"dev.rehome.verdict.v1":      "https://rehome.dev/schemas/v1/verdict.schema.json",
		"dev.rehome.scope.v2":        "https://rehome.dev/schemas/v2/scope.schema.json",
		"dev.rehome.scope":           "",
		"dev.rehome.scope.v":         "",
		"dev.rehome.scope.2":         "",
		"dev.rehome.%0X00.v1":        "",
		"dev.rehome..v1":             "",
		"dev.rehome.scope.v1.x":      "",
		"io.example.something.else1": "",
	} {
		if got := schemaOf(eventType); got != want {
			t.Errorf("schema of %s: got %q, want %q", eventType, got, want)
		}
	}
}
