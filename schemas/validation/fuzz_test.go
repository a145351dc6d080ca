package validation_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/validation"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/mutate"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// FuzzValidate checks that any document is valid and can be read as an event, or that the error has one line for each wrong field.
// The documents are arbitrary ones, and the published examples with changed values.
func FuzzValidate(f *testing.F) {
	v, err := validation.New(schemas.Files)
	expect.Must(f, err)
	for i, e := range schematest.Examples(f) {
		f.Add(e.Document, uint64(i), uint8(0))
		f.Add(e.Document, uint64(i), uint8(3))
	}
	f.Add([]byte(`{"type":"dev.rehome.unknown.v1"}`), uint64(0), uint8(0))
	f.Add([]byte("{\"type\":\"\xff\"}"), uint64(0), uint8(0))
	f.Add([]byte(`{"type":7,"data":1e400}{}`), uint64(0), uint8(0))
	f.Fuzz(func(t *testing.T, document []byte, seed uint64, changes uint8) {
		var value any
		if changes %= 8; changes > 0 && json.Unmarshal(document, &value) == nil {
			document = mutate.JSON(t, document, seed, int(changes))
		}
		err := v.Validate(document)
		problems, wrong := errors.AsType[validation.Problems](err)
		switch {
		case err == nil:
			if e, err := cloudevent.ReadStructured(document); err != nil {
				t.Errorf("%s is valid, and is read as %+v, %v", document, e, err)
			}
		case wrong:
			if lines := strings.Count(err.Error(), "\n") + 1; len(problems) == 0 || lines < len(problems) {
				t.Errorf("%d problems, and %d lines: %s", len(problems), lines, err)
			}
			for i, p := range problems {
				if p.Want == "" || i > 0 && p.Field <= problems[i-1].Field {
					t.Errorf("problem %d is %+v, after %+v", i, p, problems[max(0, i-1)])
				}
			}
		case !errors.Is(err, schemas.ErrInvalid) && !errors.Is(err, validation.ErrUnknownType):
			t.Errorf("the error is of no known kind: %v", err)
		}
	})
}
