package actuator

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// verdictEvent is the verdict on the intent about a pod of answerTo(strategy, sequence), and its event.
func verdictEvent(outcome schemas.Outcome, strategy string, sequence uint64, uid types.UID) schemas.Event {
	a, e := answerTo(strategy, sequence, uid)
	v := openOf(a, a.Intents[0], e).Verdict(outcome, "R", "m")
	out, err := schemas.NewEvent("/test", v, noon.Add(time.Second), schemas.Event{})
	if err != nil {
		panic(err)
	}
	out.ID = fmt.Sprintf("verdict-%s-%s-%d-%s", outcome, strategy, sequence, uid)
	return out
}

// answerEvent is the event of answerTo.
func answerEvent(strategy string, sequence uint64, uids ...types.UID) schemas.Event {
	_, e := answerTo(strategy, sequence, uids...)
	return e
}

// storyOf is the chronicle of events in the order in which they were stored.
func storyOf(events ...schemas.Event) *chronicle {
	h := newChronicle()
	for _, e := range events {
		h.add(e)
	}
	return h
}

// remembered is a past in the words of a test: which intents are over, under which ID a pod is wished for still, and to
// which evaluation the newest answer of a strategy was.
type remembered struct {
	over   map[string]bool
	wishes map[string]string
	newest map[string]uint64
}

func inWords(p past) remembered {
	r := remembered{p.over, map[string]string{}, map[string]uint64{}}
	for w, open := range p.wishes {
		r.wishes[w.key.strategy+" "+string(w.pod)] = open.Intent.ID
	}
	for k, e := range p.newest {
		r.newest[k.strategy] = e.answer.Scope.Sequence
	}
	return r
}

func TestWhatTheHistorySaysIsOverIsOver(t *testing.T) {
	broken := answerEvent("A", 9, "1")
	broken.Data = []byte("{")
	type over = map[string]bool
	type wishes = map[string]string
	type newest = map[string]uint64
	for _, c := range []struct {
		name   string
		events []schemas.Event
		want   remembered
	}{
		{"nothing was stored", nil, remembered{over{}, wishes{}, newest{}}},
		{"an intent without a verdict is open", []schemas.Event{answerEvent("A", 1, "1", "2")},
			remembered{over{}, wishes{"A 1": "A-1.1", "A 2": "A-1.2"}, newest{"A": 1}}},
		{"one with a verdict is over", []schemas.Event{answerEvent("A", 1, "1", "2"), verdictEvent(schemas.Evicted, "A", 1, "1")},
			remembered{over{"A-1.1": true}, wishes{"A 2": "A-1.2"}, newest{"A": 1}}},
		{"whatever the verdict", []schemas.Event{answerEvent("A", 1, "1"), verdictEvent(schemas.Deferred, "A", 1, "1")},
			remembered{over{"A-1.1": true}, wishes{}, newest{"A": 1}}},
		{"one that was listed again is wished for under its first ID", []schemas.Event{answerEvent("A", 1, "1"), answerEvent("A", 2, "1")},
			remembered{over{}, wishes{"A 1": "A-1.1"}, newest{"A": 2}}},
		{"the verdict on the first is that on those that were stored before it", []schemas.Event{
			answerEvent("A", 1, "1"), answerEvent("A", 2, "1"), verdictEvent(schemas.Evicted, "A", 1, "1"),
		}, remembered{over{"A-1.1": true, "A-2.1": true}, wishes{}, newest{"A": 2}}},
		{"and not on those that came after it", []schemas.Event{
			answerEvent("A", 1, "1"), verdictEvent(schemas.Deferred, "A", 1, "1"), answerEvent("A", 2, "1"),
		}, remembered{over{"A-1.1": true}, wishes{"A 1": "A-2.1"}, newest{"A": 2}}},
		{"nor on those of another strategy", []schemas.Event{
			answerEvent("A", 1, "1"), answerEvent("B", 1, "1"), verdictEvent(schemas.Evicted, "A", 1, "1"),
		}, remembered{over{"A-1.1": true}, wishes{"B 1": "B-1.1"}, newest{"A": 1, "B": 1}}},
		{"an answer that was stored after the verdict on it brings nothing back", []schemas.Event{
			verdictEvent(schemas.Evicted, "A", 1, "1"), answerEvent("A", 1, "1"),
		}, remembered{over{"A-1.1": true}, wishes{}, newest{"A": 1}}},
		{"an older answer that was stored later is not the newest", []schemas.Event{answerEvent("A", 2, "1"), answerEvent("A", 1, "1", "2")},
			remembered{over{}, wishes{"A 1": "A-1.1", "A 2": "A-1.2"}, newest{"A": 2}}},
		{"the end of a move is no verdict on an intent", []schemas.Event{answerEvent("A", 1, "1"), verdictEvent(schemas.Settled, "A", 1, "1")},
			remembered{over{}, wishes{"A 1": "A-1.1"}, newest{"A": 1}}},
		{"what cannot be read says nothing", []schemas.Event{broken}, remembered{over{}, wishes{}, newest{}}},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, "past", inWords(storyOf(c.events...).past()), c.want) })
	}
}

