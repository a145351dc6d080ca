package cloudevent

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
)

func TestTrimmedSpaces(t *testing.T) {
	want := schemas.Event{ID: "1", Source: "a", Type: "t", Subject: "a b", Data: []byte("{}")}
	document := `{"specversion":"1.0","id":" 1","source":"a","type":"\tt ","subject":" a b ","data":{}}`
	if got, err := ReadStructured([]byte(document)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("structured: got %+v, %v; want %+v", got, err, want)
	}
	attributes := map[string]string{"specversion": "1.0", "id": " 1", "source": "a", "type": "\tt ", "subject": " a b "}
	if got, err := ReadBinary(attributes, []byte("{}")); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("binary: got %+v, %v; want %+v", got, err, want)
	}
}

func TestFiveDigitYear(t *testing.T) {
	for name, at := range map[string]string{"time": "9999-12-31T23:59:59-01:00", "expirytime": "0000-01-01T00:00:00+01:00"} {
		attributes := map[string]string{"specversion": "1.0", "id": "1", "source": "a", "type": "t", name: at}
		_, err := ReadBinary(attributes, []byte("{}"))
		if !errors.Is(err, schemas.ErrInvalid) || !strings.Contains(err.Error(), name+": ") {
			t.Errorf("%s: got %v, want an error that is ErrInvalid and names it", name, err)
		}
	}
}
