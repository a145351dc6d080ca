package cli

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/cli/run"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// FuzzOverrides checks that any K_CE_OVERRIDES either is refused, or has valid attributes that are always the same, and that a
// document with them stays valid and has them.
func FuzzOverrides(f *testing.F) {
	f.Add(`{"extensions": {"team": "shop", "Zone": "é%\n"}}`)
	f.Add(`{"extensions": {"Team": "1", "team": "2"}}`)
	f.Add(`{"extensions": {"id": "1"}}`)
	f.Add(`{"extensions": null, "Extensions": {"": 7}}`)
	f.Add(" \n")
	event := schemas.Event{ID: "1", Source: "/fuzz", Type: "t", Data: json.RawMessage(`{}`)}
	document, err := cloudevent.WriteStructured(event)
	expect.Must(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := run.Overrides(text)
		for range 8 { // each iteration visits a map in another order
			if again, other := run.Overrides(text); !reflect.DeepEqual(got, again) || (err == nil) != (other == nil) {
				t.Fatalf("got %v, %v, and then %v, %v", got, err, again, other)
			}
		}
		if err != nil {
			return
		}
		for name := range got {
			if err := cloudevent.CheckExtension(name); err != nil {
				t.Error(err)
			}
		}
		written := expect.ToJSON(t, map[string]any{"extensions": got})
		if again, err := run.Overrides(string(written)); err != nil || len(again) != len(got) || len(got) > 0 && !reflect.DeepEqual(again, got) {
			t.Errorf("%v was read as %v, %v", got, again, err)
		}
		extended, err := cloudevent.Extend(document, got)
		if err != nil || !json.Valid(extended) {
			t.Errorf("extended it is %s, %v", extended, err)
		}
	})
}
