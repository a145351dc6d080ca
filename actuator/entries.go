package actuator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// entries are the intents that have no verdict yet, by the pod and by the message that brought them. It decides nothing about
// the cluster and asks no clock. It is not safe for concurrent use. newEntries makes one.
//
//   - An intent that was accepted ends in exactly one verdict.
//   - Of all intents for one pod, one is open at a time: the first of its entries. When it ends without a move, the next one
//     becomes the open one. When it ends with a move, the others are rejected.
//   - An intent that a newer message of the same scope lists again renews its entry: it keeps the ID that it was accepted under,
//     and takes over the newer Reason, Node and Expires. The newer ID gets no verdict.
//   - An entry is not withdrawn while it is executed.
type entries struct {
	messages map[scopeKey]*message
	pods     map[types.UID][]*entry // never empty lists
	done     []doneMessage          // the one that was done first comes first
	open     int                    // entries without a verdict

	// begun returns the move that this process or one before it began for an intent. nil: none is known.
	begun func(Open) *inFlight
	// added is told of each new entry, changed of each that may have to be reconciled now, and settled of each that has a verdict.
	added, changed, settled func(*entry)
}

// entry is an intent that has no verdict yet.
type entry struct {
	open    Open
	key     scopeKey
	message *message // the newest that lists the pod; it was replaced when it is not the one in entries.messages
	state   entryState
	number  uint64 // in the order of arrival

	priority int         // in the queue
	parked   *parked     // what it waits for beside the queue; nil: nothing
	since    time.Time   // when it was parked first
	timer    *time.Timer // when it has to be looked at by itself
}

type entryState int

const (
	entryWaiting entryState = iota
	entryExecuting
	entryDone
)

func (e *entry) uid() types.UID { return e.open.Intent.Pod.UID }

// scopeKey identifies the messages of which a newer one replaces an older one.
type scopeKey struct {
	profile, strategy string
	kind              schemas.ScopeKind
	key               string
}

func keyOf(a schemas.Intents) scopeKey {
	return scopeKey{profile: a.Profile, strategy: a.Strategy, kind: a.Scope.Kind, key: a.Scope.Key}
}

// message is the newest intents message of a scope.
type message struct {
	scope      schemas.ScopeRef
	event      schemas.Event      // without data; what is dropped from the bus
	entries    []*entry           // in the order of the message
	lists      map[types.UID]bool // its pods, if what is decided about them depends on each other; else nil
	unreported int                // entries whose verdict is not stored yet, and one for what else is still to be done
	closed     bool               // all is done, or a newer message replaced it
}

// doneMessage is a message that was done at a time.
type doneMessage struct {
	key     scopeKey
	message *message
	at      time.Time
}

// remember is how long a message that is done is remembered, so that an older one that comes late is recognized. After
// that time what the late one lists has expired: intents live for ten minutes from the time of their scope.
const remember = 10 * time.Minute

// verdictOn is a verdict on an entry, and the move that it began.
type verdictOn struct {
	entry   *entry
	verdict schemas.Verdict
	move    *inFlight // nil: none
}

// changes is what follows from a change of the entries: verdicts to be stored, and messages to be dropped.
type changes struct {
	verdicts []verdictOn
	drop     []schemas.Event
}

func newEntries() *entries {
	return &entries{
		messages: map[scopeKey]*message{}, pods: map[types.UID][]*entry{},
		begun: func(Open) *inFlight { return nil }, added: func(*entry) {}, changed: func(*entry) {},
		settled: func(*entry) {},
	}
}

// accept takes a message that readMessage has read from e. An older one than the known message of its scope is dropped; the
// same one again changes nothing.
func (t *entries) accept(a schemas.Intents, e schemas.Event, now time.Time) changes {
	t.forget(now)
	e.Data = nil
	k := keyOf(a)
	old := t.messages[k]
	switch {
	case old == nil:
	case a.Scope.Sequence < old.scope.Sequence:
		return changes{drop: []schemas.Event{e}}
	case a.Scope.Sequence == old.scope.Sequence && a.Scope.Event == old.scope.Event:
		if e.Sequence > old.event.Sequence {
			old.event = e // stored again: this is the one to drop
		}
		if old.unreported == 0 {
			return changes{drop: []schemas.Event{e}}
		}
		return changes{}
	}
	next := &message{scope: a.Scope, event: e, lists: listed(a)}
	t.messages[k] = next
	for _, intent := range a.Intents {
		open := openOf(a, intent, e)
		if x := t.begun(open); x != nil {
			x.message = next // its verdict was stored, or is about to be
			continue
		}
		next.entries = append(next.entries, t.renew(k, next, open))
	}
	next.unreported = len(next.entries)
	var c changes
	if old != nil {
		old.closed = true
		for _, is := range old.entries {
			if is.message == old && is.state == entryWaiting {
				c.verdicts = append(c.verdicts, t.withdrawn(is, next.scope))
			}
		}
	}
	if next.unreported == 0 {
		c.drop = append(c.drop, t.closeMessage(k, next, now))
	}
	return c
}

// renew renews the entry of the same scope for the same pod, or adds a new one.
func (t *entries) renew(k scopeKey, m *message, o Open) *entry {
	if e := t.of(k, o.Intent.Pod.UID); e != nil {
		e.message, e.open = m, e.open.renewed(o.Intent)
		t.changed(e)
		return e
	}
	e := &entry{open: o, key: k, message: m}
	t.pods[e.uid()] = append(t.pods[e.uid()], e)
	t.open++
	t.added(e)
	t.changed(e)
	return e
}

