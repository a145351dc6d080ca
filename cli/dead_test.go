package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/cli/dead"
	"github.com/rehome-dev/rehome/schemas"
)

// eventOf is the event that carries p, with an ID that is known.
func eventOf(t *testing.T, id string, p schemas.Payload) schemas.Event {
	t.Helper()
	e, err := schemas.NewEvent("/clusters/test/test", p, clock, schemas.Event{})
	if err != nil {
		t.Fatal(err)
	}
	e.ID, e.CorrelationID, e.TraceParent = id, id, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	return e
}

// scopeEvent is the event of a scope of a node for PodLifeTime.
func scopeEvent(t *testing.T, id, node string) schemas.Event {
	t.Helper()
	return eventOf(t, id, schemas.ScopeHead{
		Kind: schemas.NodeKind, Key: node, Profile: "default", Strategy: "PodLifeTime", Now: clock, Since: clock,
	})
}

// header is the header of e on the bus.
func header(e schemas.Event, noun string) map[string][]string {
	return map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {e.ID}, "ce-source": {"/clusters/test/test"}, "ce-type": {e.Type},
		"ce-subject": {e.Subject}, "ce-datacontenttype": {"application/json"}, "ce-time": {"2026-03-01T12:00:00Z"},
		"ce-dataschema":    {"https://rehome.dev/schemas/v1/" + noun + ".schema.json"},
		"ce-correlationid": {e.ID}, "ce-traceparent": {e.TraceParent},
	}
}

// deadOf is a dead letter of the scope of node worker-1, buried so long before clock.
func deadOf(t *testing.T, number uint64, before time.Duration, why string) bus.DeadLetter {
	t.Helper()
	e := scopeEvent(t, "scope-1", "worker-1")
	return bus.DeadLetter{
		Number: number, Buried: clock.Add(-before), By: "PodLifeTime", Error: why, Stream: bus.StreamScopes, Sequence: 4711,
		Channel: e.Channel, Header: header(e, "scope"), Body: e.Data,
	}
}

