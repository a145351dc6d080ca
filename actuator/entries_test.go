package actuator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// answerTo returns the answer of strategy to evaluation sequence of node worker-1, which lists the given UIDs, and its
// event with the same stream sequence.
func answerTo(strategy string, sequence uint64, uids ...types.UID) (schemas.Intents, schemas.Event) {
	a := schemas.Intents{
		Profile: "default", Strategy: strategy,
		Scope: schemas.ScopeRef{
			Kind: schemas.NodeKind, Key: "worker-1", Event: fmt.Sprintf("%s-%d", strategy, sequence), Sequence: sequence, Since: noon,
		},
		Intents: []schemas.Intent{},
	}
	for _, uid := range uids {
		a.Intents = append(a.Intents, schemas.Intent{
			ID:  a.Scope.Event + "." + string(uid),
			Pod: schemas.PodRef{Namespace: "web", Name: "pod-" + string(uid), UID: uid}, Node: "worker-1",
			Reason: fmt.Sprintf("evaluation %d", sequence), Expires: noon.Add(10 * time.Minute),
		})
	}
	e, err := schemas.NewEvent("/test", a, noon, schemas.Event{})
	if err != nil {
		panic(err)
	}
	e.Sequence = sequence
	return a, e
}

// told is the part of a verdict that these tests compare.
type told struct {
	ID      string
	Outcome schemas.Outcome
	Reason  schemas.ReasonCode
	Message string
}

func tell(c changes) []told {
	var out []told
	for _, d := range c.verdicts {
		out = append(out, told{d.verdict.Intent.ID, d.verdict.Outcome, d.verdict.Reason, d.verdict.Message})
	}
	return out
}

// turns starts the next n intents and returns their IDs.
func turns(t *lined, n int) []string {
	var out []string
	for range n {
		if c := t.next(); c != nil {
			out = append(out, c.intent.ID)
		}
	}
	return out
}

func take(t *lined, strategy string, sequence uint64, uids ...types.UID) changes {
	a, e := answerTo(strategy, sequence, uids...)
	return t.accept(a, e, noon)
}

// In a dry run, the next intent of a pod can be executed before the first one is finished.
func TestFinishDuringNextExecution(t *testing.T) {
	x := newLined()
	for _, strategy := range []string{"A", "B", "C"} {
		take(x, strategy, 1, "1")
	}
	first := x.next()
	x.remove(first)
	second := x.front("1")
	second.state = entryExecuting
	x.entries.finish(first, schemas.Evicted, true)
	expect.Equal(t, "verdicts", tell(x.line()), []told{
		{"C-1.1", schemas.Rejected, schemas.ReasonPodTerminating, "evicted for A of profile default"},
	})
	expect.Equal(t, "open intents", x.open, 1)
	expect.Equal(t, "the open intent", x.front("1") == second, true)
}

func TestNewerAnswerWithdrawsUnlistedPods(t *testing.T) {
	x := newLined()
	take(x, "A", 1, "1", "2", "3")
	got := take(x, "A", 2, "2", "4")
	const message = "evaluation 2 of node/worker-1 does not list the pod"
	expect.Equal(t, "verdicts", tell(got), []told{
		{"A-1.1", schemas.Withdrawn, schemas.ReasonSuperseded, message},
		{"A-1.3", schemas.Withdrawn, schemas.ReasonSuperseded, message},
	})
	expect.Equal(t, "turns", turns(x, 9), []string{"A-1.2", "A-2.4"})
}

func TestRenewedIntentKeepsID(t *testing.T) {
	x := newLined()
	take(x, "A", 1, "1")
	take(x, "B", 1, "2")
	a, e := answerTo("A", 2, "3", "1")
	a.Scope.Since, a.Scope.Now = noon.Add(time.Minute), noon.Add(time.Minute)
	a.Intents[1].Expires = noon.Add(12 * time.Minute)
	expect.Equal(t, "changes", x.accept(a, e, noon), changes{})

	old, oldEvent := answerTo("A", 1, "1")
	oldEvent.ID = x.front("1").intent.Message.ID // IDs are random
	want := Intent{Profile: "default", Strategy: "A", Scope: old.Scope, Intent: old.Intents[0], Message: x.front("1").intent.Message}
	want.Reason, want.Expires = "evaluation 2", noon.Add(12*time.Minute)
	want.Scope.Event, want.Scope.Sequence, want.Scope.Now = "A-2", 2, a.Scope.Now
	expect.Equal(t, "the open intent", x.next().intent, want)
	expect.Equal(t, "turns", turns(x, 9), []string{"B-1.2", "A-2.3"})
}

