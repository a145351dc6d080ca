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

func newEvent(t testing.TB, p schemas.Payload, cause schemas.Event) schemas.Event {
	t.Helper()
	now := time.Date(2026, 11, 20, 10, 30, 0, 0, time.FixedZone("CET", 3600))
	e, err := schemas.NewEvent("/clusters/test/watcher", p, now, cause)
	expect.Must(t, err)
	return e
}

func TestNewEventContinuesChain(t *testing.T) {
	_, delta := example[schemas.Delta](t, "delta")
	_, scope := example[schemas.NodeScope](t, "scope")
	_, intents := example[schemas.Intents](t, "intents")
	first := newEvent(t, delta, schemas.Event{})
	second := newEvent(t, scope, first)
	third := newEvent(t, intents, second)
	schematest.Check(t, first, second, third)

	type link struct{ correlation, causation, trace string }
	var got []link
	for _, e := range []schemas.Event{first, second, third} {
		got = append(got, link{e.CorrelationID, e.CausationID, e.TraceParent[:36]})
	}
	trace := first.TraceParent[:36]
	expect.Equal(t, "chain", got, []link{{first.ID, "", trace}, {first.ID, first.ID, trace}, {first.ID, second.ID, trace}})
	spans := map[string]bool{first.TraceParent[36:]: true, second.TraceParent[36:]: true, third.TraceParent[36:]: true}
	if len(spans) != 3 {
		t.Errorf("spans are not distinct: %v", spans)
	}
	if want := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC); first.Time != want {
		t.Errorf("time is %v, want %v", first.Time, want)
	}
}

func TestNewEventSpan(t *testing.T) {
	_, payload := example[schemas.Delta](t, "delta")
	first := newEvent(t, payload, schemas.Event{})
	read := first
	read.Taken = first.Time.Add(-time.Hour) // by another clock
	type span struct {
		parent       string
		began, taken time.Time
	}
	spanOf := func(e schemas.Event) span { return span{e.Parent, e.Began, e.Taken} }
	got := []span{spanOf(first), spanOf(newEvent(t, payload, first)), spanOf(newEvent(t, payload, read))}
	expect.Equal(t, "spans of the first, of one after it here, and of one after it elsewhere", got, []span{
		{}, {first.TraceParent, first.Time, time.Time{}}, {first.TraceParent, read.Taken, time.Time{}},
	})
}

func TestInvalidTraceContext(t *testing.T) {
	delta, payload := example[schemas.Delta](t, "delta")
	for _, parent := range []string{
		"", "00-1-2-01", "ff-" + delta.TraceParent[3:], "00-" + strings.ToUpper(delta.TraceParent[3:]),
		"00-" + strings.Repeat("0", 32) + delta.TraceParent[35:], "00-a" + strings.Repeat("ä", 25) + "1", // cut in the middle of a letter
	} {
		cause := delta
		cause.TraceParent = parent
		e := newEvent(t, payload, cause)
		schematest.Check(t, e)
		if e.TraceParent[3:35] == delta.TraceParent[3:35] {
			t.Errorf("parent %q: the trace is continued", parent)
		}
	}
}

func TestDecodeIgnoresUnknownFields(t *testing.T) {
	e, want := example[schemas.Delta](t, "delta")
	got, err := schemas.Decode[schemas.Delta](with(t, e, "news", "unknown"))
	expect.Must(t, err)
	expect.Equal(t, "delta", got, want)
}

func TestDecodeErrors(t *testing.T) {
	e, _ := example[schemas.Delta](t, "delta")
	other := e
	other.Type = schemas.VerdictType
	broken := e
	broken.Data = json.RawMessage(`{"kind":`)
	shapeless := e
	shapeless.Data = json.RawMessage(`{"kind":["node.taints"]}`)
	for name, e := range map[string]schemas.Event{
		"another type": other, "data that ends early": broken, "data of another shape": shapeless,
	} {
		if _, err := schemas.Decode[schemas.Delta](e); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: got error %v, want one that wraps ErrInvalid", name, err)
		}
	}
}
