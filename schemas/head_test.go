package schemas_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/schematest"
)

func TestTheHeadOfAScopeIsReadWithoutTheRest(t *testing.T) {
	for name, data := range map[string]string{
		"a scope":                      `{"kind":"node","key":"a","node":{"x":[1,{"y":"}"}]},"pods":[]}`,
		"the rest comes first":         `{"pods":[{"kind":"pod"}],"kind":"node","key":"a"}`,
		"the rest lies in between":     `{"kind":"node","node":{"key":"b"},"key":"a","causes":[{"kind":"resync"}]}`,
		"white space everywhere":       " \r\n{\t\"kind\" : \"node\" ,\n\"n\" : 1 ,\"key\": \"a\" }\n ",
		"quotes and backslashes":       `{"a":"\"}","b":"\\","c":"\\\"","kind":"node","key":"\"a\\"}`,
		"a name in upper case":         `{"KIND":"node","Key":"a"}`,
		"an escaped name":              `{"\u006bind":"node","key":"a"}`,
		"a name that folds":            "{\"\u212ae\u0079\":\"a\"}",
		"a member twice":               `{"key":"a","key":"b"}`,
		"arguments are kept as such":   `{"args":{ "a" : [1, 2] },"z":true}`,
		"numbers, null and booleans":   `{"a":-1.5e3,"b":null,"c":true,"key":"a"}`,
		"nothing":                      `{}`,
		"nothing of a head":            `{"a":{}}`,
		"null":                         `null`,
		"a list":                       `[{"kind":"node"}]`,
		"an invalid value":             `{"kind":7,"node":{}}`,
		"no end":                       `{"kind":"node","node":{`,
		"two objects":                  `{"kind":"node"}{"key":"a"}`,
		"a comma at the end":           `{"kind":"node",}`,
		"no comma":                     `{"kind":"node" "key":"a"}`,
		"nothing where a value is due": `{"kind":,"key":"a"}`,
		"nothing at all":               ``,
	} {
		sameHead(t, name, schemas.Event{ID: "1", Type: schemas.ScopeType, Data: json.RawMessage(data)})
	}
	sameHead(t, "another type", schemas.Event{ID: "1", Type: schemas.DeltaType, Data: json.RawMessage(`{"kind":"node"}`)})
}

// sameHead checks that DecodeHead returns what Decode returns.
func sameHead(t *testing.T, name string, e schemas.Event) {
	t.Helper()
	want, wantErr := schemas.Decode[schemas.ScopeHead](e)
	got, err := schemas.DecodeHead(e)
	if !reflect.DeepEqual(got, want) && wantErr == nil || (err == nil) != (wantErr == nil) ||
		err != nil && !errors.Is(err, schemas.ErrInvalid) {
		t.Errorf("%s: %.300s\ngot  %+v, %v\nwant %+v, %v", name, e.Data, got, err, want, wantErr)
	}
}

// FuzzDecodeHead: of all that is JSON the head is the one that is read when all of it is read, and nothing makes it fail
// otherwise than with ErrInvalid.
func FuzzDecodeHead(f *testing.F) {
	for _, e := range schematest.Examples(f) {
		f.Add([]byte(e.Event.Data))
	}
	f.Add([]byte(`{"a\"":"\\","KEY":"x","b":[{}],"args":{},"\u006bey":"y"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := schemas.Event{ID: "1", Type: schemas.ScopeType, Data: data}
		if json.Valid(data) {
			sameHead(t, "fuzz", e)
		} else if _, err := schemas.DecodeHead(e); err != nil && !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("error is not ErrInvalid: %v", err)
		}
	})
}