func TestTheHistoryKnowsWhichMovesBeganAndEnded(t *testing.T) {
	began := verdictEvent(schemas.Restarted, "A", 1, "1")
	h := storyOf(began, verdictEvent(schemas.Deferred, "A", 1, "2"), verdictEvent(schemas.Settled, "A", 1, "1"))
	began.Data = nil
	check(t, "moves", h.moves, map[string]schemas.Event{"A-1.1": began})
	check(t, "settled", h.settled, map[string]bool{"A-1.1": true})
}

func TestATableBeginsWithWhatTheLeaderBeforeLeft(t *testing.T) {
	const away = "no answer lists the pod any more"
	for _, c := range []struct {
		name   string
		events []schemas.Event
		told   []told
		turns  []string
	}{
		{"an open intent gets its turn", []schemas.Event{answerEvent("A", 1, "1")}, nil, []string{"A-1.1"}},
		{"one that is over does not", []schemas.Event{answerEvent("A", 1, "1", "2"), verdictEvent(schemas.Evicted, "A", 1, "1")},
			nil, []string{"A-1.2"}},
		{"one that was listed again gets it under its first ID", []schemas.Event{answerEvent("A", 1, "1"), answerEvent("A", 2, "1")},
			nil, []string{"A-1.1"}},
		{"one that is listed no more is withdrawn", []schemas.Event{answerEvent("A", 1, "1", "2"), answerEvent("A", 2, "2")},
			[]told{{"A-1.1", schemas.Withdrawn, schemas.ReasonSuperseded, away}}, []string{"A-1.2"}},
		{"older evaluations come first", []schemas.Event{answerEvent("B", 2, "1"), answerEvent("A", 1, "2")}, nil, []string{"A-1.2", "B-2.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTable()
			got := x.seed(storyOf(c.events...).past(), noon)
			check(t, "verdicts", tell(got), c.told)
			check(t, "dropped", got.done, nil)
			check(t, "turns", turns(x, 9), c.turns)
		})
	}
}

func TestAnIntentThatIsListedAgainAfterARestartTakesOverTheNewerWords(t *testing.T) {
	x := newTable()
	first, event := answerTo("A", 1, "1")
	again, _ := answerTo("A", 2, "1")
	again.Intents[0].Node, again.Intents[0].Expires = "worker-1", noon.Add(12*time.Minute)
	e, err := schemas.NewEvent("/test", again, noon, schemas.Event{})
	if err != nil {
		t.Fatal(err)
	}
	x.seed(storyOf(event, e).past(), noon)
	event.Data = nil
	want := openOf(first, first.Intents[0], event)
	want.Intent.Reason, want.Intent.Expires = "evaluation 2", noon.Add(12*time.Minute)
	check(t, "the open intent", x.next().open, want)
}

func TestAnAnswerThatTheHistoryHadIsDroppedWhenTheBusHandsItOverAndItsLastVerdictIsStored(t *testing.T) {
	x := newTable()
	a, e := answerTo("A", 1, "1")
	x.seed(storyOf(e).past(), noon)
	check(t, "changes when the bus hands it over", x.accept(a, e, noon), changes{})
	c := x.next()
	x.land(c, schemas.Evicted)
	dropped, done := x.reported(c, noon)
	e.Data = nil
	check(t, "dropped", dropped, e)
	check(t, "done", done, true)
}

func TestAnAnswerThatIsOverAsAWholeIsDroppedWhenTheBusHandsItOver(t *testing.T) {
	x := newTable()
	a, e := answerTo("A", 1, "1")
	x.seed(storyOf(e, verdictEvent(schemas.Evicted, "A", 1, "1")).past(), noon)
	got := x.accept(a, e, noon)
	e.Data = nil
	check(t, "changes", got, changes{done: []schemas.Event{e}})
	check(t, "turns", turns(x, 9), nil)
}

func TestThePastIsForgottenWhenItsIntentsHaveExpired(t *testing.T) {
	x := newTable()
	x.seed(storyOf(answerEvent("A", 1, "1"), verdictEvent(schemas.Evicted, "A", 1, "1")).past(), noon)
	x.forget(noon.Add(remember - 1))
	check(t, "what is over", x.past.over, map[string]bool{"A-1.1": true})
	x.forget(noon.Add(remember))
	check(t, "the past", x.past, past{})
}