func TestOlderScopeAnswer(t *testing.T) {
	x := newLined()
	take(x, "A", 2, "1")
	a, late := answerTo("A", 1, "2", "1")
	got := x.accept(a, late, noon)
	late.Data = nil
	expect.Equal(t, "verdicts on its intents", tell(got), nil)
	expect.Equal(t, "dropped", got.drop, []schemas.Event{late})
	expect.Equal(t, "changes, when it comes again", x.accept(a, late, noon), changes{drop: []schemas.Event{late}})
	expect.Equal(t, "turns", turns(x, 9), []string{"A-2.1"})
}

func TestLateAnswer(t *testing.T) {
	x := newLined()
	_ = take(x, "A", 2) // nothing should move: settled at once
	a, late := answerTo("A", 1, "2")
	got := x.accept(a, late, noon.Add(remember-1))
	late.Data = nil
	expect.Equal(t, "verdicts on its intents", tell(got), nil)
	expect.Equal(t, "dropped", got.drop, []schemas.Event{late})
	expect.Equal(t, "turns", turns(x, 9), nil)

	x.accept(a, late, noon.Add(remember))
	expect.Equal(t, "turns when the newer one is forgotten", turns(x, 9), []string{"A-1.2"})
}

func TestAnswerAcceptedTwice(t *testing.T) {
	x := newLined()
	a, e := answerTo("A", 1, "1", "2")
	x.accept(a, e, noon)
	c := x.next()
	x.finish(c, schemas.Evicted)
	if _, done := x.reported(c, noon); done {
		t.Error("the answer is settled, with an intent waiting")
	}
	expect.Equal(t, "changes", x.accept(a, e, noon), changes{})
	expect.Equal(t, "turns", turns(x, 9), []string{"A-1.2"})
}

func TestRepeatedAnswerDropped(t *testing.T) {
	x := newLined()
	a, e := answerTo("A", 1, "1")
	x.accept(a, e, noon)
	c := x.next()
	x.finish(c, schemas.Evicted)
	dropped, done := x.reported(c, noon)
	again := x.accept(a, e, noon)
	e.Data = nil
	expect.Equal(t, "dropped", dropped, e)
	expect.Equal(t, "done", done, true)
	expect.Equal(t, "changes", again, changes{drop: []schemas.Event{e}})
	expect.Equal(t, "turns", turns(x, 9), nil)
}

func TestAnswerStoredTwice(t *testing.T) {
	x := newLined()
	a, e := answerTo("A", 1, "1")
	x.accept(a, e, noon)
	e.ID, e.Sequence = "again", 9
	x.accept(a, e, noon)
	c := x.next()
	x.finish(c, schemas.Evicted)
	dropped, _ := x.reported(c, noon)
	e.Data = nil
	expect.Equal(t, "dropped", dropped, e)
}

func TestEvictionRejectsOtherClaims(t *testing.T) {
	x := newLined()
	take(x, "A", 1, "1")
	take(x, "B", 1, "1")
	take(x, "C", 1, "1")
	const message = "evicted for A of profile default"
	expect.Equal(t, "verdicts", tell(x.finish(x.next(), schemas.Evicted)), []told{
		{"B-1.1", schemas.Rejected, schemas.ReasonPodTerminating, message},
		{"C-1.1", schemas.Rejected, schemas.ReasonPodTerminating, message},
	})
	expect.Equal(t, "turns", turns(x, 9), nil)
}

// changes are the effects of a change of entries.
type changes struct {
	verdicts []verdictOn
	drop     []schemas.Event
	ready    []*entry
}

// lined are entries with a first-in, first-out queue.
type lined struct {
	*entries
	order []types.UID
	last  changes
}

