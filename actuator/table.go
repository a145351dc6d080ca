package actuator

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// table holds the newest answer of each key and the open intents of each pod. It decides nothing about the cluster and
// asks no clock. It is not safe for concurrent use. The zero value is not ready; newTable makes one.
//
// What is promised:
//
//   - An intent that was accepted ends in exactly one verdict.
//   - Of all intents for one pod, one is open at a time. The others are claims behind it, in the order in which they
//     came. When the open one ends without an eviction, the next claim becomes the open one. When it ends with one, the
//     pod is on its way and the other claims are rejected.
//   - The pod waits, not the intent: a pod keeps its number when a newer answer lists it again, and when the open intent
//     is withdrawn in favour of the next claim. Its place is by the rank of the open intent, and then by that number.
//   - A pod that is held waits beside the lanes until what holds it is released, or its time is over.
//   - An intent that a newer answer lists again is the same wish. It keeps the ID that it was accepted under and takes
//     over the newer Reason, Node and Expires. The newer ID gets no verdict of its own.
//   - An intent is not withdrawn while it is in flight.
type table struct {
	answers map[key]*answer
	pods    map[types.UID]*pod
	waiting lanes    // the pods whose open intent waits for its turn
	held    holds    // those whose open intent waits for something else
	expiry  expiries // of all claims that wait
	quiet   []quiet  // settled answers, the longest settled first
	open    int      // claims without a verdict
	// rank says where an intent waits. nil: all of them in the order in which they came.
	rank func(Open) rank
	// taken is told of each intent that is open from now on. nil: nobody.
	taken func(Open)
	// begun returns the move that this process or one before it began for an intent. nil: none is remembered.
	begun func(Open) *moving
}

// key identifies an answer: a newer one of the same key replaces it.
type key struct {
	profile, strategy string
	kind              schemas.ScopeKind
	key               string
}

func keyOf(a schemas.Intents) key {
	return key{profile: a.Profile, strategy: a.Strategy, kind: a.Scope.Kind, key: a.Scope.Key}
}

type answer struct {
	scope      schemas.ScopeRef
	event      schemas.Event      // without data; what is to be dropped from the bus
	claims     []*claim           // in the order of the answer
	lists      map[types.UID]bool // all pods of an answer that counts them together; nil: it does not
	unreported int                // claims whose verdict is not stored yet, and one for what else is still to be done
	closed     bool               // settled, or replaced by a newer one
}

// quiet is an answer that has been settled since at.
type quiet struct {
	key    key
	answer *answer
	at     time.Time
}

// remember is how long a settled answer is remembered, so that one to an older scope that comes late is recognised.
// After that time what the late one lists has expired: intents live for ten minutes from the time of their scope.
const remember = 10 * time.Minute

// changes is what follows from a change of the table: verdicts to be stored, and then answers to be dropped.
type changes struct {
	verdicts []decided
	done     []schemas.Event
}

// and is both changes, one after the other.
func (c changes) and(next changes) changes {
	return changes{append(c.verdicts, next.verdicts...), append(c.done, next.done...)}
}

func newTable() *table {
	return &table{
		answers: map[key]*answer{}, pods: map[types.UID]*pod{}, held: holds{}, begun: func(Open) *moving { return nil },
	}
}

// accept takes an answer that readAnswer has read from e. One that is older than the known answer of its key is withdrawn
// and dropped, so that the next leader does not take it for the newest; the same one again changes nothing.
func (t *table) accept(a schemas.Intents, e schemas.Event, now time.Time) changes {
	return t.take(a, e, 0, now)
}

// acceptEarly is accept of an answer of which something besides its intents is still to be done. It is not settled before
// completed says that this was, whatever becomes of its intents.
func (t *table) acceptEarly(a schemas.Intents, e schemas.Event, now time.Time) changes {
	return t.take(a, e, 1, now)
}

// take accepts an answer that waits for so much besides its verdicts.
func (t *table) take(a schemas.Intents, e schemas.Event, besides int, now time.Time) changes {
	t.forget(now)
	e.Data = nil
	k := keyOf(a)
	old := t.answers[k]
	switch {
	case old == nil:
	case a.Scope.Sequence < old.scope.Sequence:
		return changes{done: []schemas.Event{e}}
	case a.Scope.Sequence == old.scope.Sequence && a.Scope.Event == old.scope.Event:
		if e.Sequence > old.event.Sequence {
			old.event = e // stored again: this is the one to drop
		}
		if old.unreported == 0 {
			return changes{done: []schemas.Event{e}}
		}
		return changes{}
	}
	next := &answer{scope: a.Scope, event: e, lists: listed(a)}
	t.answers[k] = next
	for _, intent := range a.Intents {
		open := openOf(a, intent, e)
		if x := t.begun(open); x != nil {
			x.answer = next // its verdict was stored, or is about to be
			continue
		}
		next.claims = append(next.claims, t.claim(k, next, open))
	}
	next.unreported = len(next.claims) + besides
	var c changes
	if old != nil {
		c.verdicts = t.withdraw(old)
		old.closed = true
	}
	if next.unreported == 0 {
		c.done = append(c.done, t.settledAnswer(k, next, now))
	}
	return c
}

