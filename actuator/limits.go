package actuator

import (
	"fmt"
	"math"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// limits holds moves against [policy.Limits]. A pod takes its place when its eviction is begun, keeps it for the window
// when it was evicted, and gives it back when it was not. So what is on its way counts, too, and a limit is never exceeded.
// In a dry run, what would have been moved counts.
//
// What was moved before the process began comes from the ledger. Not known are the moves from before the policy had a
// limit. It is not safe for concurrent use. newLimits makes one.
type limits struct {
	policy.Limits
	log        []counted // the moves that count, in the order in which they were made
	total      tally
	nodes      map[string]*tally
	namespaces map[string]*tally
}

// origin is what a move counts against.
type origin struct{ node, namespace string }

func originOf(o Open) origin { return origin{o.Intent.Node, o.Intent.Pod.Namespace} }

type counted struct {
	origin
	at time.Time
}

// tally counts the moves of one node, of one namespace, or all.
type tally struct {
	moved  []time.Time // in order
	flying int
}

// mostMoves bounds how many moves are remembered. When there is any limit, more than that are not made within a window: it
// could not be said any more whether the limit is kept. The default rate makes 3,000 in the default window.
const mostMoves = 100_000

// never is longer than any wait.
const never = time.Duration(math.MaxInt64)

func newLimits(l policy.Limits) *limits {
	return &limits{Limits: l, nodes: map[string]*tally{}, namespaces: map[string]*tally{}}
}

// restart forgets everything that was counted.
func (l *limits) restart() { *l = *newLimits(l.Limits) }

// set replaces the limits. What was counted counts against the new ones.
func (l *limits) set(next policy.Limits, now time.Time) {
	l.Limits = next
	l.forget(now)
}

// admits says whether the pod may be moved at the time now. If not, wait is how long it takes until there is room again
// without an eviction that fails, [never] if that is when the policy changes. Of several limits the one that holds longest
// is named.
func (l *limits) admits(o Open, now time.Time) (why Objection, wait time.Duration, ok bool) {
	if !l.Any() {
		return Objection{}, 0, true
	}
	l.forget(now)
	from := originOf(o)
	node, namespace := l.nodes[from.node], l.namespaces[from.namespace]
	remembered := uint(mostMoves)
	for _, one := range []struct {
		most   *uint
		tally  *tally
		reason schemas.ReasonCode
		of     string
	}{
		{l.Total, &l.total, schemas.ReasonLimitTotal, "the cluster has reached its limit of %s"},
		{l.PerNode, node, schemas.ReasonLimitNode, "node " + from.node + " has reached its limit of %s"},
		{l.PerNamespace, namespace, schemas.ReasonLimitNamespace, "namespace " + from.namespace + " has reached its limit of %s"},
		{&remembered, &l.total, schemas.ReasonLimitTotal, "the cluster has moved %s, and no more can be counted"},
	} {
		if one.most == nil {
			continue
		}
		if w := one.tally.wait(*one.most, l.Over(), now); w > wait {
			wait = w
			why = Objection{schemas.Deferred, one.reason, fmt.Sprintf(one.of, pods(*one.most, l.Over()))}
		}
	}
	return why, wait, wait == 0
}

// wait is how long it takes until one more fits below most. nil is an empty tally.
func (t *tally) wait(most uint, window time.Duration, now time.Time) time.Duration {
	switch {
	case most == 0:
		return never
	case t == nil || uint(len(t.moved)+t.flying) < most:
		return 0
	}
	leaving := len(t.moved) + t.flying - int(most) // the one whose leaving makes room
	if leaving >= len(t.moved) {
		return window // it is on its way, and leaves that long after it has arrived
	}
	return window - now.Sub(t.moved[leaving])
}

// pods is a limit in words.
func pods(most uint, window time.Duration) string {
	if most == 1 {
		return fmt.Sprintf("1 pod in %v", window)
	}
	return fmt.Sprintf("%d pods in %v", most, window)
}

// roomAgain says in words when the wait that admits returned is over.
func roomAgain(wait time.Duration, now time.Time) string {
	if wait == never {
		return "there is no room until the policy changes"
	}
	return "there is room again at " + clock(now.Add(wait+time.Second-1)) // clock cuts off what is below a second
}

// begin takes a place for a move that is begun.
func (l *limits) begin(from origin) {
	l.total.flying++
	tallyOf(l.nodes, from.node).flying++
	tallyOf(l.namespaces, from.namespace).flying++
}

// end says what became of a move that was begun: it counts from now on, or its place is given back.
func (l *limits) end(from origin, moved bool, now time.Time) {
	node, namespace := tallyOf(l.nodes, from.node), tallyOf(l.namespaces, from.namespace)
	for _, t := range []*tally{&l.total, node, namespace} {
		t.flying--
		if moved && l.Any() {
			t.moved = append(t.moved, now)
		}
	}
	if moved && l.Any() {
		l.log = append(l.log, counted{from, now})
	}
	l.drop(from)
	l.forget(now)
}

// forget drops the moves that do not count any more.
func (l *limits) forget(now time.Time) {
	for len(l.log) > 0 && (!l.Any() || now.Sub(l.log[0].at) >= l.Over()) {
		from := l.log[0].origin
		l.log = l.log[1:]
		for _, t := range []*tally{&l.total, l.nodes[from.node], l.namespaces[from.namespace]} {
			t.moved = t.moved[1:]
		}
		l.drop(from)
	}
}

// drop lets go of the tallies of an origin when they count nothing.
func (l *limits) drop(from origin) {
	if l.nodes[from.node].empty() {
		delete(l.nodes, from.node)
	}
	if l.namespaces[from.namespace].empty() {
		delete(l.namespaces, from.namespace)
	}
}

func (t *tally) empty() bool { return t.flying == 0 && len(t.moved) == 0 }

func tallyOf(all map[string]*tally, name string) *tally {
	if all[name] == nil {
		all[name] = &tally{}
	}
	return all[name]
}
