package actuator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// Intent is one intent with its message.
type Intent struct {
	schemas.Intent
	Profile  string           `json:"profile"`
	Strategy string           `json:"strategy"`
	Scope    schemas.ScopeRef `json:"scope"`
	// Message is the event of the intents message, without its data. It is the cause of the verdict.
	Message schemas.Event `json:"message"`
}

// intentOf returns an intent of the message a in the event e.
func intentOf(a schemas.Intents, i schemas.Intent, e schemas.Event) Intent {
	return Intent{Intent: i, Profile: a.Profile, Strategy: a.Strategy, Scope: a.Scope, Message: e}
}

// Verdict returns a verdict on the intent.
func (i Intent) Verdict(outcome schemas.Outcome, reason schemas.ReasonCode, message string) schemas.Verdict {
	return schemas.Verdict{
		Outcome: outcome, Reason: reason, Message: message,
		Profile: i.Profile, Strategy: i.Strategy, Scope: i.Scope, Intent: i.Intent,
	}
}

// asked returns the options of a request. Other strategies have none.
func (i Intent) asked() schemas.Asked {
	if i.Strategy != schemas.RequestStrategy || i.Asked == nil {
		return schemas.Asked{}
	}
	return *i.Asked
}

func (i Intent) scopeKey() scopeKey {
	return scopeKey{i.Profile, i.Strategy, i.Scope.Kind, i.Scope.Key}
}

// expired reports whether the intent has expired at a time.
func (i Intent) expired(now time.Time) bool { return !now.Before(i.Expires) }

// entries are the intents without a verdict, by pod and by message. They do not read the cluster, and report the
// consequences of a change to their owner. Not safe for concurrent use. Use newEntries to make one.
//
//   - Every accepted intent ends in exactly one verdict.
//   - One intent for each pod is open at a time: the first of its entries. When it ends without a move, the next one becomes the
//     open one. When it ends with a move, the others are rejected.
//   - If a newer message of the same scope lists the pod of an entry again, it renews the entry: the entry keeps its ID and gets
//     the new Reason, Node, and Expires, and the new Scope without its Since. The new ID gets no verdict.
//   - An entry is not withdrawn while it is executed.
type entries struct {
	messages map[scopeKey]*message
	pods     map[types.UID][]*entry // never empty lists
	open     int                    // entries without a verdict

	// moveOf returns the move that this process or a previous one began for an intent, or nil.
	moveOf func(Intent) *inFlight
	// stepsOf returns the move in flight with more steps that an earlier intent of the same scope began, or nil.
	stepsOf func(Intent) *inFlight
	decided func(verdictOn)     // called when a verdict must be stored
	over    func(schemas.Event) // called when a message must be dropped
	ready   func(*entry)        // called when an entry is new, renewed, or open now
}

// entry is an intent without a verdict.
type entry struct {
	intent  Intent
	message *message // the newest message that lists the pod; it was replaced if it is not in entries.messages
	state   entryState

	number   uint64    // in the order of arrival
	priority int       // in the queue
	parked   *parked   // the reason for parking, or nil
	since    time.Time // the time of the first parking
}

type entryState int

const (
	entryWaiting entryState = iota
	entryExecuting
	entryDone
)

func (e *entry) uid() types.UID { return e.intent.Pod.UID }

// scopeKey identifies a message. A newer message with the same key replaces an older one.
type scopeKey struct {
	profile, strategy string
	kind              schemas.ScopeKind
	key               string
}

// message is the newest intents message of a scope.
type message struct {
	scope      schemas.ScopeRef
	event      schemas.Event      // without data, to drop it from the bus
	entries    []*entry           // in the order of the message
	lists      map[types.UID]bool // its pods if their decisions depend on each other, else nil
	unreported int                // entries whose verdict is not stored yet
	// steps are the pods whose moves have more steps. The bus stores an answer without intents only over one with
	// intents, so the message stays in the table as long as a newer one can cancel a move.
	steps  map[types.UID]bool
	closed bool      // everything is done, or a newer message replaced it
	doneAt time.Time // the time when everything was done
}

// remember is how long a completed message is remembered, to recognize an older message that arrives late. Older
// messages have expired after that time.
const remember = 10 * time.Minute

func (m *message) forgettable(now time.Time) bool {
	return !m.doneAt.IsZero() && now.Sub(m.doneAt) >= remember
}