// line enqueues the ready entries, and returns the other changes.
func (x *lined) line() changes {
	c := x.last
	x.last = changes{}
	x.order = slices.DeleteFunc(x.order, func(uid types.UID) bool { return x.front(uid) == nil })
	for _, e := range c.ready {
		if x.front(e.uid()) == e && e.state == entryWaiting && !slices.Contains(x.order, e.uid()) {
			x.order = append(x.order, e.uid())
		}
	}
	c.ready = nil
	return c
}

func (x *lined) accept(a schemas.Intents, e schemas.Event, now time.Time) changes {
	x.entries.accept(a, e, now)
	return x.line()
}

func (x *lined) finish(e *entry, outcome schemas.Outcome) changes {
	x.remove(e)
	x.entries.finish(e, outcome, outcome.Moves())
	return x.line()
}

func (x *lined) putBack(e *entry) changes {
	x.entries.putBack(e)
	return x.line()
}

func newLined() *lined {
	x := &lined{entries: newEntries()}
	x.decided = func(v verdictOn) { x.last.verdicts = append(x.last.verdicts, v) }
	x.over = func(e schemas.Event) { x.last.drop = append(x.last.drop, e) }
	x.ready = func(e *entry) { x.last.ready = append(x.last.ready, e) }
	x.moveOf, x.stepsOf = func(Intent) *inFlight { return nil }, func(Intent) *inFlight { return nil }
	return x
}

// next executes the open entry of the next pod.
func (x *lined) next() *entry {
	for len(x.order) > 0 {
		e := x.front(x.order[0])
		x.order = x.order[1:]
		if e != nil && e.state == entryWaiting {
			e.state = entryExecuting
			return e
		}
	}
	return nil
}

// expire settles what waits and has expired.
func (x *lined) expire(now time.Time) changes {
	x.rejectAll(late, func(i Intent) bool { return i.expired(now) })
	return x.line()
}

// model is an obviously correct version of entries: one list of intents, searched linearly.
type model struct {
	wishes  []*modelWish
	order   []types.UID                // pods in queue order
	current map[string]*modelAnswer    // by strategy
	flying  map[types.UID]*modelWish   // in flight
	claims  map[types.UID][]*modelWish // without a verdict, the open one first
}

type modelWish struct {
	id, strategy string
	uid          types.UID
	expires      time.Time
	answer       *modelAnswer
	verdicts     []schemas.Outcome
	reported     bool
}

type modelAnswer struct {
	event  string
	listed []*modelWish
	drops  int
}

func (m *model) remove(w *modelWish) {
	m.claims[w.uid] = slices.DeleteFunc(m.claims[w.uid], func(o *modelWish) bool { return o == w })
	if m.flying[w.uid] == w {
		delete(m.flying, w.uid)
		if len(m.claims[w.uid]) > 0 {
			m.order = append(m.order, w.uid)
		}
	}
	if len(m.claims[w.uid]) == 0 {
		m.order = slices.DeleteFunc(m.order, func(uid types.UID) bool { return uid == w.uid })
	}
}

func (m *model) accept(strategy, event string, sequence uint64, uids []types.UID, expires time.Time) (withdrawn []string) {
	next := &modelAnswer{event: event}
	for _, uid := range uids {
		i := slices.IndexFunc(m.claims[uid], func(w *modelWish) bool { return w.strategy == strategy })
		if i < 0 {
			w := &modelWish{id: fmt.Sprintf("%s-%d.%s", strategy, sequence, uid), strategy: strategy, uid: uid}
			m.wishes = append(m.wishes, w)
			if len(m.claims[uid]) == 0 {
				m.order = append(m.order, uid)
			}
			m.claims[uid] = append(m.claims[uid], w)
			i = len(m.claims[uid]) - 1
		}
		w := m.claims[uid][i]
		w.answer, w.expires = next, expires
		next.listed = append(next.listed, w)
	}
	if old := m.current[strategy]; old != nil {
		for _, w := range old.listed {
			if w.answer == old && len(w.verdicts) == 0 && m.flying[w.uid] != w {
				m.remove(w)
				withdrawn = append(withdrawn, w.id)
			}
		}
	}
	m.current[strategy] = next
	return withdrawn
}