func TestDeadLettersAreATableThatIsNotTooWide(t *testing.T) {
	long := "scope scope-1: " + strings.Repeat("no such field, ", 20)
	garbage := deadOf(t, 2, 90*time.Second, "x\x1b[2J no CloudEvent")
	garbage.Header, garbage.Body, garbage.By, garbage.Stream = nil, []byte("garbage"), "rehome", bus.StreamIntents
	for _, c := range []struct {
		name    string
		letters []bus.DeadLetter
		total   int
		want    string
	}{
		{"none", nil, 0, "no dead letter\n"},
		{"one that is short", []bus.DeadLetter{deadOf(t, 7, time.Hour, "it is wrong")}, 1, `1 dead letter

NUMBER   AGE      STREAM          BY            TYPE                  SUBJECT         ERROR
7        1h0m0s   REHOME_SCOPES   PodLifeTime   dev.rehome.scope.v1   node/worker-1   it is wrong
`},
		{"the newest of many, with an error that is cut, one that cannot be read, and one that is nothing",
			[]bus.DeadLetter{deadOf(t, 3, time.Second, long), garbage, {Number: 1, Buried: clock}}, 120,
			`120 dead letters, the newest 3 of them; --limit 0 shows all

NUMBER   AGE     STREAM           BY            TYPE                  SUBJECT         ERROR
3        1s      REHOME_SCOPES    PodLifeTime   dev.rehome.scope.v1   node/worker-1   scope scope-1: no such field, no such field, no such field, no such field…
2        1m30s   REHOME_INTENTS   rehome        -                     -               x�[2J no CloudEvent
1        0s      -                -             -                     -               -
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := (dead.List{Letters: c.letters, Total: c.total, Now: clock}).Write(&out); err != nil || out.String() != c.want {
				t.Errorf("error %v\ngot\n%s\nwant\n%s", err, &out, c.want)
			}
			for line := range strings.Lines(out.String()) {
				if n := len([]rune(line)) - 1; n > command.LineWidth {
					t.Errorf("a line has %d columns, want at most %d: %s", n, command.LineWidth, line)
				}
			}
		})
	}
}

func TestADeadLetterIsShownWithItsHeadersAndItsEventOrItsBody(t *testing.T) {
	local := clock.Add(-time.Minute).Local().Format(time.DateTime)
	garbage := deadOf(t, 8, time.Minute, "no CloudEvent")
	garbage.Header, garbage.Body, garbage.WholeSize = map[string][]string{"X": {"b", "a\n"}}, []byte("\x00\x1b[2Jgarbage"), 900
	empty := garbage
	empty.Header, empty.Body, empty.WholeSize = nil, nil, 0
	const channel = "rehome.scope.PodLifeTime.default.node.worker-1"
	for _, c := range []struct {
		name   string
		letter bus.DeadLetter
		want   string
	}{
		{"an event", deadOf(t, 7, time.Minute, "it is wrong"), `dead letter 7, buried ` + local + ` (1m0s ago) by PodLifeTime
it was     number 4711 of REHOME_SCOPES
published  on ` + channel + `
error      it is wrong

HEADER               VALUE
ce-correlationid     scope-1
ce-datacontenttype   application/json
ce-dataschema        https://rehome.dev/schemas/v1/scope.schema.json
ce-id                scope-1
ce-source            /clusters/test/test
ce-specversion       1.0
ce-subject           node/worker-1
ce-time              2026-03-01T12:00:00Z
ce-traceparent       00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
ce-type              dev.rehome.scope.v1

{
  "specversion": "1.0",
  "id": "scope-1",
  "source": "/clusters/test/test",
  "type": "dev.rehome.scope.v1",
  "subject": "node/worker-1",
  "datacontenttype": "application/json",
  "dataschema": "https://rehome.dev/schemas/v1/scope.schema.json",
  "time": "2026-03-01T12:00:00Z",
  "data": {
    "kind": "node",
    "key": "worker-1",
    "profile": "default",
    "strategy": "PodLifeTime",
    "now": "2026-03-01T12:00:00Z",
    "since": "2026-03-01T12:00:00Z",
    "causes": null
  },
  "correlationid": "scope-1",
  "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
}
`},
		{"what is no event and was cut", garbage, `dead letter 8, buried ` + local + ` (1m0s ago) by PodLifeTime
it was     number 4711 of REHOME_SCOPES
published  on ` + channel + `
error      no CloudEvent
cut        12 of 900 bytes are left: it cannot be retried

HEADER   VALUE
X        b
X        a�

the message is no event; its body, 12 bytes:
"\x00\x1b[2Jgarbage"
`},
		{"what is nothing", empty, `dead letter 8, buried ` + local + ` (1m0s ago) by PodLifeTime
it was     number 4711 of REHOME_SCOPES
published  on ` + channel + `
error      no CloudEvent

the message is no event and has no body
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := dead.LetterOf(c.letter, clock).Write(&out); err != nil || out.String() != c.want {
				t.Errorf("error %v\ngot\n%s\nwant\n%s", err, &out, c.want)
			}
		})
	}
}