// verdictOn is a verdict on an entry, and the move that it began.
type verdictOn struct {
	entry   *entry
	verdict schemas.Verdict
	move    *inFlight // nil if there is none
}

func newEntries() *entries {
	return &entries{messages: map[scopeKey]*message{}, pods: map[types.UID][]*entry{}}
}

// accept adds the intents of the message a in e. It drops a message that is older than the known one of its scope; the
// same message again changes nothing.
func (t *entries) accept(a schemas.Intents, e schemas.Event, now time.Time) {
	e.Data = nil
	k := scopeKey{a.Profile, a.Strategy, a.Scope.Kind, a.Scope.Key}
	old := t.messages[k]
	if old != nil && old.forgettable(now) {
		old = nil
	}
	if old != nil && !t.newer(a.Scope, e, old) {
		return
	}
	next := &message{scope: a.Scope, event: e, steps: map[types.UID]bool{}}
	if countsTogether(a.Scope.Kind) {
		next.lists = map[types.UID]bool{}
	}
	t.messages[k] = next
	for _, i := range a.Intents {
		t.list(next, intentOf(a, i, e))
	}
	next.unreported = len(next.entries)
	if old != nil {
		t.replace(old, next)
	}
	for _, one := range next.entries {
		t.ready(one)
	}
	if next.done() {
		t.over(next.close(now))
	}
}

// done reports whether a message has no more use.
func (m *message) done() bool { return m.unreported == 0 && len(m.steps) == 0 }

// newer reports whether the event e is newer than the old message of its scope, and drops the event if it is over.
func (t *entries) newer(scope schemas.ScopeRef, e schemas.Event, old *message) bool {
	switch {
	case scope.Sequence < old.scope.Sequence:
		t.over(e)
		return false
	case scope.Sequence > old.scope.Sequence || scope.Event != old.scope.Event:
		return true
	case e.Sequence > old.event.Sequence:
		old.event = e // stored again; drop this one
	}
	if old.done() {
		t.over(e)
	}
	return false
}

// list adds an intent to its message, with a new entry or with the one that it renews. An intent that has begun a move
// gets none. If it is unknown whether the move was begun, the entry counts as executed until that is known.
func (t *entries) list(m *message, i Intent) {
	uid := i.Pod.UID
	if m.lists != nil {
		m.lists[uid] = true
	}
	if x := t.stepsOf(i); x != nil {
		x.message, m.steps[uid] = m, true
	}
	x := t.moveOf(i)
	if x != nil && !x.isUnanswered() {
		x.message = m // its verdict was stored, or is about to be
		return
	}
	one := t.of(i.scopeKey(), uid)
	if one == nil {
		one = &entry{intent: i}
		t.pods[uid] = append(t.pods[uid], one)
		t.open++
	}
	if x != nil && one.intent.ID == i.ID {
		one.state = entryExecuting
	}
	one.message = m
	since := one.intent.Scope.Since // the pod waits since then
	one.intent.Scope, one.intent.Weight = i.Scope, i.Weight
	one.intent.Scope.Since = since
	one.intent.Reason, one.intent.Node, one.intent.Expires, one.intent.Asked = i.Reason, i.Node, i.Expires, i.Asked
	m.entries = append(m.entries, one)
}

// replace withdraws the entries of the old message that the new one does not list.
func (t *entries) replace(old, next *message) {
	old.closed = true
	for _, e := range old.entries {
		if e.message == old && e.state == entryWaiting {
			t.withdraw(e, next.scope)
		}
	}
}

// of returns the entry of a scope for a pod, or nil.
func (t *entries) of(k scopeKey, pod types.UID) *entry {
	for _, e := range t.pods[pod] {
		if e.intent.scopeKey() == k {
			return e
		}
	}
	return nil
}

// byID returns the entry of an intent, or nil.
func (t *entries) byID(i schemas.Intent) *entry {
	for _, e := range t.pods[i.Pod.UID] {
		if e.intent.ID == i.ID {
			return e
		}
	}
	return nil
}