// claim renews the claim of the same key on the same pod, or adds a new one.
func (t *table) claim(k key, a *answer, o Open) *claim {
	p := t.pods[o.Intent.Pod.UID]
	if p == nil {
		p = &pod{}
		t.pods[o.Intent.Pod.UID] = p
	}
	if c := p.claimOf(k); c != nil {
		c.answer = a
		c.open = c.open.renewed(o.Intent)
		if c.state == claimWaiting {
			heap.Fix(&t.expiry, c.index)
		}
		return c
	}
	c := &claim{open: o, key: k, answer: a}
	p.claims = append(p.claims, c)
	heap.Push(&t.expiry, c)
	t.open++
	if t.taken != nil {
		t.taken(c.open)
	}
	if len(p.claims) == 1 {
		t.line(p, t.waiting.number())
	}
	return c
}

// line lets a pod wait for the turn of its open intent.
func (t *table) line(p *pod, number uint64) {
	p.at, p.number, p.rank = inLane, number, rank{}
	if t.rank != nil {
		p.rank = t.rank(p.claims[0].open)
	}
	t.waiting.push(p)
}

// leave takes a pod that waits out of its place.
func (t *table) leave(p *pod) {
	switch p.at {
	case inLane:
		t.waiting.remove(p)
	case onHold:
		t.held.remove(p)
	case inFlight:
	}
	p.at = inFlight
}

// withdraw settles the claims of an answer that was replaced by one that does not list them. Those in flight stay.
func (t *table) withdraw(old *answer) []decided {
	var out []decided
	for _, c := range old.claims {
		if c.answer == old && c.state == claimWaiting {
			out = append(out, t.withdrawn(c))
		}
	}
	return out
}

func (t *table) withdrawn(c *claim) decided {
	if newest := t.answers[c.key]; newest != nil {
		return t.notListed(c, newest.scope)
	}
	t.settle(c)
	message := "a newer evaluation does not list the pod"
	return decided{claim: c, verdict: c.open.Verdict(schemas.Withdrawn, schemas.ReasonSuperseded, message)}
}

// notListed withdraws c since an evaluation does not list its pod.
func (t *table) notListed(c *claim, by schemas.ScopeRef) decided {
	t.settle(c)
	return decided{claim: c, verdict: c.open.Verdict(schemas.Withdrawn, schemas.ReasonSuperseded,
		fmt.Sprintf("evaluation %d of %s/%s does not list the pod", by.Sequence, c.key.kind, c.key.key))}
}

// letGo withdraws what waits of the key of an answer and is not listed by it, before it is accepted, and says whether
// something else that it does not list is still in flight.
func (t *table) letGo(a schemas.Intents) (c changes, flying bool) {
	k, wanted := keyOf(a), map[types.UID]bool{}
	for _, intent := range a.Intents {
		wanted[intent.Pod.UID] = true
	}
	for uid, p := range t.pods {
		switch is := p.claimOf(k); {
		case is == nil || wanted[uid]:
		case is.state == claimInFlight:
			flying = true
		default:
			c.verdicts = append(c.verdicts, t.notListed(is, a.Scope))
		}
	}
	slices.SortFunc(c.verdicts, func(a, b decided) int { return cmp.Compare(a.verdict.Intent.ID, b.verdict.Intent.ID) })
	return c, flying
}

// front returns the open intent of the pod whose turn it is, which goes on waiting. nil: nobody waits for a turn.
func (t *table) front() *claim {
	if p := t.waiting.front(); p != nil {
		return p.claims[0]
	}
	return nil
}

// next returns the open intent of the pod whose turn it is, which is in flight from now on, or nil.
func (t *table) next() *claim {
	p := t.waiting.pop()
	if p == nil {
		return nil
	}
	p.at = inFlight
	c := p.claims[0]
	c.state = claimInFlight
	heap.Remove(&t.expiry, c.index)
	return c
}

