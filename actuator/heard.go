package actuator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// hearings are the answers that a table was told of. In the bus's table a newer answer takes the place of one that nobody has
// read yet: when two come at once, or while nobody leads. The history has both. So a term follows the history too, and what the
// bus's table did not bring gets its verdicts all the same. It is never acted upon: what is newer may be known a moment later.
// Not safe for concurrent use.
type hearings struct {
	known map[message]bool
	order []hearing // the oldest first
	// early are those of the history that the bus's table has not brought yet, nor a newer one: the oldest first.
	early []early
}

// early is an answer of the history that is still to come, or never will.
type early struct {
	entry
	at time.Time
}

// heardPatience is how long an answer of the history is waited for that the bus's table does not bring: longer than it takes to
// connect again, and to read all of it.
const heardPatience = time.Minute

// message is one event of the bus, by its ID, or one answer, by the ID of the event that it answers: a function that is asked
// twice answers twice, with the same intents.
type message struct{ channel, id string }

// messagesOf are the names of an answer.
func messagesOf(a schemas.Intents, e schemas.Event) [2]message {
	return [...]message{{e.Channel, e.ID}, {e.Channel, a.Scope.Event}}
}

type hearing struct {
	message
	at time.Time
}

// add notes an answer, and says whether that is the first time.
func (h *hearings) add(names [2]message, now time.Time) (first bool) {
	first = true
	if h.known == nil {
		h.known = map[message]bool{}
	}
	for _, m := range names {
		if h.known[m] {
			first = false
			continue
		}
		h.known[m] = true
		h.order = append(h.order, hearing{m, now})
	}
	return first
}

// wait keeps an answer until the next one of its key is there.
func (h *hearings) wait(x entry, now time.Time) {
	listed := slices.ContainsFunc(h.early, func(e early) bool { return e.answer.Scope == x.answer.Scope })
	if len(x.answer.Intents) > 0 && !listed {
		h.early = append(h.early, early{x, now})
	}
}

// forget forgets those that no copy comes of any more: what they list has expired.
func (h *hearings) forget(now time.Time) {
	for len(h.order) > 0 && now.Sub(h.order[0].at) >= remember {
		delete(h.known, h.order[0].message)
		h.order = h.order[1:]
	}
}

// overhear takes an answer of the history.
func (t *table) overhear(a schemas.Intents, e schemas.Event, now time.Time) []decided {
	e.Data = nil
	if timely(a, e, now) != nil || !t.heard.add(messagesOf(a, e), now) {
		return nil // whoever follows the table buries what is not timely
	}
	if newest := t.answers[keyOf(a)]; newest != nil && a.Scope.Sequence < newest.scope.Sequence {
		return t.overtaken(entry{a, e})
	}
	t.heard.wait(entry{a, e}, now)
	return nil
}

// arrived withdraws what was to come before the newest answer of the key.
func (t *table) arrived(k key) []decided {
	var out []decided
	newest := t.answers[k].scope.Sequence
	t.heard.early = slices.DeleteFunc(t.heard.early, func(x early) bool {
		if keyOf(x.answer) != k || x.answer.Scope.Sequence > newest {
			return false
		}
		if x.answer.Scope.Sequence < newest {
			out = append(out, t.overtaken(x.entry)...)
		}
		return true
	})
	return out
}

// missed withdraws what has not come for long.
func (t *table) missed(now time.Time) []decided {
	var out []decided
	for len(t.heard.early) > 0 && !now.Before(t.heard.early[0].at.Add(heardPatience)) {
		out = append(out, t.overtaken(t.heard.early[0].entry)...)
		t.heard.early = t.heard.early[1:]
	}
	return out
}

// overtaken withdraws what an answer lists that does not count any more, but for wishes that are open already.
func (t *table) overtaken(x entry) []decided {
	var out []decided
	k := keyOf(x.answer)
	why := nobodyLists
	if newest := t.answers[k]; newest != nil {
		why = fmt.Sprintf("evaluation %d of %s/%s came before it", newest.scope.Sequence, k.kind, k.key)
	}
	for _, intent := range x.answer.Intents {
		if t.past.over[intent.ID] || t.pods[intent.Pod.UID].claimOf(k) != nil {
			continue
		}
		out = append(out, unlisted(k, openOf(x.answer, intent, x.event), why))
	}
	return out
}

// listenBack is how much of the history before the beginning of a term is heard again, since clocks differ.
const listenBack = time.Minute

// listen takes up the answers of the history that come from the beginning of the term on, until ctx ends.
func (t *term) listen(ctx context.Context, began time.Time) {
	if err := t.cfg.Bus.FollowAnswers(ctx, began.Add(-listenBack), t.overhear); err != nil && ctx.Err() == nil {
		t.cfg.Log.Error("answers cannot be followed in the history; one that is replaced at once has no verdict", "error", err)
	}
}

// overhear takes one answer of the history. What cannot be read, whoever follows the table buries.
func (t *term) overhear(e schemas.Event) {
	t.mu.Lock()
	known := t.table.heard.known[message{e.Channel, e.ID}]
	t.mu.Unlock()
	if known {
		return // as nearly every one, without being read
	}
	answer, err := readAnswer(e)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apply(changes{verdicts: t.table.overhear(answer, e, t.cfg.Now())})
}
