package cli

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// TestEveryEventType stores the published examples of each type with a history, prints them by their type, and forwards them.
func TestEveryEventType(t *testing.T) {
	b := busOf(t)
	want, once := map[string]string{}, map[string]int{}
	for _, e := range schematest.Examples(t) {
		noun := schemas.NounOf(e.Event.Type)
		if !slices.Contains(filter.History(), noun) {
			continue
		}
		publishAll(t, b, e.Event)
		line := bytes.NewBufferString(want[noun])
		if err := look.ShowText(line, e.Event); err != nil {
			t.Fatal(err)
		}
		want[noun], once[e.Event.ID] = line.String(), 1
	}
	sink, url := newSink(t, nil)
	forwarding(t, b, "--to", url)
	expect.Eventually(t, "every event is forwarded once", func() bool { return maps.Equal(sink.counts(), once) })
	got := map[string]string{}
	for _, noun := range filter.History() {
		out, err := execute(t, "events", "--type", noun)
		expect.Must(t, err)
		got[noun] = out
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
