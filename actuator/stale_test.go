package actuator

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// scopeAt refers to a scope of the group "zone" that was built some time after noon.
func scopeAt(kind schemas.ScopeKind, event string, after time.Duration) schemas.ScopeRef {
	return schemas.ScopeRef{Kind: kind, Key: "zone", Event: event, Now: noon.Add(after)}
}

// departed returns the move of a pod for a scope. A zero time means that it is requested and not accepted.
func departed(of schemas.ScopeRef, workload types.UID, at time.Time) *inFlight {
	x := &inFlight{record: record{Intent: Intent{Scope: of}}, at: limitKeys{workload: workload}}
	x.Intent.Pod.UID, x.Moved = "gone", at
	return x
}

func TestStaleDecision(t *testing.T) {
	const spread, none = schemas.SpreadKind, types.UID("")
	first := scopeAt(spread, "first", 0)
	left := func(of schemas.ScopeRef, workload types.UID, after time.Duration) func(departures) {
		return func(d departures) {
			d.add(departed(of, workload, noon.Add(after)))
		}
	}
	both := func(a, b func(departures)) func(departures) {
		return func(d departures) { a(d); b(d) }
	}
	for _, c := range []struct {
		name     string
		before   func(departures)
		asked    schemas.ScopeRef
		workload types.UID
		want     bool
	}{
		{"nothing has left", func(departures) {}, scopeAt(spread, "second", 0), "w", false},
		{"a pod left for an evaluation before", left(first, none, 2*time.Second), scopeAt(spread, "second", time.Second), none, true},
		{"a scope made right after a pod left may not know of it", left(first, none, time.Second),
			scopeAt(spread, "second", time.Second+unseen-1), none, true},
		{"one made later does", left(first, none, time.Second), scopeAt(spread, "second", time.Second+unseen), none, false},
		{"an evaluation knows its own moves", left(first, "w", time.Second), first, "w", false},
		{"but not of another's before them", both(left(scopeAt(spread, "other", 0), none, time.Second), left(first, none, 2*time.Second)),
			first, none, true},
		{"a pod of the same workload left for another scope", left(schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n", Event: "e"}, "w", time.Second),
			scopeAt(spread, "second", 0), "w", true},
		{"a pod of another workload did", left(schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n", Event: "e"}, "v", time.Second),
			scopeAt(spread, "second", 0), "w", false},
		{"a pod is verdictOn about by itself", left(first, "w", time.Second), scopeAt(schemas.PodKind, "second", 0), "w", false},
		{"so is each of a node", left(first, "w", time.Second), scopeAt(schemas.NodeKind, "second", 0), "w", false},
		{"the answer does not tell its time", left(first, "w", time.Second), schemas.ScopeRef{Kind: spread, Key: "zone", Event: "x"}, "w", false},
		{"a pod is being asked to leave", func(d departures) { d.add(departed(first, none, time.Time{})) }, scopeAt(spread, "second", time.Hour), none, true},
		{"the same, by the evaluation itself", func(d departures) { d.add(departed(first, none, time.Time{})) }, first, none, false},
		{"a pod was asked and stayed", func(d departures) {
			x := departed(first, none, time.Time{})
			d.add(x)
			d.remove(x)
		},
			scopeAt(spread, "second", 0), none, false},
		{"it is long ago, and forgotten", both(left(first, none, time.Second), func(d departures) { d.forget(noon.Add(longestIntent + time.Second)) }),
			scopeAt(spread, "second", 0), none, false},
		{"it is not quite as long ago", both(left(first, none, time.Second), func(d departures) { d.forget(noon.Add(longestIntent)) }),
			scopeAt(spread, "second", 0), none, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := departures{}
			c.before(d)
			got := d.stale(&message{scope: c.asked, lists: map[types.UID]bool{"stays": true}}, c.workload)
			expect.Equal(t, "outdated", got != nil, c.want)
		})
	}
}

func TestMovedPodAnswerCurrent(t *testing.T) {
	d := departures{}
	x := departed(scopeAt(schemas.SpreadKind, "first", 0), "w", time.Time{})
	d.add(x)
	a := &message{scope: scopeAt(schemas.SpreadKind, "second", 0), lists: map[types.UID]bool{"gone": true, "other": true}}
	asked := d.stale(a, "w") != nil
	x.Moved = noon.Add(time.Second)
	left := d.stale(a, "w") != nil
	a.lists = map[types.UID]bool{"other": true}
	without := d.stale(a, "w") != nil
	expect.Equal(t, "outdated while it is asked to leave, after it left, and if the answer does not list it",
		[]bool{asked, left, without}, []bool{false, false, true})
}

// putSpread stores the answer to a scope of a group that was built at that time.
func (b *bench) putSpread(sequence uint64, made time.Time, uids ...types.UID) {
	a, _ := answerTo("Spread", sequence, uids...)
	a.Scope.Since, a.Scope.Now, a.Scope.Kind, a.Scope.Key = b.start, made, schemas.SpreadKind, "web/zone/x"
	for i := range a.Intents {
		a.Intents[i].Node = "worker-1"
		a.Intents[i].Expires = b.start.Add(10 * time.Minute)
	}
	e, err := schemas.NewEvent("/test", a, b.start, schemas.Event{})
	if err != nil {
		panic(err)
	}
	b.bus.put(e)
}

// Two evaluations of one group can choose different pods for the same place. The second was made before the pod of the
// first left and is executed after it: executing it would move one pod too many.
func TestStaleDecisionRejected(t *testing.T) {
	cfg := Config{Policy: fast, View: oneWorkload{}}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 20*ms), func(t *testing.T, b *bench) {
		made := b.start
		time.Sleep(100 * ms)
		b.putSpread(1, made, "1", "2") // both pods of one evaluation go
		time.Sleep(100 * ms)
		b.putSpread(2, made.Add(50*ms), "3")
		time.Sleep(2 * time.Second)
		b.putSpread(3, time.Now(), "4") // a scope that has seen the others leave counts
		time.Sleep(time.Second)
		ok := schemas.ReasonEvictionAccepted
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"Spread-1.1", ok, 120 * ms}, {"Spread-1.2", ok, 120 * ms},
			{"Spread-2.3", schemas.ReasonOutdated, 200 * ms}, {"Spread-3.4", ok, 2220 * ms},
		})
	})
}

func TestStaleDecisionAfterRestart(t *testing.T) {
	cfg := Config{Policy: fast, View: oneWorkload{}}
	ok := always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0)
	inBubble(t, cfg, ok, func(t *testing.T, b *bench) {
		made := b.start
		time.Sleep(100 * ms)
		b.putSpread(1, made, "1")
		time.Sleep(100 * ms)
		b.stop()
		b.putSpread(2, made, "2")
		end := leads(t, b.Actuator, ok)
		time.Sleep(time.Second)
		end()
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"Spread-1.1", schemas.ReasonEvictionAccepted, 100 * ms}, {"Spread-2.2", schemas.ReasonOutdated, 200 * ms},
		})
	})
}
