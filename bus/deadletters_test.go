package bus_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// bury stores events as dead letters of a stream.
func bury(t testing.TB, b *bus.Bus, stream string, events ...schemas.Event) {
	t.Helper()
	for _, e := range events {
		expect.Must(t, b.Bury(t.Context(), stream, e, errors.New("no function knows it")))
	}
}

// numbers returns the dead letters.
func numbers(t testing.TB, b *bus.Bus, q bus.DeadQuery) []uint64 {
	t.Helper()
	got, err := b.DeadNumbers(t.Context(), q)
	expect.Must(t, err)
	return got
}

// deadLetter reads a dead letter.
func deadLetter(t testing.TB, b *bus.Bus, number uint64) bus.DeadLetter {
	t.Helper()
	d, err := answered(t, func() (bus.DeadLetter, error) { return b.DeadLetter(t.Context(), number) })
	expect.Must(t, err)
	return d
}

// stored publishes an event and sets its sequence.
func (r rig) stored(t testing.TB, e schemas.Event) schemas.Event {
	t.Helper()
	var err error
	if e.Sequence, err = r.bus.Publish(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestDeadLetterList(t *testing.T) {
	r := newRig(t, bus.Setup{})
	dotted := bustest.Connect(t, bus.Options{Name: "the.other", Server: r.server})
	intents, _ := answer(t, "a", 1, "pod-1")
	if got := numbers(t, r.bus, bus.DeadQuery{}); !reflect.DeepEqual(got, []uint64{}) {
		t.Errorf("without letters: got %v", got)
	}
	bury(t, r.bus, bus.StreamScopes, scope(t, "a", 1))
	bury(t, r.bus, bus.StreamIntents, intents)
	other, _ := answer(t, "b", 1, "pod-1")
	bury(t, dotted, bus.StreamIntents, other)
	r.garbage(t, "rehome.dead.somewhere", nil, "a stranger's")
	third := deadLetter(t, r.bus, 3).Buried
	for name, test := range map[string]struct {
		query bus.DeadQuery
		want  []uint64
	}{
		"all":                              {bus.DeadQuery{}, []uint64{4, 3, 2, 1}},
		"of a stream":                      {bus.DeadQuery{Stream: bus.StreamIntents}, []uint64{3, 2}},
		"by a process":                     {bus.DeadQuery{By: "tester"}, []uint64{2}},
		"by a process with a dot":          {bus.DeadQuery{By: "the.other"}, []uint64{3}},
		"by a strategy":                    {bus.DeadQuery{By: strategy}, []uint64{1}},
		"of a stream and a strategy":       {bus.DeadQuery{Stream: bus.StreamIntents, By: "tester"}, []uint64{2}},
		"of a stream without dead letters": {bus.DeadQuery{Stream: bus.StreamEvents}, []uint64{}},
		"since one of them":                {bus.DeadQuery{Since: third}, []uint64{4, 3}},
		"since just after it":              {bus.DeadQuery{Since: third.Add(1), Stream: bus.StreamIntents}, []uint64{}},
		"since before all":                 {bus.DeadQuery{Since: at, Stream: bus.StreamScopes}, []uint64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "numbers", numbers(t, r.bus, test.query), test.want)
		})
	}
}

func TestDeadLetterContents(t *testing.T) {
	r := newRig(t, bus.Setup{})
	channel := scope(t, "a", 1).Channel
	r.garbage(t, channel, nats.Header{"X-Custom": {"one", "two"}, "Nats-Msg-Id": {"of a stranger"}}, "\x00garbage")
	work(t, r.bus, bus.Work{})
	r.empty(t, bus.StreamScopes)
	stored := r.deadLetters(t, 1)[0]
	first := r.first(t, bus.StreamScopes)
	want := bus.DeadLetter{
		Number: 1, Buried: stored.Time.UTC(), By: strategy, Stream: bus.StreamScopes, Sequence: first, Channel: channel,
		Error: fmt.Sprintf("%s at %d of REHOME_SCOPES: read CloudEvent: invalid event: "+
			"no CloudEvent: neither a header ce-specversion nor a JSON object", channel, first),
		Header: map[string][]string{"X-Custom": {"one", "two"}}, Body: []byte("\x00garbage"),
	}
	got := deadLetter(t, r.bus, 1)
	expect.Equal(t, "result", got, want)
	if e, err := got.Event(); !errors.Is(err, schemas.ErrInvalid) || err.Error() != want.Error {
		t.Errorf("read as an event: got %+v, %v", e, err)
	}
}