func TestRandomHistory(t *testing.T) {
	for range 300 {
		seed := rand.Uint64()
		if !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { randomHistory(t, seed) }) {
			return
		}
	}
}

func randomHistory(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	h := &history{
		t: t, r: r, x: newLined(), now: noon, flights: nil,
		m: &model{current: map[string]*modelAnswer{}, flying: map[types.UID]*modelWish{}, claims: map[types.UID][]*modelWish{}},
	}
	for range 200 {
		h.step()
		if t.Failed() {
			return
		}
	}
	for h.x.open > 0 || len(h.unreported) > 0 { // complete everything
		switch {
		case len(h.flights) > 0:
			h.land()
		case len(h.unreported) > 0:
			h.report()
		default:
			h.next()
		}
		if t.Failed() {
			return
		}
	}
	for _, w := range h.m.wishes {
		if len(w.verdicts) != 1 {
			t.Errorf("intent %s has the verdicts %v, want exactly one", w.id, w.verdicts)
		}
	}
	for strategy, a := range h.m.current {
		if a.drops != 1 {
			t.Errorf("the newest answer of %s was dropped %d times, want once", strategy, a.drops)
		}
	}
	expect.Equal(t, "pods left", len(h.x.pods), 0)
	expect.Equal(t, "places left", len(h.x.order), 0)
}

// history runs the same changes on the entries and on the model, and compares them.
type history struct {
	t          *testing.T
	r          *rand.Rand
	x          *lined
	m          *model
	now        time.Time
	sequence   uint64
	flights    []*entry
	unreported []verdictOn
}

func (h *history) step() {
	switch n := h.r.IntN(20); {
	case n < 5:
		h.accept()
	case n < 10:
		h.next()
	case n < 14:
		h.land()
	case n < 15:
		h.putBack()
	case n < 18:
		h.report()
	case n < 19:
	default:
		h.expire()
	}
	for uid, p := range h.x.pods {
		for i, c := range p {
			if i > 0 && c.state != entryWaiting {
				h.t.Errorf("pod %s has a second intent that is not waiting", uid)
			}
		}
	}
}

func (h *history) accept() {
	strategy := string(rune('A' + h.r.IntN(3)))
	var uids []types.UID
	for _, i := range h.r.Perm(6)[:h.r.IntN(5)] {
		uids = append(uids, types.UID(fmt.Sprint(i)))
	}
	h.sequence++
	a, e := answerTo(strategy, h.sequence, uids...)
	for i := range a.Intents {
		a.Intents[i].Expires = h.now.Add(5 * time.Minute)
	}
	want := h.m.accept(strategy, e.ID, h.sequence, uids, h.now.Add(5*time.Minute))
	h.compare(h.x.accept(a, e, h.now), want, schemas.Withdrawn)
}

// compare compares the verdicts that entries gave by itself, and checks that none is in flight.
func (h *history) compare(got changes, want []string, outcome schemas.Outcome) {
	var ids []string
	for _, d := range got.verdicts {
		ids = append(ids, d.verdict.Intent.ID)
		w := h.wish(d.entry)
		if h.m.flying[w.uid] == w {
			h.t.Errorf("intent %s is in flight and has the verdict %s", w.id, d.verdict.Outcome)
		}
		if d.verdict.Outcome != outcome {
			h.t.Errorf("intent %s is %s, want %s", w.id, d.verdict.Outcome, outcome)
		}
		w.verdicts = append(w.verdicts, d.verdict.Outcome)
	}
	expect.Equal(h.t, string(outcome), ids, want)
	h.unreported = append(h.unreported, got.verdicts...)
	for _, e := range got.drop {
		h.dropped(e)
	}
}

func (h *history) wish(c *entry) *modelWish {
	i := slices.IndexFunc(h.m.wishes, func(w *modelWish) bool { return w.id == c.intent.ID })
	if i < 0 {
		h.t.Fatalf("intent %s was never accepted", c.intent.ID)
	}
	return h.m.wishes[i]
}

