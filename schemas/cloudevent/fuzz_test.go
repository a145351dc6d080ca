package cloudevent_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// FuzzReadStructured checks that any document is either invalid, or an event that both modes write and read unchanged.
func FuzzReadStructured(f *testing.F) {
	for _, e := range schematest.Examples(f) {
		f.Add(e.Document)
	}
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"a","type":"t","data_base64":"e30=","data":{}}`))
	f.Add([]byte(`{"specversion":"1.0","id":"1","ID":"2","source":"%","type":"t","time":"2026-03-04T24:00:00Z","data":null}`))
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"a","type":"t","causationid":1e9,"expirytime":true,"data":"x"}`))
	f.Add([]byte(`{"specversion":"1.0","id":" 1","source":"a ","type":"\tt","subject":" s\u00a0","traceparent":" ","data":1}`))
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"a","type":"dev.rehome.%0X.v1","data":{}}`))
	f.Add([]byte(`[{"specversion":"1.0"}]`))
	f.Fuzz(func(t *testing.T, document []byte) {
		e, err := cloudevent.ReadStructured(document)
		check(t, e, err)
	})
}

// FuzzReadBinary does the same for headers.
func FuzzReadBinary(f *testing.F) {
	for _, e := range schematest.Examples(f) {
		f.Add("ce-id", e.Event.ID, e.Event.Type, e.Event.Subject, cloudevent.JSON, []byte(e.Event.Data))
	}
	f.Add("CE-Id", "%00%", "%C3%28", "a b", "application/json; charset=latin1", []byte(`{}`))
	f.Add("ce-", "1", "t", "", "text/json", []byte(`[1e400]`))
	f.Add("ce-id", "1", "t", "", cloudevent.JSON, []byte("\"\xff\""))
	f.Add("ce-expirytime", "0000-01-01T00:00:00+23:59", "t", "\x00", "", []byte(` 7 `))
	f.Fuzz(func(t *testing.T, name, value, eventType, subject, content string, data []byte) {
		attributes, err := cloudevent.ReadAttributes(map[string][]string{
			name: {value}, "ce-specversion": {"1.0"}, "ce-source": {"/fuzz"}, "ce-type": {eventType}, "ce-subject": {subject},
		})
		if err != nil {
			check(t, schemas.Event{}, err)
			return
		}
		if attributes["id"] == "" {
			attributes["id"] = "1"
		}
		attributes["datacontenttype"] = content
		e, err := cloudevent.ReadBinary(attributes, data)
		check(t, e, err)
	})
}

// check checks the result of reading an event.
func check(t *testing.T, e schemas.Event, err error) {
	t.Helper()
	if err != nil {
		if !errors.Is(err, schemas.ErrInvalid) {
			t.Fatalf("error is not ErrInvalid: %v", err)
		}
		return
	}
	if _, err := schemas.DecodePayload(e); err != nil && !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("error is not ErrInvalid: %v", err)
	}
	headers := map[string][]string{}
	if err := cloudevent.WriteAttributes(e, func(name, value string) { headers["ce-"+name] = []string{value} }); err != nil {
		t.Fatalf("read %+v, which cannot be written: %v", e, err)
	}
	attributes, err := cloudevent.ReadAttributes(headers)
	if err != nil {
		t.Fatalf("read %+v, whose headers %v cannot be read: %v", e, headers, err)
	}
	if got, err := cloudevent.ReadBinary(attributes, e.Data); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("binary: read %+v, and then %+v, %v", e, got, err)
	}
	document, err := cloudevent.WriteStructured(e)
	if err != nil {
		t.Fatalf("read %+v, which cannot be written as one document: %v", e, err)
	}
	got, err := cloudevent.ReadStructured(document)
	if err != nil || !sameJSON(got.Data, e.Data) {
		t.Fatalf("structured: read %+v, and then %+v, %v", e, got, err)
	}
	got.Data = e.Data // white space may differ
	if !reflect.DeepEqual(got, e) {
		t.Errorf("structured: read %+v, and then %+v", e, got)
	}
}

// sameJSON says whether two documents have the same values. Numbers are rounded alike.
func sameJSON(a, b []byte) bool {
	var one, other any
	if json.Unmarshal(a, &one) != nil || json.Unmarshal(b, &other) != nil {
		return string(a) == string(b) // a number beyond what Go counts to
	}
	return reflect.DeepEqual(one, other)
}