// putBack ends the flight of c without a verdict: it waits again, behind all others so that one pod that cannot be
// looked at does not hold the rest, or is withdrawn when its answer was replaced meanwhile.
func (t *table) putBack(c *claim) changes {
	p := t.pods[c.open.Intent.Pod.UID]
	t.line(p, t.waiting.number())
	c.state = claimWaiting
	heap.Push(&t.expiry, c)
	if t.answers[c.key] != c.answer {
		return changes{verdicts: []decided{t.withdrawn(c)}}
	}
	return changes{}
}

// land ends the flight of c with a verdict. When that begins a move it returns the other claims on the pod, rejected.
func (t *table) land(c *claim, outcome schemas.Outcome) changes {
	p := t.pods[c.open.Intent.Pod.UID]
	t.settle(c)
	if !outcome.Moves() {
		return changes{}
	}
	reason := schemas.ReasonMoving
	if outcome == schemas.Evicted {
		reason = schemas.ReasonPodTerminating
	}
	var out changes
	for len(p.claims) > 0 {
		other := p.claims[0]
		t.settle(other)
		out.verdicts = append(out.verdicts, decided{claim: other, verdict: other.open.Verdict(schemas.Rejected, reason,
			fmt.Sprintf("%s for %s of profile %s", outcome, c.open.Strategy, c.open.Profile))})
	}
	return out
}

// expire settles the waiting claims whose time is over.
func (t *table) expire(now time.Time) changes {
	var out changes
	t.forget(now)
	for len(t.expiry) > 0 && expired(t.expiry[0].open.Intent, now) {
		c := t.expiry[0]
		t.settle(c)
		out.verdicts = append(out.verdicts, decided{claim: c, verdict: c.open.Verdict(schemas.Expired, schemas.ReasonExpired,
			expiredMessage(c.open.Intent))})
	}
	return out
}

// nextExpiry is when the next waiting claim expires, and whether there is one.
func (t *table) nextExpiry() (next time.Time, found bool) {
	if len(t.expiry) == 0 {
		return next, false
	}
	return t.expiry[0].open.Intent.Expires, true
}

// reported says that the verdict on c is stored. It returns the answer of c when that was its last one.
func (t *table) reported(c *claim, now time.Time) (schemas.Event, bool) {
	if c.answer == nil || t.answers[c.key] != c.answer {
		return schemas.Event{}, false
	}
	return t.lessUnreported(c.key, c.answer, now)
}

// completed says that nothing besides its intents is left to be done of the answer to that scope, which was accepted early, or
// that it is not to be done any more.
func (t *table) completed(k key, scope schemas.ScopeRef, now time.Time) changes {
	a := t.answers[k]
	if a == nil || a.scope != scope {
		return changes{}
	}
	e, settled := t.lessUnreported(k, a, now)
	if !settled {
		return changes{}
	}
	return changes{done: []schemas.Event{e}}
}

// lessUnreported counts one thing less that an answer waits for, and says whether that was the last one.
func (t *table) lessUnreported(k key, a *answer, now time.Time) (schemas.Event, bool) {
	a.unreported--
	if a.unreported > 0 {
		return schemas.Event{}, false
	}
	return t.settledAnswer(k, a, now), true
}

// settle takes c off its pod. The next claim on the pod becomes the open one: with the pod's number when c was waiting,
// behind all others when it had its turn.
func (t *table) settle(c *claim) {
	uid := c.open.Intent.Pod.UID
	p := t.pods[uid]
	if c.state == claimWaiting {
		heap.Remove(&t.expiry, c.index)
	}
	c.state = claimSettled
	t.open--
	wasOpen, at := p.claims[0] == c, p.at
	i := slices.Index(p.claims, c)
	p.claims = append(p.claims[:i], p.claims[i+1:]...)
	if !wasOpen {
		return
	}
	t.leave(p)
	switch {
	case len(p.claims) == 0:
		delete(t.pods, uid)
	case at == inFlight:
		t.line(p, t.waiting.number())
	default:
		t.line(p, p.number)
	}
}

// settledAnswer remembers that a is settled, and returns what is to be dropped.
func (t *table) settledAnswer(k key, a *answer, now time.Time) schemas.Event {
	a.claims, a.closed = nil, true
	t.quiet = append(t.quiet, quiet{k, a, now})
	return a.event
}

// forget drops what was remembered for long enough.
func (t *table) forget(now time.Time) {
	for len(t.quiet) > 0 && now.Sub(t.quiet[0].at) >= remember {
		if q := t.quiet[0]; t.answers[q.key] == q.answer {
			delete(t.answers, q.key)
		}
		t.quiet = t.quiet[1:]
	}
}
