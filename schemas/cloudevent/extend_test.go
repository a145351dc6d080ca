package cloudevent

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestExtend(t *testing.T) {
	document, err := WriteStructured(full)
	expect.Must(t, err)
	extended, err := Extend(document, map[string]string{"team": `the "shop"`, "correlationid": "other"})
	expect.Must(t, err)
	want := full
	want.CorrelationID = "other"
	if got, err := ReadStructured(extended); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, want)
	}
	var fields map[string]any
	if err := json.Unmarshal(extended, &fields); err != nil || fields["team"] != `the "shop"` {
		t.Errorf("got %v, %v; want the team", fields, err)
	}
	for _, wrong := range []string{"", "{", "[]"} {
		if got, err := Extend([]byte(wrong), map[string]string{"team": "shop"}); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%q: got %s, %v; want ErrInvalid", wrong, got, err)
		}
	}
}

func TestCheckExtension(t *testing.T) {
	for _, name := range []string{"team", "team2", "correlationid", "7"} {
		if err := CheckExtension(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"":       `attribute "": want lower-case letters and digits`,
		"Team":   `attribute "Team": want lower-case letters and digits`,
		"my-key": `attribute "my-key": want lower-case letters and digits`,
		"id":     `attribute "id": want an extension, got a standard attribute`,
		"data":   `attribute "data": want an extension, got a standard attribute`,
	} {
		if err := CheckExtension(name); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", name, err, want)
		}
	}
}
