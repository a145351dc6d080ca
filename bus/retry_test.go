package bus_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// retry publishes the message of a dead letter again and returns its new number.
func retry(t testing.TB, b *bus.Bus, number uint64) uint64 {
	t.Helper()
	sequence, err := b.RetryDead(t.Context(), number)
	expect.Must(t, err)
	return sequence
}

// refused retries a letter that cannot be retried, and checks that nothing changes.
func (r rig) refused(t *testing.T, number uint64, want error, says string) {
	t.Helper()
	all := func() (all []map[string]string) {
		for _, stream := range []string{bus.StreamScopes, bus.StreamIntents, bus.StreamEvents, bus.StreamDead} {
			all = append(all, r.messages(t, stream))
		}
		return all
	}
	before := all()
	sequence, err := answered(t, func() (uint64, error) { return r.bus.RetryDead(t.Context(), number) })
	if !errors.Is(err, want) || sequence != 0 || err.Error() != fmt.Sprintf("retry dead letter %d: %s", number, says) {
		t.Errorf("retry of %d: got %d, %v\nwant retry dead letter %d: %s", number, sequence, err, number, says)
	}
	if after := all(); !reflect.DeepEqual(after, before) {
		t.Errorf("a retry that was refused changed\n%.2000v\nto\n%.2000v", before, after)
	}
}

func TestRetryScope(t *testing.T) {
	r := newRig(t, bus.Setup{})
	scopes, stop := manual(t, r.bus, bus.Work{Tries: 1})
	e := r.stored(t, scope(t, "a", 1))
	original, err := r.raw.Stream(t.Context(), bus.StreamScopes)
	expect.Must(t, err)
	before, err := original.GetMsg(t.Context(), 1)
	expect.Must(t, err)
	next(t, scopes).end <- errors.New("the function is away")
	letter := deadLetterSoon(t, r, 1)
	r.empty(t, bus.StreamScopes)
	stop()

	sequence := retry(t, r.bus, 1)
	after, err := original.GetMsg(t.Context(), 2)
	expect.Must(t, err)
	id := fmt.Sprintf("retried|1|%d", letter.Buried.UnixNano())
	before.Header[jetstream.MsgIDHeader] = []string{id}
	before.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{"0"}
	before.Sequence, before.Time = 2, after.Time
	if !reflect.DeepEqual(after, before) || sequence <= e.Sequence {
		t.Errorf("published again\n%+v\nwant, after %d,\n%+v", after, e.Sequence, before)
	}
	if got := numbers(t, r.bus, bus.DeadQuery{}); len(got) != 0 {
		t.Errorf("letters that are left: %v, want none", got)
	}
	again, _ := manual(t, r.bus, bus.Work{})
	h := next(t, again)
	h.end <- nil
	if e.Sequence = sequence; !reflect.DeepEqual(h.event, e) {
		t.Errorf("a worker got\n%+v\nwant\n%+v", h.event, e)
	}
}

// deadLetterSoon waits for a dead letter.
func deadLetterSoon(t testing.TB, r rig, number uint64) bus.DeadLetter {
	t.Helper()
	r.deadLetters(t, int(number))
	return deadLetter(t, r.bus, number)
}

func TestRetryAnswer(t *testing.T) {
	r := newRig(t, bus.Setup{})
	e := give(t, r.bus, "a", 1, "pod-1")
	c := follow(t, r.bus)
	next(t, c).end <- fmt.Errorf("no such profile: %w", schemas.ErrInvalid)
	deadLetterSoon(t, r, 1)
	r.empty(t, bus.StreamIntents)

	sequence := retry(t, r.bus, 1)
	got := next(t, c)
	got.end <- nil
	if e.Sequence = sequence; !reflect.DeepEqual(got.event, e) {
		t.Errorf("got  %+v\nwant %+v", got.event, e)
	}
	if left := numbers(t, r.bus, bus.DeadQuery{}); len(left) != 0 {
		t.Errorf("letters that are left: %v, want none", left)
	}
}

func TestRetryVerdict(t *testing.T) {
	r := newRig(t, bus.Setup{})
	v := r.stored(t, verdict(t, "pod-1"))
	bury(t, r.bus, bus.StreamEvents, v)
	expect.Equal(t, "it got the number", retry(t, r.bus, 1), v.Sequence+1)
	expect.Equal(t, "history", bustest.IDs(t, r.bus, bus.Query{}), []string{v.ID, v.ID})
}

