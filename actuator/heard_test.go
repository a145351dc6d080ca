package actuator

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// TestAnAnswerThatANewerOneReplacedBeforeItWasReadHasItsVerdicts: the table of the bus has the newest answer alone, and the
// history has both.
func TestAnAnswerThatANewerOneReplacedBeforeItWasReadHasItsVerdicts(t *testing.T) {
	handle := always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0)
	superseded, evicted := schemas.ReasonSuperseded, schemas.ReasonEvictionAccepted
	for _, c := range []struct {
		name  string
		lists [][]types.UID // by each evaluation
		want  map[string]schemas.ReasonCode
	}{
		{"by one that lists other pods", [][]types.UID{{"1", "2"}, {"3"}},
			map[string]schemas.ReasonCode{"A-1.1": superseded, "A-1.2": superseded, "A-2.3": evicted}},
		{"by one that lists none", [][]types.UID{{"1"}, {}}, map[string]schemas.ReasonCode{"A-1.1": superseded}},
		{"by two in a row", [][]types.UID{{"1"}, {"2"}, {}},
			map[string]schemas.ReasonCode{"A-1.1": superseded, "A-2.2": superseded}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, Config{Policy: fast}, handle, func(t *testing.T, b *bench) {
				b.put("B", 1) // somebody leads
				synctest.Wait()
				var answers []schemas.Event
				for i, uids := range c.lists {
					answers = append(answers, b.answer("worker-1", "A", uint64(i+1), uids...))
				}
				b.bus.put(answers...)
				time.Sleep(time.Second)
				got := map[string]schemas.ReasonCode{}
				for _, h := range b.bus.heard(t, b.start) {
					if got[h.ID] != "" {
						t.Errorf("%s has another verdict, %s", h.ID, h.Reason)
					}
					got[h.ID] = h.Reason
				}
				check(t, "verdicts", got, c.want)
				check(t, "answers that are to come", len(b.term.Load().table.heard.early), 0)
				check(t, "answers left in the table", b.bus.left(), 0)
			})
		})
	}
}

// TestAnAnswerOfTheHistoryIsWaitedForBeforeItIsGivenUp: the bus's table brings it, or a newer one, a moment later.
func TestAnAnswerOfTheHistoryIsWaitedForBeforeItIsGivenUp(t *testing.T) {
	x := newTable()
	a, e := answerTo("A", 1, "1")
	check(t, "verdicts", x.overhear(a, e, noon), nil)
	check(t, "turns", turns(x, 9), nil)
	due, found := x.nextExpiry()
	check(t, "given up at", due, noon.Add(heardPatience))
	check(t, "something is waited for", found, true)

	y := newTable()
	y.overhear(a, e, noon)
	take(y, "A", 1, "1")
	check(t, "verdicts when it came", tell(y.expire(noon.Add(heardPatience))), nil)
	check(t, "turns when it came", turns(y, 9), []string{"A-1.1"})

	const gone = "no answer lists the pod any more"
	check(t, "verdicts a moment before", tell(x.expire(noon.Add(heardPatience-1))), nil)
	check(t, "verdicts when it never came", tell(x.expire(noon.Add(heardPatience))),
		[]told{{"A-1.1", schemas.Withdrawn, schemas.ReasonSuperseded, gone}})
	_, again := answerTo("A", 1, "1") // the function was asked twice: the same intents, in another event
	for _, event := range []schemas.Event{e, again} {
		check(t, "verdicts when it is heard of again", x.overhear(a, event, noon.Add(heardPatience)), nil)
	}
	check(t, "verdicts later", tell(x.expire(noon.Add(2*heardPatience))), nil)
}

// TestAnAnswerOfAnotherTimeIsNotWaitedFor: whoever follows the bus's table buries it.
func TestAnAnswerOfAnotherTimeIsNotWaitedFor(t *testing.T) {
	x := newTable()
	a, e := answerTo("A", 1, "1")
	early := noon.Add(-longestIntent) // its intents expire later than any may
	check(t, "verdicts when it is heard of", x.overhear(a, e, early), nil)
	_, found := x.nextExpiry()
	check(t, "something is waited for", found, false)
	check(t, "verdicts later", tell(x.expire(early.Add(heardPatience))), nil)
}