func (h *history) next() {
	c := h.x.next()
	if len(h.m.order) == 0 {
		if c != nil {
			h.t.Errorf("next is %s, want none", c.intent.ID)
		}
		return
	}
	w := h.m.claims[h.m.order[0]][0]
	if c == nil || c.intent.ID != w.id {
		h.t.Errorf("next is %v, want %s", c, w.id)
		return
	}
	h.m.order = h.m.order[1:]
	if h.m.flying[w.uid] != nil {
		h.t.Errorf("pod %s is in flight twice", w.uid)
	}
	h.m.flying[w.uid] = w
	h.flights = append(h.flights, c)
}

// pick removes a random element from a list.
func pick[T any](r *rand.Rand, list *[]T) (T, bool) {
	var none T
	if len(*list) == 0 {
		return none, false
	}
	i := r.IntN(len(*list))
	v := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return v, true
}

func (h *history) land() {
	c, ok := pick(h.r, &h.flights)
	if !ok {
		return
	}
	outcome := []schemas.Outcome{schemas.Evicted, schemas.Deferred, schemas.Rejected, schemas.Failed}[h.r.IntN(4)]
	w := h.wish(c)
	w.verdicts = append(w.verdicts, outcome)
	h.m.remove(w)
	var want []string
	if outcome == schemas.Evicted {
		for _, other := range slices.Clone(h.m.claims[w.uid]) {
			want = append(want, other.id)
			h.m.remove(other)
		}
	}
	h.unreported = append(h.unreported, verdictOn{entry: c})
	h.compare(h.x.finish(c, outcome), want, schemas.Rejected)
}

func (h *history) putBack() {
	c, ok := pick(h.r, &h.flights)
	if !ok {
		return
	}
	w := h.wish(c)
	delete(h.m.flying, w.uid)
	h.m.order = append(h.m.order, w.uid)
	var want []string
	if h.m.current[w.strategy] != w.answer {
		want = append(want, w.id)
		h.m.remove(w)
	}
	h.compare(h.x.putBack(c), want, schemas.Withdrawn)
}

func (h *history) report() {
	d, ok := pick(h.r, &h.unreported)
	if !ok {
		return
	}
	h.wish(d.entry).reported = true
	if e, done := h.x.reported(d.entry, h.now); done {
		h.dropped(e)
	}
}

func (h *history) dropped(e schemas.Event) {
	for _, a := range h.m.current {
		if a.event != e.ID {
			continue
		}
		a.drops++
		for _, w := range a.listed {
			if !w.reported {
				h.t.Errorf("answer %s was dropped before the verdict on %s was stored", e.ID, w.id)
			}
		}
		return
	}
	h.t.Errorf("answer %s was dropped, which is not the newest of its key", e.ID)
}

func (h *history) expire() {
	h.now = h.now.Add(time.Duration(h.r.IntN(180)) * time.Second)
	var want []string
	for _, w := range h.m.wishes {
		if len(w.verdicts) == 0 && h.m.flying[w.uid] != w && !h.now.Before(w.expires) {
			want = append(want, w.id)
		}
	}
	for _, id := range want {
		i := slices.IndexFunc(h.m.wishes, func(w *modelWish) bool { return w.id == id })
		h.m.remove(h.m.wishes[i])
	}
	got := h.x.expire(h.now)
	slices.SortFunc(got.verdicts, func(a, b verdictOn) int { // entries that are due together may come in any order
		return slices.Index(want, a.entry.intent.ID) - slices.Index(want, b.entry.intent.ID)
	})
	h.compare(got, want, schemas.Expired)
}

func BenchmarkTable(b *testing.B) {
	// One answer of 110 pods: replaced, executed one by one, settled.
	uids := make([]types.UID, 110)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprint(i))
	}
	first, firstEvent := answerTo("A", 1, uids...)
	second, secondEvent := answerTo("A", 2, uids[:100]...)
	b.ReportAllocs()
	for b.Loop() {
		x := newLined()
		x.accept(first, firstEvent, noon)
		for _, d := range x.accept(second, secondEvent, noon).verdicts {
			x.reported(d.entry, noon)
		}
		for c := x.next(); c != nil; c = x.next() {
			x.finish(c, schemas.Evicted)
			x.reported(c, noon)
		}
		if x.open != 0 {
			b.Fatalf("%d intents are left", x.open)
		}
	}
}