func TestRetryInterrupted(t *testing.T) {
	intents, _ := answer(t, "a", 1, "pod-1")
	for name, test := range map[string]struct {
		stream string
		event  schemas.Event
		// worked is the action between the two.
		worked func(*testing.T, rig, uint64)
	}{
		"a scope that waits": {bus.StreamScopes, scope(t, "a", 1), nil},
		"a scope that was answered": {bus.StreamScopes, scope(t, "a", 1), func(t *testing.T, r rig, _ uint64) {
			work(t, r.bus, bus.Work{})
			r.empty(t, bus.StreamScopes)
		}},
		"a scope that waits for longer than IDs are known": {bus.StreamScopes, scope(t, "a", 1), func(t *testing.T, r rig, _ uint64) {
			r.forgetIDs(t, bus.StreamScopes)
		}},
		"an answer in the table": {bus.StreamIntents, intents, nil},
		"an answer that was settled": {bus.StreamIntents, intents, func(t *testing.T, r rig, sequence uint64) {
			expect.Must(t, r.bus.DropIntents(t.Context(), schemas.Event{Sequence: sequence}))
		}},
		"a delta": {bus.StreamEvents, bustest.Delta(t, "a"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, bus.Setup{})
			if test.stream == bus.StreamEvents { // which is retried as the history has it
				test.event = r.stored(t, test.event)
			}
			bury(t, r.bus, test.stream, test.event)
			dead, err := r.raw.Stream(t.Context(), bus.StreamDead)
			expect.Must(t, err)
			config := dead.CachedInfo().Config
			config.DenyDelete = true // so that a retry comes as far as to the removal of its letter
			if _, err := r.raw.UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			first, err := r.bus.RetryDead(t.Context(), 1)
			if err == nil || first == 0 || !strings.HasPrefix(err.Error(), "retry dead letter 1: it is published, and not removed: ") {
				t.Fatalf("got %d, %v; want a number, and that the letter is not removed", first, err)
			}
			if test.worked != nil {
				test.worked(t, r, first)
			}
			before := r.messages(t, test.stream)
			again, err := r.bus.RetryDead(t.Context(), 1)
			if err == nil || again != first {
				t.Errorf("repeated: got %d, %v; want %d and that the letter is not removed", again, err, first)
			}
			if after := r.messages(t, test.stream); !reflect.DeepEqual(after, before) {
				t.Errorf("repeating it changed %v to %v", before, after)
			}
		})
	}
}