func TestDeadLetterEvent(t *testing.T) {
	r := newRig(t, bus.Setup{})
	want := scope(t, "a", 1)
	want.CausationID, want.Expires = "delta", at.Add(time.Hour)
	want = r.stored(t, want)
	bury(t, r.bus, bus.StreamScopes, want)
	if got, err := deadLetter(t, r.bus, 1).Event(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func TestForeignDeadLetter(t *testing.T) {
	r := newRig(t, bus.Setup{})
	r.garbage(t, "rehome.dead.x", nats.Header{bus.HeaderSequence: {"many"}, "A": {"b"}}, "?")
	got := deadLetter(t, r.bus, 1)
	want := bus.DeadLetter{
		Number: 1, Buried: got.Buried, Header: map[string][]string{"A": {"b"}}, Body: []byte("?"),
	}
	if !reflect.DeepEqual(got, want) || time.Since(got.Buried) > time.Minute {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestMissingDeadLetter(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bury(t, r.bus, bus.StreamScopes, scope(t, "a", 1))
	expect.Must(t, r.bus.DropDead(t.Context(), 1))
	for _, number := range []uint64{0, 1, 7} {
		_, get := r.bus.DeadLetter(t.Context(), number)
		_, retry := r.bus.RetryDead(t.Context(), number)
		for what, err := range map[string]error{"get": get, "retry": retry, "drop": r.bus.DropDead(t.Context(), number)} {
			if !errors.Is(err, bus.ErrNoDeadLetter) || !strings.Contains(err.Error(), fmt.Sprint("dead letter ", number)) {
				t.Errorf("%s %d: got %v, want ErrNoDeadLetter with the number", what, number, err)
			}
		}
	}
}

func TestDropDeadLetter(t *testing.T) {
	r := newRig(t, bus.Setup{})
	bury(t, r.bus, bus.StreamScopes, r.stored(t, scope(t, "a", 1)), r.stored(t, scope(t, "b", 1)))
	kept := deadLetter(t, r.bus, 2)
	expect.Must(t, r.bus.DropDead(t.Context(), 1))
	if got := numbers(t, r.bus, bus.DeadQuery{}); !reflect.DeepEqual(got, []uint64{2}) ||
		!reflect.DeepEqual(deadLetter(t, r.bus, 2), kept) {
		t.Errorf("left: %v, want 2", got)
	}
}

func TestDeadLettersWithoutBus(t *testing.T) {
	empty := bustest.Connect(t, bus.Options{Server: bustest.Server(t, embed.Options{})})
	away := bustest.Connect(t, bus.Options{Socket: t.TempDir() + "/none"})
	for name, test := range map[string]struct {
		bus  *bus.Bus
		want error
	}{"not set up": {empty, bus.ErrNotSetUp}, "not connected": {away, bus.ErrNotConnected}} {
		_, list := test.bus.DeadNumbers(t.Context(), bus.DeadQuery{})
		_, get := test.bus.DeadLetter(t.Context(), 1)
		_, retry := test.bus.RetryDead(t.Context(), 1)
		for what, err := range map[string]error{"list": list, "get": get, "retry": retry, "drop": test.bus.DropDead(t.Context(), 1)} {
			if !errors.Is(err, test.want) {
				t.Errorf("%s, %s: got %v, want %v", name, what, err, test.want)
			}
		}
	}
}
