package cli

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// eventOf returns an event with the data p and a known ID.
func eventOf(t *testing.T, id string, p schemas.Payload) schemas.Event {
	t.Helper()
	e := schematest.Event(t, "/clusters/test/test", p, clock, schemas.Event{})
	e.ID, e.CorrelationID, e.TraceParent = id, id, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	return e
}

// scopeEvent returns the event of a scope of a node for PodLifeTime.
func scopeEvent(t *testing.T, id, node string) schemas.Event {
	t.Helper()
	return eventOf(t, id, schemas.ScopeHead{
		Kind: schemas.NodeKind, Key: node, Profile: "default", Strategy: "PodLifeTime", Now: clock, Since: clock,
	})
}

// header returns the header of e on the bus.
func header(e schemas.Event, noun string) map[string][]string {
	return map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {e.ID}, "ce-source": {"/clusters/test/test"}, "ce-type": {e.Type},
		"ce-subject": {e.Subject}, "ce-datacontenttype": {"application/json"}, "ce-time": {"2026-03-01T12:00:00Z"},
		"ce-dataschema":    {"https://rehome.dev/schemas/v1/" + noun + ".schema.json"},
		"ce-correlationid": {e.ID}, "ce-traceparent": {e.TraceParent},
	}
}

// deadOf returns a dead letter of the scope of node worker-1, buried that long before clock.
func deadOf(t *testing.T, number uint64, before time.Duration, why string) bus.DeadLetter {
	t.Helper()
	e := scopeEvent(t, "scope-1", "worker-1")
	return bus.DeadLetter{
		Number: number, Buried: clock.Add(-before), By: "PodLifeTime", Error: why, Stream: bus.StreamScopes, Sequence: 4711,
		Channel: e.Channel, Header: header(e, "scope"), Body: e.Data,
	}
}

func TestPrintDeadLetter(t *testing.T) {
	garbage := deadOf(t, 8, time.Minute, "no CloudEvent")
	garbage.Header, garbage.Body, garbage.WholeSize = map[string][]string{"X": {"b", "a\n"}}, []byte("\x00\x1b[2Jgarbage"), 900
	garbage.HeadersCut = 2
	empty := garbage
	empty.Header, empty.Body, empty.WholeSize, empty.HeadersCut = nil, nil, 0, 0
	for name, letter := range map[string]bus.DeadLetter{"event": deadOf(t, 7, time.Minute, "it is wrong"), "no event": garbage, "empty": empty} {
		var text bytes.Buffer
		if err := look.LetterOf(letter).Write(&text, clock); err != nil {
			t.Fatal(err)
		}
		golden(t, "deadletter/"+name+".txt", text.String())
		for _, format := range []string{"json", "yaml"} {
			var out bytes.Buffer
			if err := cmdutil.PrintObject(&out, format, "DeadLetter", look.LetterOf(letter)); err != nil {
				t.Fatal(err)
			}
			golden(t, "deadletter/"+name+"."+format, out.String())
		}
	}
}

// seconds matches an age of a few seconds in a list or in a letter.
var seconds = regexp.MustCompile(`(?m)(^\d        )\d(s )`)