// forgetIDs waits until a stream has forgotten all message IDs so far.
func (r rig) forgetIDs(t *testing.T, name string) {
	t.Helper()
	stream, err := r.raw.Stream(t.Context(), name)
	expect.Must(t, err)
	config := stream.CachedInfo().Config
	// Twice: the server may look through its IDs a moment before the shorter time is in force, and would then look again
	// only when the longer one is over.
	for _, config.Duplicates = range []time.Duration{100 * time.Millisecond, 101 * time.Millisecond} {
		if _, err := r.raw.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	probe := scope(t, "probe", 1).Channel
	known := func() bool {
		ack, err := r.raw.Publish(t.Context(), probe, nil, jetstream.WithMsgID("probe"))
		expect.Must(t, err)
		return ack.Duplicate
	}
	known()
	expect.Eventually(t, "an ID of later is forgotten", func() bool { return !known() })
}

func TestRetryDoesNotReplaceNewerMessage(t *testing.T) {
	t.Run("a scope that waits", func(t *testing.T) {
		r := newRig(t, bus.Setup{})
		old := r.stored(t, scope(t, "a", 1))
		newer := r.stored(t, scope(t, "a", 2))
		bury(t, r.bus, bus.StreamScopes, old)
		r.refused(t, 1, bus.ErrNewer, fmt.Sprintf("a newer message has taken its place: REHOME_SCOPES has %d on %s, this was %d",
			newer.Sequence, old.Channel, old.Sequence))
	})
	t.Run("the answer to a newer scope", func(t *testing.T) {
		r := newRig(t, bus.Setup{})
		old := r.stored(t, scope(t, "a", 1))
		bury(t, r.bus, bus.StreamScopes, old)
		newer := r.stored(t, scope(t, "a", 2))
		give(t, r.bus, "a", newer.Sequence, "pod-1")
		work(t, r.bus, bus.Work{})
		r.empty(t, bus.StreamScopes)
		r.refused(t, 1, bus.ErrNewer, fmt.Sprintf("a newer message has taken its place: scope %d is answered, this was %d",
			newer.Sequence, old.Sequence))
	})
	t.Run("an answer in the table", func(t *testing.T) {
		r := newRig(t, bus.Setup{})
		old, first := give(t, r.bus, "a", 1, "pod-1"), r.first(t, bus.StreamIntents)
		old.Sequence = first
		give(t, r.bus, "a", 2, "pod-2")
		bury(t, r.bus, bus.StreamIntents, old)
		expect.Eventually(t, "both answers are in the history", func() bool { return len(bustest.IDs(t, r.bus, bus.Query{})) == 2 })
		r.refused(t, 1, bus.ErrNewer, fmt.Sprintf("a newer message has taken its place: REHOME_INTENTS has %d on %s, this was %d",
			first+1, old.Channel, first))
	})
}

func TestRetryIgnoresOlderMessages(t *testing.T) {
	t.Run("the answer to an older scope", func(t *testing.T) {
		r := newRig(t, bus.Setup{})
		give(t, r.bus, "a", 1, "pod-1")
		e := r.stored(t, scope(t, "a", 1))
		bury(t, r.bus, bus.StreamScopes, e)
		expect.Equal(t, "it got the number", retry(t, r.bus, 1), e.Sequence+1)
	})
	t.Run("the message of the letter, if it is still there", func(t *testing.T) {
		r := newRig(t, bus.Setup{})
		e := r.stored(t, scope(t, "a", 1))
		bury(t, r.bus, bus.StreamScopes, e)
		retry(t, r.bus, 1)
		want := map[string]string{e.Channel: string(e.Data)}
		expect.Equal(t, "messages", r.messages(t, bus.StreamScopes), want)
	})
}

func TestRetryTruncatedMessage(t *testing.T) {
	r := newRig(t, bus.Setup{})
	channel := scope(t, "a", 1).Channel
	const whole, rest = 8<<20 - 1000, 8<<20 - 4096 // an embedded server accepts 8 MiB, of this a letter reserves 4 KiB for headers
	r.garbage(t, channel, nil, strings.Repeat("x", whole))
	work(t, r.bus, bus.Work{})
	d := deadLetterSoon(t, r, 1)
	r.empty(t, bus.StreamScopes)
	if d.WholeSize != whole || string(d.Body) != strings.Repeat("x", rest) {
		t.Errorf("%d bytes are left of %d, want %d of %d", len(d.Body), d.WholeSize, rest, whole)
	}
	r.refused(t, 1, bus.ErrCut, "the message was cut and cannot be published again: 8384512 of its 8387608 bytes are left")
}

func TestMessageWithLargeHeaders(t *testing.T) {
	r := newRig(t, bus.Setup{})
	channel := scope(t, "a", 1).Channel
	r.garbage(t, channel, nats.Header{"A": {"b"}, "Large": {strings.Repeat("x", 65_400)}, "Z": {"y"}}, "garbage")
	work(t, r.bus, bus.Work{})
	d := deadLetterSoon(t, r, 1)
	r.empty(t, bus.StreamScopes)
	if want := map[string][]string{"A": {"b"}, "Z": {"y"}}; d.HeadersCut != 1 || !reflect.DeepEqual(d.Header, want) {
		t.Errorf("%d headers are cut, and the letter has %v; want 1, and %v", d.HeadersCut, d.Header, want)
	}
	r.refused(t, 1, bus.ErrCut, "the message was cut and cannot be published again: 1 of its headers are missing")
}

// forge stores a dead letter whose subject, headers, and body are chosen freely, and returns its number.
func (r rig) forge(t *testing.T, subject, stream, channel string, sequence uint64, body string) uint64 {
	t.Helper()
	r.garbage(t, subject, nats.Header{
		bus.HeaderStream: {stream}, bus.HeaderSubject: {channel}, bus.HeaderSequence: {fmt.Sprint(sequence)},
	}, body)
	return numbers(t, r.bus, bus.DeadQuery{})[0]
}

func TestForgedDeadLetter(t *testing.T) {
	r := newRig(t, bus.Setup{})
	const (
		ofScopes, ofIntents = "rehome.dead.REHOME_SCOPES.S", "rehome.dead.REHOME_INTENTS.actuator"
		ofEvents            = "rehome.dead.REHOME_EVENTS.audit"
	)
	v := r.stored(t, verdict(t, "pod-1"))
	nothing, again := "no event of stream %q is published on %q", "cannot retry requests or maintenances (channel %q): create them again"
	for name, test := range map[string]struct {
		subject, header, channel string
		sequence                 uint64
		says                     string
	}{
		"no channel":                  {ofScopes, "", "", 1, fmt.Sprintf(nothing, bus.StreamScopes, "")},
		"server administration":       {ofScopes, bus.StreamScopes, "$JS.API.STREAM.DELETE.REHOME_EVENTS", 1, fmt.Sprintf(nothing, bus.StreamScopes, "$JS.API.STREAM.DELETE.REHOME_EVENTS")},
		"another letter":              {"rehome.dead.REHOME_DEAD.x", bus.StreamDead, ofScopes, 1, fmt.Sprintf(nothing, bus.StreamDead, ofScopes)},
		"the ledger":                  {"rehome.dead.KV_REHOME_LEDGER.x", bus.StreamLedger, "$KV.REHOME_LEDGER.move.1", 1, fmt.Sprintf(nothing, bus.StreamLedger, "$KV.REHOME_LEDGER.move.1")},
		"an open request":             {"rehome.dead.REHOME_REQUESTS.x", bus.StreamRequests, "rehome.request.batch.one", 1, fmt.Sprintf(nothing, bus.StreamRequests, "rehome.request.batch.one")},
		"a wildcard":                  {ofScopes, bus.StreamScopes, "rehome.scope.S.default.node.*", 1, fmt.Sprintf(nothing, bus.StreamScopes, "rehome.scope.S.default.node.*")},
		"a space":                     {ofScopes, bus.StreamScopes, "rehome.scope.S.default.node.a b", 1, fmt.Sprintf(nothing, bus.StreamScopes, "rehome.scope.S.default.node.a b")},
		"intents from a forwarder":    {ofEvents, bus.StreamIntents, "rehome.intents.S.default.node.a", 1, fmt.Sprintf(nothing, bus.StreamEvents, "rehome.intents.S.default.node.a")},
		"intents from a function":     {ofScopes, bus.StreamIntents, "rehome.intents.S.default.node.a", 1, fmt.Sprintf(nothing, bus.StreamScopes, "rehome.intents.S.default.node.a")},
		"the scope of another":        {ofScopes, bus.StreamScopes, "rehome.scope.T.default.node.a", 1, `the letter is from strategy "S", but channel "rehome.scope.T.default.node.a" belongs to another strategy`},
		"the scope of a request":      {"rehome.dead.REHOME_SCOPES.Request", bus.StreamScopes, "rehome.scope.Request.default.node.a", 1, fmt.Sprintf(again, "rehome.scope.Request.default.node.a")},
		"intents of a request":        {ofIntents, bus.StreamIntents, "rehome.intents.Request.default.node.a", 1, fmt.Sprintf(again, "rehome.intents.Request.default.node.a")},
		"intents of a maintenance":    {ofIntents, bus.StreamIntents, "rehome.intents.Maintenance.default.node.a", 1, fmt.Sprintf(again, "rehome.intents.Maintenance.default.node.a")},
		"the status of a maintenance": {ofEvents, bus.StreamEvents, "rehome.maintenance.kernel", 1, fmt.Sprintf(again, "rehome.maintenance.kernel")},
		"an event that never was":     {ofEvents, bus.StreamEvents, v.Channel, v.Sequence + 1, fmt.Sprintf("the history has no message %d on %q (any more)", v.Sequence+1, v.Channel)},
		"an event without a number":   {ofEvents, bus.StreamEvents, v.Channel, 0, fmt.Sprintf("the history has no message 0 on %q (any more)", v.Channel)},
		"an event of another channel": {ofEvents, bus.StreamEvents, "rehome.verdict.other", v.Sequence, fmt.Sprintf("the history has no message %d on %q (any more)", v.Sequence, "rehome.verdict.other")},
	} {
		t.Run(name, func(t *testing.T) {
			number := r.forge(t, test.subject, test.header, test.channel, test.sequence, "{}")
			r.refused(t, number, schemas.ErrInvalid, "invalid event: "+test.says)
		})
	}
	t.Run("another body under a number of the history", func(t *testing.T) {
		number := r.forge(t, ofEvents, bus.StreamEvents, v.Channel, v.Sequence, "{}")
		retry(t, r.bus, number)
		expect.Equal(t, "history", bustest.IDs(t, r.bus, bus.Query{}), []string{v.ID, v.ID})
	})
}
