package schemas_test

import (
	"errors"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/validation"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

func TestUnknownValues(t *testing.T) {
	closed, err := schematest.New()
	expect.Must(t, err)
	open, err := validation.New(schemas.Files)
	expect.Must(t, err)
	delta, _ := example[schemas.Delta](t, "delta")
	scope, _ := example[schemas.NodeScope](t, "scope")
	verdict, _ := example[schemas.Verdict](t, "verdict")
	restarted, _ := example[schemas.Verdict](t, "verdict-restarted")
	for name, e := range map[string]schemas.Event{
		"a kind of delta":                    with(t, delta, "node.painted", "kind"),
		"a node with a node":                 with(t, delta, "worker-7", "node"),
		"a status":                           with(t, delta, "Perhaps", "after", "ready"),
		"a phase":                            with(t, delta, "Dreaming", "after", "phase"),
		"a status of a condition":            with(t, delta, map[string]any{"Ready": "Perhaps"}, "after", "conditions"),
		"a kind of scope":                    with(t, scope, "rack", "kind"),
		"a kind of cause":                    with(t, scope, "whim", "causes", 0, "kind"),
		"an outcome":                         with(t, verdict, "vanished", "outcome"),
		"a reason":                           with(t, verdict, "Whim", "reason"),
		"a reason for another outcome":       with(t, verdict, "PodGone", "reason"),
		"a method":                           with(t, restarted, "persuasion", "method"),
		"a method instead of another":        with(t, restarted, instead("persuasion", "RestartNoRoom"), "instead"),
		"a reason to use another":            with(t, restarted, instead("surge", "Replaced"), "instead"),
		"a settlement of a move that is new": with(t, restarted, map[string]any{"seconds": 1}, "settlement"),
		"a kind of the scope of a verdict":   with(t, verdict, "rack", "scope", "kind"),
	} {
		document, err := cloudevent.WriteStructured(e)
		expect.Must(t, err)
		if err := open.Validate(document); err != nil {
			t.Errorf("%s: published schema: %v", name, err)
		}
		if err := closed.Validate(e); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: closed schema: got error %v, want one that wraps ErrInvalid", name, err)
		}
	}
}