// deadBus returns a bus with three dead letters: two scopes of nodes, and an answer.
func deadBus(t *testing.T) *bus.Bus {
	t.Helper()
	b := busOf(t)
	answer := eventOf(t, "answer-1", schemas.Intents{
		Profile: "default", Strategy: "PodLifeTime", Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "worker-1"},
	})
	for i, d := range []struct {
		stream string
		event  schemas.Event
	}{
		{bus.StreamScopes, scopeEvent(t, "scope-1", "worker-1")}, {bus.StreamIntents, answer},
		{bus.StreamScopes, scopeEvent(t, "scope-2", "worker-2")},
	} {
		d.event.Sequence = uint64(i + 1)
		if err := b.Bury(t.Context(), d.stream, d.event, errors.New("no function knows "+d.event.ID)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// deadSays runs rehome and compares its output and its error.
func deadSays(t *testing.T, wantOut, wantErr string, arguments ...string) {
	t.Helper()
	out, err := execute(t, arguments...)
	got := ""
	if err != nil {
		got = err.Error()
	}
	out = seconds.ReplaceAllString(out, "${1}0${2}")
	if out != wantOut || got != wantErr {
		t.Errorf("%q: error %v\ngot\n%s\nwant error %s, and\n%s", arguments, err, out, wantErr, wantOut)
	}
}

const (
	deadHead = "NUMBER   AGE   STREAM           BY            TYPE                    SUBJECT         ERROR\n"
	deadOne  = "1        0s    REHOME_SCOPES    PodLifeTime   dev.rehome.scope.v1     node/worker-1   no function knows scope-1\n"
	deadTwo  = "2        0s    REHOME_INTENTS   rehome-test   dev.rehome.intents.v1   node/worker-1   no function knows answer-1\n"
	deadTri  = "3        0s    REHOME_SCOPES    PodLifeTime   dev.rehome.scope.v1     node/worker-2   no function knows scope-2\n"
)

func TestGetDeadLetters(t *testing.T) {
	deadBus(t)
	deadSays(t, deadHead+deadTri+deadTwo+deadOne, "", "get", "deadletters")
	deadSays(t, deadHead+deadTri+deadTwo, "", "get", "deadletters", "--limit", "2")
	deadSays(t, deadHead+deadTwo, "", "get", "deadletters", "--stream", "REHOME_INTENTS", "--since", "1h", "--by", "rehome-test")
	deadSays(t, "No resources found.\n", "", "get", "deadletters", "--by", "RemoveDuplicates")
	deadSays(t, "No resources found.\n", "", "get", "deadletters", "--since", "1ns")

	deadSays(t, "", "dead letter 4: there is no such dead letter", "get", "deadletter", "4")
}

func TestDeadLetterRetries(t *testing.T) {
	b := deadBus(t)
	newer, err := b.Publish(t.Context(), scopeEvent(t, "scope-3", "worker-2"))
	expect.Must(t, err)
	refused := fmt.Sprintf("retry dead letter 3: a newer message has taken its place: "+
		"REHOME_SCOPES has %d on rehome.scope.PodLifeTime.default.node.worker-2, this was 3", newer)
	deadSays(t, fmt.Sprintf("1: published again, as number %d\n", newer+1), refused+"\nretry: dead letter 9: there is no such dead letter",
		"deadletters", "retry", "3", "9", "1")
	deadSays(t, deadHead+deadTri+deadTwo, "", "get", "deadletters")
	out, err := execute(t, "deadletters", "retry", "--all", "--stream", "REHOME_INTENTS")
	if err != nil || !regexp.MustCompile(`^2: published again, as number \d{16}\n$`).MatchString(out) {
		t.Errorf("got %q, error %v; want letter 2 published", out, err)
	}
	deadSays(t, "", refused, "deadletters", "retry", "--all", "--yes")
	deadSays(t, "NUMBER   AGE   STREAM          BY            TYPE                  SUBJECT         ERROR\n"+
		"3        0s    REHOME_SCOPES   PodLifeTime   dev.rehome.scope.v1   node/worker-2   no function knows scope-2\n", "", "get", "deadletters")
}

func TestDropDeadLetters(t *testing.T) {
	deadBus(t)
	deadSays(t, "2: dropped\n", "drop dead letter 2: there is no such dead letter", "deadletters", "drop", "2", "2")
	deadSays(t, "there are no such dead letters\n", "", "deadletters", "drop", "--all", "--stream", "REHOME_INTENTS")
	deadSays(t, "3: dropped\n1: dropped\n", "", "deadletters", "drop", "--all", "--yes")
	deadSays(t, "No resources found.\n", "", "get", "deadletters")
}
