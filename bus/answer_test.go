package bus_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// given is one call of Answer: the sequence of the scope, and the pods.
type given struct {
	sequence uint64
	pods     []string
}

func TestAnswerToNewestScope(t *testing.T) {
	b := bustest.New(t)
	history := bustest.Collect(t, b, bus.IntentsChannels)
	a, other, none := []string{"a"}, []string{"b"}, []string(nil)
	tests := map[string]struct {
		answers []given
		written []string // the published events, in order
	}{
		"an answer is written":                            {[]given{{5, a}}, []string{"5[a]"}},
		"an answer to a newer scope replaces an older":    {[]given{{5, a}, {6, other}}, []string{"5[a]", "6[b]"}},
		"an answer to an older scope never replaces":      {[]given{{6, other}, {5, a}}, []string{"6[b]"}},
		"the same answer is written once":                 {[]given{{5, a}, {5, a}}, []string{"5[a]"}},
		"another answer to the same scope replaces":       {[]given{{5, a}, {5, other}}, []string{"5[a]", "5[b]"}},
		"an empty answer to a new key is not written":     {[]given{{5, none}}, none},
		"an empty answer withdraws what stands":           {[]given{{5, a}, {6, none}}, []string{"5[a]", "6[]"}},
		"an empty answer over an empty one is not":        {[]given{{5, a}, {6, none}, {7, none}}, []string{"5[a]", "6[]"}},
		"an old empty answer does not withdraw":           {[]given{{6, a}, {5, none}}, []string{"6[a]"}},
		"an older answer does not revive a withdrawn one": {[]given{{5, a}, {7, none}, {6, a}}, []string{"5[a]", "7[]"}},
	}
	key := 0
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			key++
			node := fmt.Sprintf("node-%d", key)
			for _, g := range test.answers {
				e, a := answer(t, node, g.sequence, g.pods...)
				expect.Must(t, b.Answer(t.Context(), e, a))
			}
			end, a := answer(t, node+"-end", 1, "end") // all that was written before is in the history before
			expect.Must(t, b.Answer(t.Context(), end, a))
			var written []string
			for e := history.Next(t); e.ID != end.ID; e = history.Next(t) {
				written = append(written, inWords(t, e))
			}
			expect.Equal(t, "written", written, test.written)
		})
	}
}

func inWords(t *testing.T, e schemas.Event) string {
	t.Helper()
	a := schematest.Decode[schemas.Intents](t, e)
	pods := []string{}
	for _, i := range a.Intents {
		pods = append(pods, i.Pod.Name)
	}
	return fmt.Sprintf("%d%v", a.Scope.Sequence, pods)
}

func TestAnswerRace(t *testing.T) {
	random := randtest.New(t)
	const keys, versions, writers = 5, 20, 4

	r := newRig(t, bus.Setup{})
	history := bustest.Collect(t, r.bus, bus.IntentsChannels)
	type write struct {
		event  schemas.Event
		answer schemas.Intents
	}
	var todo []write
	for key := range keys {
		for version := range versions {
			e, a := answer(t, fmt.Sprint("node-", key), uint64(version+1), fmt.Sprint("pod-", version+1))
			todo = append(todo, write{e, a})
		}
	}
	random.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	var all sync.WaitGroup
	for w := range writers {
		b := bustest.Connect(t, bus.Options{Name: fmt.Sprint("writer-", w), Server: r.server})
		all.Go(func() {
			for i := w; i < len(todo); i += writers {
				if err := b.Answer(t.Context(), todo[i].event, todo[i].answer); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()

	want := make(map[string]string)
	for key := range keys {
		e, _ := answer(t, fmt.Sprint("node-", key), versions, fmt.Sprint("pod-", versions))
		want[e.Channel] = string(e.Data)
	}
	expect.Equal(t, "the table holds", r.messages(t, bus.StreamIntents), want)
	newest := make(map[string]uint64)
	for done := 0; done < keys; {
		e := history.Next(t)
		a := schematest.Decode[schemas.Intents](t, e)
		if a.Scope.Sequence <= newest[e.Channel] {
			t.Fatalf("%s: the answer to scope %d was written after the answer to %d", e.Channel, a.Scope.Sequence, newest[e.Channel])
		}
		if newest[e.Channel] = a.Scope.Sequence; a.Scope.Sequence == versions {
			done++
		}
	}
}

func TestAnswerReplacesUnreadableMessage(t *testing.T) {
	r := newRig(t, bus.Setup{})
	e, a := answer(t, "node-1", 1, "pod-1")
	r.garbage(t, e.Channel, nil, "garbage")
	expect.Must(t, r.bus.Answer(t.Context(), e, a))
	want := map[string]string{e.Channel: string(e.Data)}
	expect.Equal(t, "the table holds", r.messages(t, bus.StreamIntents), want)
}

func TestScopeCurrent(t *testing.T) {
	r := newRig(t, bus.Setup{})
	is := func(e schemas.Event, want bool) {
		t.Helper()
		got, err := r.bus.Current(t.Context(), e)
		if err != nil || got != want {
			t.Errorf("scope %s at %d is current: got %v, %v; want %v", e.ID, e.Sequence, got, err, want)
		}
	}
	old := r.stored(t, scope(t, "a", 1))
	is(old, true)
	newer := r.stored(t, scope(t, "a", 2))
	is(old, false)
	is(newer, true)
	work(t, r.bus, bus.Work{})
	r.empty(t, bus.StreamScopes)
	is(newer, false)
}

func TestUnneededAnswerNotWritten(t *testing.T) {
	r := newRig(t, bus.Setup{})
	for _, c := range []struct {
		pods []string
		want error
	}{
		{nil, nil},
		{[]string{"pod-1"}, schemas.ErrInvalid},
	} {
		e, a := answer(t, "a", 1, c.pods...)
		e.ID = ""
		if err := r.bus.Answer(t.Context(), e, a); !errors.Is(err, c.want) {
			t.Errorf("moving %v: got %v, want %v", c.pods, err, c.want)
		}
	}
	if got := r.messages(t, bus.StreamIntents); len(got) > 0 {
		t.Errorf("stored %v, want nothing", got)
	}
}
