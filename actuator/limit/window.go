package limit

import (
	"fmt"
	"math"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Windows hold moves against [policy.Limits]. A pod takes its place when its eviction is begun, keeps it for the window
// when it was evicted, and gives it back when it was not. So what is on its way counts, too, and a limit is never exceeded.
// In a dry run, what would have been moved counts.
//
// What was moved before the process began comes from the ledger. Not known are the moves from before the policy had a
// limit. It is not safe for concurrent use. NewWindows makes one.
type Windows struct {
	policy.Limits
	log        []counted // the moves that count, in the order in which they were made
	total      tally
	nodes      map[string]*tally
	namespaces map[string]*tally
}

// Origin is what a move counts against.
type Origin struct{ Node, Namespace string }

type counted struct {
	Origin
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

// Never is longer than any wait.
const Never = time.Duration(math.MaxInt64)

func NewWindows(l policy.Limits) *Windows {
	return &Windows{Limits: l, nodes: map[string]*tally{}, namespaces: map[string]*tally{}}
}

// Restart forgets everything that was counted.
func (l *Windows) Restart() { *l = *NewWindows(l.Limits) }

// Set replaces the limits. What was counted counts against the new ones.
func (l *Windows) Set(next policy.Limits, now time.Time) {
	l.Limits = next
	l.forget(now)
}

// Admits says whether the pod may be moved at the time now. If not, wait is how long it takes until there is room again
// without an eviction that fails, [Never] if that is when the policy changes. Of several limits the one that holds longest
// is named.
func (l *Windows) Admits(from Origin, now time.Time) (reason schemas.ReasonCode, message string, wait time.Duration) {
	if !l.Any() {
		return "", "", 0
	}
	l.forget(now)
	node, namespace := l.nodes[from.Node], l.namespaces[from.Namespace]
	remembered := uint(mostMoves)
	for _, one := range []struct {
		most   *uint
		tally  *tally
		reason schemas.ReasonCode
		of     string
	}{
		{l.Total, &l.total, schemas.ReasonLimitTotal, "the cluster has reached its limit of %s"},
		{l.PerNode, node, schemas.ReasonLimitNode, "node " + from.Node + " has reached its limit of %s"},
		{l.PerNamespace, namespace, schemas.ReasonLimitNamespace, "namespace " + from.Namespace + " has reached its limit of %s"},
		{&remembered, &l.total, schemas.ReasonLimitTotal, "the cluster has moved %s, and no more can be counted"},
	} {
		if one.most == nil {
			continue
		}
		if w := one.tally.wait(*one.most, l.Over(), now); w > wait {
			wait = w
			reason, message = one.reason, fmt.Sprintf(one.of, pods(*one.most, l.Over()))
		}
	}
	return reason, message, wait
}

// wait is how long it takes until one more fits below most. nil is an empty tally.
func (t *tally) wait(most uint, window time.Duration, now time.Time) time.Duration {
	switch {
	case most == 0:
		return Never
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

// RoomAgain says in words when the wait that admits returned is over.
func RoomAgain(wait time.Duration, now time.Time) string {
	if wait == Never {
		return "there is no room until the policy changes"
	}
	return "there is room again at " + rfc3339(now.Add(wait+time.Second-1)) // clock cuts off what is below a second
}

// Begin takes a place for a move that is begun.
func (l *Windows) Begin(from Origin) {
	l.total.flying++
	tallyOf(l.nodes, from.Node).flying++
	tallyOf(l.namespaces, from.Namespace).flying++
}

// End says what became of a move that was begun: it counts from now on, or its place is given back.
func (l *Windows) End(from Origin, moved bool, now time.Time) {
	node, namespace := tallyOf(l.nodes, from.Node), tallyOf(l.namespaces, from.Namespace)
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
func (l *Windows) forget(now time.Time) {
	for len(l.log) > 0 && (!l.Any() || now.Sub(l.log[0].at) >= l.Over()) {
		from := l.log[0].Origin
		l.log = l.log[1:]
		for _, t := range []*tally{&l.total, l.nodes[from.Node], l.namespaces[from.Namespace]} {
			t.moved = t.moved[1:]
		}
		l.drop(from)
	}
}

// drop lets go of the tallies of an Origin when they count nothing.
func (l *Windows) drop(from Origin) {
	if l.nodes[from.Node].empty() {
		delete(l.nodes, from.Node)
	}
	if l.namespaces[from.Namespace].empty() {
		delete(l.namespaces, from.Namespace)
	}
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (t *tally) empty() bool { return t.flying == 0 && len(t.moved) == 0 }

func tallyOf(all map[string]*tally, name string) *tally {
	if all[name] == nil {
		all[name] = &tally{}
	}
	return all[name]
}
