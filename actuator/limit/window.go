package limit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Windows keep moves below [policy.Limits]. A move counts from when it begins, so a limit is never exceeded, and for the window
// after it was accepted. In a dry run, moves that would have been made count. [NewWindows] makes one.
type Windows struct {
	policy.Limits
	tallies map[string]*tally
}

// Origin is the node and the namespace that a move counts against.
type Origin struct{ Node, Namespace string }

// The keys of tallies.
const total = "total"

func nodeKey(name string) string      { return "node/" + name }
func namespaceKey(name string) string { return "namespace/" + name }

func (o Origin) keys() [3]string { return [3]string{total, nodeKey(o.Node), namespaceKey(o.Namespace)} }

// tally counts the moves of one node, of one namespace, or all.
type tally struct {
	accepted []time.Time // in order
	begun    int
}

// Never is longer than any wait.
const Never = time.Duration(math.MaxInt64)

func NewWindows(l policy.Limits) *Windows { return &Windows{Limits: l, tallies: map[string]*tally{}} }

// Admits says whether a pod may be moved at the time now. If not, wait is how long it takes until there is capacity again,
// [Never] if that is when the policy changes. Of several limits, the reason names the one that holds longest.
func (l *Windows) Admits(from Origin, now time.Time) (reason schemas.ReasonCode, message string, wait time.Duration) {
	if !l.Any() {
		return "", "", 0
	}
	for _, limit := range []struct {
		most   *uint
		key    string
		reason schemas.ReasonCode
		of     string
	}{
		{l.Total, total, schemas.ReasonLimitTotal, "the cluster has reached its limit of %s"},
		{l.PerNode, nodeKey(from.Node), schemas.ReasonLimitNode, "node " + from.Node + " has reached its limit of %s"},
		{l.PerNamespace, namespaceKey(from.Namespace), schemas.ReasonLimitNamespace,
			"namespace " + from.Namespace + " has reached its limit of %s"},
	} {
		if limit.most == nil {
			continue
		}
		if w := l.tallies[limit.key].wait(*limit.most, l.Over(), now); w > wait {
			wait, reason, message = w, limit.reason, fmt.Sprintf(limit.of, pods(*limit.most, l.Over()))
		}
	}
	return reason, message, wait
}

// wait is how long it takes until one more fits below most. nil is an empty tally.
func (t *tally) wait(most uint, window time.Duration, now time.Time) time.Duration {
	if most == 0 {
		return Never
	}
	if t == nil || t.forget(window, now) || uint(len(t.accepted)+t.begun) < most {
		return 0
	}
	next := len(t.accepted) + t.begun - int(most) // the one that has to leave the window first
	if next >= len(t.accepted) {
		return window // it has begun, and leaves that long after it was accepted
	}
	return window - now.Sub(t.accepted[next])
}

func pods(most uint, window time.Duration) string {
	if most == 1 {
		return fmt.Sprintf("1 pod in %v", window)
	}
	return fmt.Sprintf("%d pods in %v", most, window)
}

// RoomAgain describes the end of a wait that Admits returned.
func RoomAgain(wait time.Duration, now time.Time) string {
	if wait == Never {
		return "there is no room until the policy changes"
	}
	return "there is room again at " + now.Add(wait+time.Second-1).UTC().Format(time.RFC3339) // rounded up to a second
}

// Begin counts a move that begins.
func (l *Windows) Begin(from Origin) {
	for _, key := range from.keys() {
		if l.tallies[key] == nil {
			l.tallies[key] = &tally{}
		}
		l.tallies[key].begun++
	}
}

// End ends a move that began. If it was accepted, it counts from now on for the window.
func (l *Windows) End(from Origin, accepted bool, now time.Time) {
	for _, key := range from.keys() {
		t := l.tallies[key]
		if t.begun--; accepted && l.Any() {
			t.accepted = append(t.accepted, now)
		}
	}
}

// Forget forgets the moves that have left the window. It bounds the memory; no answer depends on when it is called.
func (l *Windows) Forget(now time.Time) {
	maps.DeleteFunc(l.tallies, func(_ string, t *tally) bool { return t.forget(l.Over(), now) })
}

// forget forgets the moves that have left the window, and says whether none is left.
func (t *tally) forget(window time.Duration, now time.Time) (none bool) {
	left, _ := slices.BinarySearchFunc(t.accepted, now.Add(-window), func(at, since time.Time) int {
		if at.After(since) {
			return 1
		}
		return -1
	})
	t.accepted = t.accepted[left:]
	return len(t.accepted)+t.begun == 0
}
