package actuator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// past is what the history of the bus says about intents that a leader before this one may have left without a verdict.
// The zero value knows nothing.
type past struct {
	// over are the intents that have a verdict, or share that of an earlier one.
	over map[string]bool
	// wishes are the intents that have none, by key and pod, each under the ID that it was accepted under first.
	wishes map[demand]Open
	// newest are the newest answers, by key.
	newest map[key]entry
	// told are all answers.
	told [][2]message
	at   time.Time // when the table began with it
}

// demand names what several intents in a row have in common.
type demand struct {
	key key
	pod types.UID
}

// entry is an answer as the history has it.
type entry struct {
	answer schemas.Intents
	event  schemas.Event
}

// chronicle collects answers and verdicts in the order in which they were stored. Two rules lead to what is over: an intent
// is, once there is a verdict of its ID, and so is each that was stored before a verdict on the same pod for the same
// key: it was the same wish, or that verdict would not have come. But a verdict can be stored late, when the pod is wished
// for anew. So one that moves no pod is about those intents that expire no later than the one it names, which had taken over
// the expiry of the last that was the same wish. One more that came while it was in flight gets a verdict of its own.
type chronicle struct {
	over   map[string]bool
	judged map[string]bool   // those over that have a verdict of their own
	listed map[demand][]Open // without a verdict yet, the oldest first
	newest map[key]entry
	told   [][2]message
	// moves are the verdicts that began a move, without data, and settled those that ended one, by the intent's ID.
	moves   map[string]schemas.Event
	settled map[string]bool
	// replaced are the pods that took the place of others that were moved.
	replaced map[types.UID]bool
	// departures are the pods that left.
	departures *departures
}

func newChronicle() *chronicle {
	return &chronicle{
		over: map[string]bool{}, judged: map[string]bool{}, listed: map[demand][]Open{}, newest: map[key]entry{},
		moves: map[string]schemas.Event{}, settled: map[string]bool{}, replaced: map[types.UID]bool{},
		departures: newDepartures(),
	}
}

// add takes the next event. What cannot be read is ignored: whoever follows the table buries it.
func (h *chronicle) add(e schemas.Event) {
	switch e.Type {
	case schemas.IntentsType:
		if a, err := readAnswer(e); err == nil {
			h.answer(a, e)
		}
	case schemas.VerdictType:
		v, err := schemas.Decode[schemas.Verdict](e)
		switch {
		case err != nil:
		case v.Outcome == schemas.Settled:
			h.settled[v.Intent.ID] = true
			if s := v.Settlement; s != nil && s.Replacement != nil {
				h.replaced[s.Replacement.UID] = true
			}
		default:
			if v.Outcome.Moves() {
				e.Data = nil
				h.moves[v.Intent.ID] = e
				h.departures.recall(v, e.Time)
			}
			h.verdict(v)
		}
	}
}

func (h *chronicle) answer(a schemas.Intents, e schemas.Event) {
	e.Data = nil
	k := keyOf(a)
	h.told = append(h.told, messagesOf(a, e))
	if known, ok := h.newest[k]; !ok || known.answer.Scope.Sequence < a.Scope.Sequence {
		h.newest[k] = entry{a, e}
	}
	for _, intent := range a.Intents {
		if !h.over[intent.ID] {
			w := demand{k, intent.Pod.UID}
			h.listed[w] = append(h.listed[w], openOf(a, intent, e))
		}
	}
}

func (h *chronicle) verdict(v schemas.Verdict) {
	w := demand{key{v.Profile, v.Strategy, v.Scope.Kind, v.Scope.Key}, v.Intent.Pod.UID}
	h.over[v.Intent.ID], h.judged[v.Intent.ID] = true, true
	h.listed[w] = slices.DeleteFunc(h.listed[w], func(open Open) bool {
		if !v.Outcome.Moves() && open.Intent.ID != v.Intent.ID && open.Intent.Expires.After(v.Intent.Expires) {
			return false
		}
		h.over[open.Intent.ID] = true
		return true
	})
	if len(h.listed[w]) == 0 {
		delete(h.listed, w)
	}
}

// past is what the collected events come to.
func (h *chronicle) past() past {
	p := past{over: h.over, wishes: map[demand]Open{}, newest: h.newest, told: h.told}
	for w, list := range h.listed {
		slices.SortStableFunc(list, func(a, b Open) int { return cmp.Compare(a.Scope.Sequence, b.Scope.Sequence) })
		p.wishes[w] = list[0].renewed(list[len(list)-1].Intent)
	}
	return p
}

// seed begins the table with what the past left: each of its newest answers as if it came now, without what is over, and
// with the wishes that it does not list withdrawn. An answer that wants more than moves is left to the bus's table, which has
// it as long as not all of it is done; its wishes are kept until it or a newer one comes.
func (t *table) seed(p past, now time.Time) changes {
	p.at = now
	p.leaveOut(now)
	t.past = p
	for _, names := range p.told {
		t.heard.add(names, now)
	}
	var out changes
	keys := make([]key, 0, len(p.newest))
	for k, e := range p.newest {
		if e.answer.Maintenance == nil { // else the bus has it as long as not all is done, and it comes from there
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(p.newest[a].answer.Scope.Sequence, p.newest[b].answer.Scope.Sequence), a.compare(b))
	})
	for _, k := range keys {
		e := p.newest[k].event
		e.Sequence = 0 // that of the history; the table's own will come
		out = out.and(t.accept(p.newest[k].answer, e, now))
	}
	out.done = nil // the table says itself what is in it
	out.verdicts = append(out.verdicts, t.past.abandon(func(k key) bool { return p.newest[k].answer.Maintenance == nil })...)
	t.past.newest, t.past.told = nil, nil
	return out
}

// abandon withdraws the wishes that nobody has listed again, of the keys that are chosen.
func (p past) abandon(chosen func(key) bool) []decided {
	var out []decided
	for w, open := range p.wishes {
		if chosen(w.key) {
			delete(p.wishes, w)
			out = append(out, unlisted(w.key, open, nobodyLists))
		}
	}
	return out
}

// nobodyLists says why a wish is withdrawn that no answer is known to have replaced.
const nobodyLists = "no answer lists the pod any more"

// unlisted withdraws a wish that never came into the table.
func unlisted(k key, open Open, why string) decided {
	return decided{
		claim:   &claim{open: open, key: k, state: claimSettled},
		verdict: open.Verdict(schemas.Withdrawn, schemas.ReasonSuperseded, why),
	}
}

// leaveOut forgets what nobody was to take up by its times. Whoever follows the table buries it.
func (p past) leaveOut(now time.Time) {
	maps.DeleteFunc(p.newest, func(_ key, e entry) bool { return timely(e.answer, e.event, now) != nil })
	maps.DeleteFunc(p.wishes, func(_ demand, o Open) bool { return o.Intent.Expires.After(now.Add(longestIntent)) })
}

// recall returns the intent under which the pod was wished for first, if the past left it without a verdict.
func (p past) recall(k key, o Open) Open {
	w := demand{k, o.Intent.Pod.UID}
	first, ok := p.wishes[w]
	if !ok {
		return o
	}
	delete(p.wishes, w)
	return first.renewed(o.Intent)
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.profile, other.profile), cmp.Compare(k.strategy, other.strategy),
		cmp.Compare(k.kind, other.kind), cmp.Compare(k.key, other.key))
}
