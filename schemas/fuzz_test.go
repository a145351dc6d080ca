package schemas_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/schematest"
)

var legalSubject = regexp.MustCompile(`^rehome(\.[A-Za-z0-9_=-]+)+$`)

// FuzzDecode checks that any data is either invalid, or can be encoded and decoded again and has a valid subject on one NATS
// subject without wildcards.
func FuzzDecode(f *testing.F) {
	for _, e := range schematest.Examples(f) {
		f.Add(e.Event.Type, []byte(e.Event.Data))
		f.Add(e.Event.Type, []byte(`{"kind":["`+e.Event.Type+`"],"key":null}`))
	}
	f.Add(schemas.ScopeType, []byte(`{"kind":"usage","args":{"a":"<\u2028>"},"now":"9999-12-31T23:59:59-23:00","key":"a *.>"}`))
	f.Add(schemas.IntentsType, []byte(`{"intents":[{"pod":{"uid":"\ud800"}},null],"Intents":[],"scope":null}`))
	f.Add(schemas.DeltaType, []byte(`{"kind":".. *","object":{"namespace":"\r\n","name":">"},"after":{"allocatable":{"cpu":"1e3"}}}`))
	f.Fuzz(func(t *testing.T, eventType string, data []byte) {
		e := schemas.Event{ID: "1", Source: "/fuzz", Type: eventType, Data: data}
		p, err := schematest.Payload(e)
		if err != nil {
			if !errors.Is(err, schemas.ErrInvalid) {
				t.Fatalf("error is not ErrInvalid: %v", err)
			}
			return
		}
		again, err := schemas.NewEvent("/fuzz", p, time.Time{}, schemas.Event{})
		if err != nil {
			t.Fatalf("read %+v, which cannot be written: %v", p, err)
		}
		second, err := schematest.Payload(again)
		if err != nil {
			t.Fatalf("%s cannot be read again: %v", again.Data, err)
		}
		written, err := json.Marshal(second)
		if err != nil || !bytes.Equal(written, again.Data) {
			t.Errorf("written as\n%s\nand after reading it, %v:\n%s", again.Data, err, written)
		}
		if _, delta := p.(schemas.Delta); !delta && !legalSubject.MatchString(p.Channel()) { // a delta kind is not encoded
			t.Errorf("the NATS subject is %q", p.Channel())
		}
		if scope, ok := second.(schemas.Scope); ok {
			one, err := schemas.DecodeScope(again, scope.Head().Kind)
			if err != nil || len(one.ScopedPods()) != len(scope.ScopedPods()) {
				t.Errorf("as a scope of any kind it has the pods %v, %v; want %v", one, err, scope.ScopedPods())
			}
		}
	})
}