// of returns the entry of a scope for a pod. nil: there is none.
func (t *entries) of(k scopeKey, pod types.UID) *entry {
	for _, e := range t.pods[pod] {
		if e.key == k {
			return e
		}
	}
	return nil
}

// front returns the open entry of a pod. nil: there is none.
func (t *entries) front(pod types.UID) *entry {
	if list := t.pods[pod]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// withdrawn settles an entry whose pod a newer evaluation does not list.
func (t *entries) withdrawn(e *entry, by schemas.ScopeRef) verdictOn {
	return t.verdict(e, schemas.Withdrawn, schemas.ReasonSuperseded,
		fmt.Sprintf("evaluation %d of %s/%s does not list the pod", by.Sequence, e.key.kind, e.key.key))
}

// withdrawUnlisted withdraws what waits of the scope of a message and is not listed by it, before it is accepted, and says
// whether something else that it does not list is still executed.
func (t *entries) withdrawUnlisted(a schemas.Intents) (c changes, executing bool) {
	k, wanted := keyOf(a), map[types.UID]bool{}
	for _, intent := range a.Intents {
		wanted[intent.Pod.UID] = true
	}
	for uid := range t.pods {
		switch e := t.of(k, uid); {
		case e == nil || wanted[uid]:
		case e.state == entryExecuting:
			executing = true
		default:
			c.verdicts = append(c.verdicts, t.withdrawn(e, a.Scope))
		}
	}
	sortByID(c.verdicts)
	return c, executing
}

func sortByID(list []verdictOn) {
	slices.SortFunc(list, func(a, b verdictOn) int { return cmp.Compare(a.verdict.Intent.ID, b.verdict.Intent.ID) })
}

// putBack ends the execution of an entry without a verdict: it waits again, or is withdrawn when its message was replaced.
func (t *entries) putBack(e *entry) changes {
	e.state = entryWaiting
	if newest := t.messages[e.key]; newest != e.message {
		if newest == nil {
			newest = e.message
		}
		return changes{verdicts: []verdictOn{t.withdrawn(e, newest.scope)}}
	}
	t.changed(e)
	return changes{}
}

// finish ends the execution of an entry with a verdict. When that begins a move it returns the other entries of the pod, rejected.
func (t *entries) finish(e *entry, outcome schemas.Outcome) changes {
	t.settle(e)
	if !outcome.Moves() {
		return changes{}
	}
	reason := schemas.ReasonMoving
	if outcome == schemas.Evicted {
		reason = schemas.ReasonPodTerminating
	}
	var out changes
	for other := t.front(e.uid()); other != nil; other = t.front(e.uid()) {
		out.verdicts = append(out.verdicts, t.verdict(other, schemas.Rejected, reason,
			fmt.Sprintf("%s for %s of profile %s", outcome, e.open.Strategy, e.open.Profile)))
	}
	return out
}

// verdict settles an entry with a verdict.
func (t *entries) verdict(e *entry, outcome schemas.Outcome, reason schemas.ReasonCode, message string) verdictOn {
	t.settle(e)
	return verdictOn{entry: e, verdict: e.open.Verdict(outcome, reason, message)}
}

// reject settles the waiting entries for which there is an objection, in the order of their IDs.
func (t *entries) reject(objection func(Open) (Objection, bool)) changes {
	var out changes
	for _, list := range t.pods {
		for _, e := range slices.Clone(list) {
			if o, objects := objection(e.open); objects && e.state == entryWaiting {
				out.verdicts = append(out.verdicts, t.verdict(e, o.Outcome, o.Reason, o.Message))
			}
		}
	}
	sortByID(out.verdicts)
	return out
}

// settle takes an entry off its pod. The next one becomes the open one.
func (t *entries) settle(e *entry) {
	e.state = entryDone
	if e.timer != nil {
		e.timer.Stop()
	}
	t.settled(e)
	t.open--
	uid := e.uid()
	first := t.pods[uid][0] == e
	t.pods[uid] = slices.DeleteFunc(t.pods[uid], func(o *entry) bool { return o == e })
	switch {
	case len(t.pods[uid]) == 0:
		delete(t.pods, uid)
	case first:
		t.changed(t.pods[uid][0])
	}
}

// reported says that the verdict on an entry is stored. It returns the message of the entry when that was its last one.
func (t *entries) reported(e *entry, now time.Time) (schemas.Event, bool) {
	if e.message == nil || t.messages[e.key] != e.message {
		return schemas.Event{}, false
	}
	return t.lessUnreported(e.key, e.message, now)
}

func (t *entries) lessUnreported(k scopeKey, m *message, now time.Time) (schemas.Event, bool) {
	if m.unreported--; m.unreported > 0 {
		return schemas.Event{}, false
	}
	return t.closeMessage(k, m, now), true
}

// closeMessage notes that a message is done, and returns what is to be dropped.
func (t *entries) closeMessage(k scopeKey, m *message, now time.Time) schemas.Event {
	m.entries, m.closed = nil, true
	t.done = append(t.done, doneMessage{k, m, now})
	return m.event
}

// forget drops what was remembered for long enough.
func (t *entries) forget(now time.Time) {
	for len(t.done) > 0 && now.Sub(t.done[0].at) >= remember {
		if d := t.done[0]; t.messages[d.key] == d.message {
			delete(t.messages, d.key)
		}
		t.done = t.done[1:]
	}
}