func TestADeadLetterAsJSONIsOneObject(t *testing.T) {
	garbage := deadOf(t, 8, time.Minute, "no CloudEvent")
	garbage.Header, garbage.Body, garbage.WholeSize = map[string][]string{"X": {"b"}}, []byte("garbage"), 900
	const brief = `"time":"2026-03-01T11:59:00Z","stream":"REHOME_SCOPES","sequence":4711,` +
		`"channel":"rehome.scope.PodLifeTime.default.node.worker-1","by":"PodLifeTime",`
	for _, c := range []struct{ name, want string }{
		{"an event", `{"number":7,` + brief + `"type":"dev.rehome.scope.v1","subject":"node/worker-1","error":"it is wrong",` +
			`"headers":{"ce-correlationid":["scope-1"],"ce-datacontenttype":["application/json"],` +
			`"ce-dataschema":["https://rehome.dev/schemas/v1/scope.schema.json"],"ce-id":["scope-1"],` +
			`"ce-source":["/clusters/test/test"],"ce-specversion":["1.0"],"ce-subject":["node/worker-1"],` +
			`"ce-time":["2026-03-01T12:00:00Z"],` +
			`"ce-traceparent":["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],"ce-type":["dev.rehome.scope.v1"]},` +
			`"event":{"specversion":"1.0","id":"scope-1","source":"/clusters/test/test","type":"dev.rehome.scope.v1",` +
			`"subject":"node/worker-1","datacontenttype":"application/json",` +
			`"dataschema":"https://rehome.dev/schemas/v1/scope.schema.json","time":"2026-03-01T12:00:00Z",` +
			`"data":{"kind":"node","key":"worker-1","profile":"default","strategy":"PodLifeTime","now":"2026-03-01T12:00:00Z",` +
			`"since":"2026-03-01T12:00:00Z","causes":null},"correlationid":"scope-1",` +
			`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}`},
		{"what is no event, with its body in base64", `{"number":8,` + brief + `"error":"no CloudEvent","wholeSize":900,` +
			`"headers":{"X":["b"]},"body":"Z2FyYmFnZQ=="}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := deadOf(t, 7, time.Minute, "it is wrong")
			if strings.Contains(c.want, `"number":8`) {
				d = garbage
			}
			got, err := json.Marshal(dead.LetterOf(d, clock))
			if err != nil || string(got) != c.want {
				t.Errorf("error %v\n got %s\nwant %s", err, got, c.want)
			}
		})
	}
}

// seconds is an age of a few seconds in a list, or in what is shown.
var seconds = regexp.MustCompile(`(?m)(^\d +|\()\d(s )`)

// deadBus is a bus with three dead letters: of the scope of a node, of an answer, and of the scope of another node.
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

// deadSays runs rehome dead and compares what it prints, and its error, with what it should.
func deadSays(t *testing.T, wantOut, wantErr string, code int, arguments ...string) {
	t.Helper()
	out, err := execute(t, append([]string{"dead"}, arguments...)...)
	got := ""
	if err != nil {
		got = err.Error()
	}
	out = seconds.ReplaceAllString(out, "${1}0${2}")
	if out != wantOut || got != wantErr || (err != nil) != (code != 0) {
		t.Errorf("dead %q: error %v\ngot\n%s\nwant error %s, code %d, and\n%s", arguments, err, out, wantErr, code, wantOut)
	}
}

const (
	deadHead = "NUMBER   AGE   STREAM           BY            TYPE                    SUBJECT         ERROR\n"
	deadOne  = "1        0s    REHOME_SCOPES    PodLifeTime   dev.rehome.scope.v1     node/worker-1   no function knows scope-1\n"
	deadTwo  = "2        0s    REHOME_INTENTS   rehome-test   dev.rehome.intents.v1   node/worker-1   no function knows answer-1\n"
	deadTri  = "3        0s    REHOME_SCOPES    PodLifeTime   dev.rehome.scope.v1     node/worker-2   no function knows scope-2\n"
)

func TestTheDeadLettersOfABusAreListedAndShown(t *testing.T) {
	b := deadBus(t)
	deadSays(t, "3 dead letters\n\n"+deadHead+deadTri+deadTwo+deadOne, "", 0, "list")
	deadSays(t, "3 dead letters, the newest 2 of them; --limit 0 shows all\n\n"+deadHead+deadTri+deadTwo, "", 0, "list", "--limit", "2")
	deadSays(t, "1 dead letter\n\n"+deadHead+deadTwo, "", 0, "list", "--stream", "REHOME_INTENTS", "--since", "1h", "--by", "rehome-test")
	deadSays(t, "no dead letter\n", "", 0, "list", "--by", "RemoveDuplicates")
	deadSays(t, "no dead letter\n", "", 0, "list", "--since", "1ns")

	two, err := b.DeadLetter(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf(`{"number":2,"time":%q,"stream":"REHOME_INTENTS","sequence":2,`+
		`"channel":"rehome.intents.PodLifeTime.default.node.worker-1","by":"rehome-test","type":"dev.rehome.intents.v1",`+
		`"subject":"node/worker-1","error":"no function knows answer-1"`, two.Buried.Format(time.RFC3339Nano))
	deadSays(t, line+"}\n", "", 0, "list", "--stream", "REHOME_INTENTS", "-o", "json")
	whole, err := json.Marshal(dead.LetterOf(two, clock))
	if err != nil || !strings.HasPrefix(string(whole), line+`,"headers":{"ce-`) {
		t.Errorf("error %v\n got %s\nwant %s and so on", err, whole, line)
	}
	deadSays(t, string(whole)+"\n", "", 0, "show", "2", "-o", "json")
	var text bytes.Buffer
	if err := dead.LetterOf(two, two.Buried).Write(&text); err != nil {
		t.Fatal(err)
	}
	deadSays(t, text.String(), "", 0, "show", "2")
	deadSays(t, "", "dead letter 4: there is no such dead letter", 1, "show", "4")
}

func TestDeadLettersAreRetriedAndWhatIsRefusedStays(t *testing.T) {
	b := deadBus(t)
	newer, err := b.Publish(t.Context(), scopeEvent(t, "scope-3", "worker-2"))
	if err != nil {
		t.Fatal(err)
	}
	refused := fmt.Sprintf("retry dead letter 3: a newer message has taken its place: "+
		"REHOME_SCOPES has %d on rehome.scope.PodLifeTime.default.node.worker-2, this was 3", newer)
	deadSays(t, fmt.Sprintf("1: published again, as number %d\n", newer+1), refused+"\nretry: dead letter 9: there is no such dead letter",
		1, "retry", "3", "9", "1")
	deadSays(t, "2 dead letters\n\n"+deadHead+deadTri+deadTwo, "", 0, "list")
	out, err := execute(t, "dead", "retry", "--all", "--stream", "REHOME_INTENTS")
	if err != nil || !regexp.MustCompile(`^2: published again, as number \d{16}\n$`).MatchString(out) {
		t.Errorf("got %q, error %v; want letter 2 published", out, err)
	}
	deadSays(t, "", refused, 1, "retry", "--all", "--yes")
	deadSays(t, "1 dead letter\n\n"+
		"NUMBER   AGE   STREAM          BY            TYPE                  SUBJECT         ERROR\n"+
		"3        0s    REHOME_SCOPES   PodLifeTime   dev.rehome.scope.v1   node/worker-2   no function knows scope-2\n", "", 0, "list")
}

func TestDeadLettersAreDropped(t *testing.T) {
	deadBus(t)
	deadSays(t, "2: dropped\n", "drop dead letter 2: there is no such dead letter", 1, "drop", "2", "2")
	deadSays(t, "there are no such dead letters\n", "", 0, "drop", "--all", "--stream", "REHOME_INTENTS")
	deadSays(t, "3: dropped\n1: dropped\n", "", 0, "drop", "--all", "--yes")
	deadSays(t, "no dead letter\n", "", 0, "list")
}

func TestDeadLettersWithoutABusAreAnErrorOfWhoAsks(t *testing.T) {
	for _, arguments := range [][]string{
		{"list"}, {"show", "1"}, {"retry", "1", "2"}, {"drop", "1", "2"}, {"retry", "--all", "--yes"}, {"drop", "--all", "--yes"},
	} {
		t.Setenv("REHOME_STORE_DIR", t.TempDir())
		got, err := execute(t, append([]string{"dead"}, arguments...)...)
		if got != "" || !errors.Is(err, bus.ErrNotConnected) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: got %q, error %v; want ErrNotConnected once", arguments, got, err)
		}
	}
}
