package actuator

import (
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// heldBy is a hold by a namespace, until a time; zero: until somebody says so.
func heldBy(namespace string, until time.Time) hold {
	return hold{
		by: holder{"namespace", namespace}, until: until, why: Objection{schemas.Deferred, schemas.ReasonMovingNamespace, "of " + namespace},
		blockers: []schemas.ObjectRef{{Kind: "Namespace", Name: namespace}},
	}
}

func TestWhatIsHeldWaitsBesideTheLanes(t *testing.T) {
	x := newTable()
	take(x, "A", 1, "1", "2", "3")
	x.hold(heldBy("web", time.Time{}), noon)
	check(t, "turns", turns(x, 9), []string{"A-1.2", "A-1.3"})
	x.release(holder{"namespace", "shop"})
	check(t, "turns when something else is released", turns(x, 9), nil)
	x.release(holder{"namespace", "web"})
	check(t, "turns when it is released", turns(x, 9), []string{"A-1.1"})
	check(t, "what is held", x.held, holds{})
}

func TestWhatIsReleasedIsBackAtItsPlace(t *testing.T) {
	x := newTable()
	take(x, "A", 1, "1", "2", "3")
	x.hold(heldBy("web", time.Time{}), noon)
	x.hold(heldBy("shop", time.Time{}), noon)
	x.releaseAll()
	check(t, "turns", turns(x, 9), []string{"A-1.1", "A-1.2", "A-1.3"})
}

func TestWhatIsHeldCanExpireAndBeWithdrawn(t *testing.T) {
	x := newTable()
	take(x, "A", 1, "1")
	take(x, "B", 1, "2")
	x.hold(heldBy("web", time.Time{}), noon)
	x.hold(heldBy("web", time.Time{}), noon)
	check(t, "withdrawn", tell(take(x, "A", 2)), []told{
		{"A-1.1", schemas.Withdrawn, schemas.ReasonSuperseded, "evaluation 2 of node/worker-1 does not list the pod"},
	})
	check(t, "expired", tell(x.expire(noon.Add(10*time.Minute))), []told{
		{"B-1.2", schemas.Expired, schemas.ReasonExpired, "expired at 2026-03-01T12:10:00Z before its turn came"},
	})
	check(t, "what is held", x.held, holds{})
}

func TestWhatIsHeldUntilATimeIsReleasedThen(t *testing.T) {
	x := newTable()
	take(x, "A", 1, "1")
	until := noon.Add(5 * time.Second)
	x.hold(heldBy("web", until), noon)
	c, next := x.timed(until.Add(-1))
	check(t, "changes a moment before", c, changes{})
	check(t, "when to ask again", next, until)
	check(t, "turns a moment before", turns(x, 9), nil)
	c, _ = x.timed(until)
	check(t, "changes", c, changes{})
	check(t, "turns", turns(x, 9), []string{"A-1.1"})
}

func TestWhatIsHeldForTooLongIsDeferredAndSaysByWhat(t *testing.T) {
	x := newTable()
	take(x, "A", 1, "1", "2")
	x.hold(heldBy("web", time.Time{}), noon)
	x.hold(heldBy("shop", time.Time{}), noon.Add(time.Second))
	one := x.pods["1"].claims[0]

	c, next := x.timed(noon.Add(time.Minute - 1))
	check(t, "changes a moment before", c, changes{})
	check(t, "when to ask again", next, noon.Add(time.Minute))

	c, next = x.timed(noon.Add(time.Minute))
	v := one.open.Verdict(schemas.Deferred, schemas.ReasonMovingNamespace, "of web")
	v.Blockers = []schemas.ObjectRef{{Kind: "Namespace", Name: "web"}}
	check(t, "changes", c, changes{verdicts: []decided{{claim: one, verdict: v}}})
	check(t, "when to ask again", next, noon.Add(time.Minute+time.Second))
	check(t, "what is held", len(x.held), 1)
	check(t, "open intents", x.open, 1)
}

func TestTheTimeThatAnIntentIsHeldCountsFromItsFirstHold(t *testing.T) {
	x := newTable()
	take(x, "A", 1, "1")
	x.hold(heldBy("web", time.Time{}), noon)
	x.release(holder{"namespace", "web"})
	x.hold(heldBy("shop", time.Time{}), noon.Add(50*time.Second))
	c, _ := x.timed(noon.Add(time.Minute))
	check(t, "verdicts", tell(c), []told{{"A-1.1", schemas.Deferred, schemas.ReasonMovingNamespace, "of shop"}})
}

func TestWhatIsHeldForTooLongIsDeferredInTheOrderOfItsPlace(t *testing.T) {
	x := newTable()
	take(x, "A", 1, "1", "2", "3", "4", "5", "6")
	for i := range 6 {
		x.hold(heldBy([]string{"web", "shop"}[i%2], time.Time{}), noon)
	}
	c, next := x.timed(noon.Add(time.Minute))
	var ids []string
	for _, v := range tell(c) {
		ids = append(ids, v.ID)
	}
	check(t, "deferred", ids, []string{"A-1.1", "A-1.2", "A-1.3", "A-1.4", "A-1.5", "A-1.6"})
	check(t, "when to ask again", next, time.Time{})
}

func TestAPodWhoseIntentIsDeferredWaitsForTheNextOne(t *testing.T) {
	x := newTable()
	take(x, "A", 1, "1")
	take(x, "B", 1, "1")
	x.hold(heldBy("web", time.Time{}), noon)
	c, _ := x.timed(noon.Add(time.Minute))
	check(t, "verdicts", tell(c), []told{{"A-1.1", schemas.Deferred, schemas.ReasonMovingNamespace, "of web"}})
	x.hold(heldBy("web", time.Time{}), noon.Add(time.Minute))
	c, next := x.timed(noon.Add(time.Minute))
	check(t, "changes", c, changes{})
	check(t, "when the next one was held for too long", next, noon.Add(2*time.Minute))
}