// front returns the open entry of a pod, or nil.
func (t *entries) front(pod types.UID) *entry {
	if list := t.pods[pod]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// withdraw gives a verdict to an entry whose pod a newer evaluation does not list.
func (t *entries) withdraw(e *entry, by schemas.ScopeRef) {
	t.decide(e, e.intent.Verdict(schemas.Withdrawn, schemas.ReasonSuperseded,
		fmt.Sprintf("evaluation %d of %s/%s does not list the pod", by.Sequence, e.intent.Scope.Kind, e.intent.Scope.Key)))
}

// putBack ends the execution of an entry without a verdict: it waits again, or is withdrawn if its message was
// replaced.
func (t *entries) putBack(e *entry) {
	e.state = entryWaiting
	if newest := t.messages[e.intent.scopeKey()]; newest != e.message {
		t.withdraw(e, cmp.Or(newest, e.message).scope)
		return
	}
	t.ready(e)
}

// finish ends the execution of a removed entry. If it began a move, finish rejects the other waiting entries of the pod;
// else the next one becomes the open one. In a dry run, another entry may be executed already; its verdict follows.
func (t *entries) finish(e *entry, outcome schemas.Outcome, moved bool) {
	if !moved {
		t.next(e.uid())
		return
	}
	reason := schemas.ReasonMoving
	if outcome == schemas.Evicted {
		reason = schemas.ReasonPodTerminating
	}
	for _, other := range slices.Clone(t.pods[e.uid()]) {
		if other.state != entryWaiting {
			continue
		}
		t.remove(other)
		t.decided(verdictOn{entry: other, verdict: other.intent.Verdict(schemas.Rejected, reason,
			fmt.Sprintf("%s for %s of profile %s", outcome, e.intent.Strategy, e.intent.Profile))})
	}
}

// decide gives an entry a verdict. The next one of its pod becomes the open one.
func (t *entries) decide(e *entry, v schemas.Verdict) {
	first := t.front(e.uid()) == e
	t.remove(e)
	t.decided(verdictOn{entry: e, verdict: v})
	if first {
		t.next(e.uid())
	}
}

// rejectAll rejects the waiting entries whose intents match.
func (t *entries) rejectAll(why func(Intent) *move.Refusal, matches func(Intent) bool) {
	for _, list := range t.pods {
		for _, e := range slices.Clone(list) {
			if e.state == entryWaiting && matches(e.intent) {
				r := why(e.intent)
				t.decide(e, e.intent.Verdict(r.Outcome, r.Reason, r.Message))
			}
		}
	}
}

// remove removes an entry from its pod.
func (t *entries) remove(e *entry) {
	e.state = entryDone
	t.open--
	uid := e.uid()
	if t.pods[uid] = slices.DeleteFunc(t.pods[uid], func(o *entry) bool { return o == e }); len(t.pods[uid]) == 0 {
		delete(t.pods, uid)
	}
}

// next makes the first entry of a pod the open one.
func (t *entries) next(pod types.UID) {
	if e := t.front(pod); e != nil {
		t.ready(e)
	}
}

// reported records that the verdict on an entry is stored. It returns the message of the entry if that was its last
// one.
func (t *entries) reported(e *entry, now time.Time) (schemas.Event, bool) {
	m := e.message
	if m == nil || t.messages[e.intent.scopeKey()] != m {
		return schemas.Event{}, false
	}
	if m.unreported--; !m.done() {
		return schemas.Event{}, false
	}
	return m.close(now), true
}

// stepped records that a move has no more steps, and drops its message if everything else is done.
func (t *entries) stepped(x *inFlight, now time.Time) {
	m := x.message
	if m == nil || !m.steps[x.uid()] {
		return
	}
	delete(m.steps, x.uid())
	if !m.closed && m.done() {
		t.over(m.close(now))
	}
}

// close records that a message is done, and returns the event to drop.
func (m *message) close(now time.Time) schemas.Event {
	m.entries, m.closed, m.doneAt = nil, true, now
	return m.event
}

// forget deletes completed messages that need not be remembered anymore.
func (t *entries) forget(now time.Time) {
	for k, m := range t.messages {
		if m.forgettable(now) {
			delete(t.messages, k)
		}
	}
}

// countsTogether reports whether the decisions about the pods of such a scope depend on the number of pods. The watcher
// has a cooldown for these groups. In a domain, each pod is decided independently.
func countsTogether(k schemas.ScopeKind) bool {
	switch k {
	case schemas.WorkloadKind, schemas.SpreadKind, schemas.UsageKind:
		return true
	case schemas.NodeKind, schemas.PodKind, schemas.DomainKind, schemas.RequestKind, schemas.MaintenanceKind:
	}
	return false
}
