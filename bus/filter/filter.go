// Package filter selects events: [Filter.Channels] returns NATS subjects to subscribe to, which can match more events than the
// filter, and [Filter.Matches] decides about each event. Both are pure functions.
//
//	filter.go    Filter, Check, Matches
//	channels.go  Channels: the subjects of each noun
//	read.go      read: the fields of an event that filters read
package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// The types of events, as users and subjects name them.
const (
	Delta       = "delta"
	Receipt     = "receipt"
	Request     = "request"
	Scope       = "scope"
	Intents     = "intents"
	Verdict     = "verdict"
	Maintenance = "maintenance"
)

// Nouns lists all types.
func Nouns() []string {
	all := []string{Delta, Scope, Intents, Verdict, Receipt, Maintenance, Request}
	for _, typ := range schemas.EventTypes() {
		if noun := schemas.NounOf(typ); !slices.Contains(all, noun) {
			all = append(all, noun)
		}
	}
	return all
}

// History lists the types that the history keeps.
func History() []string { return slices.DeleteFunc(Nouns(), isTransient) }

// Choices returns the types that the history keeps as text, such as "delta, intents, or verdict".
func Choices() string {
	all := History()
	return strings.Join(all[:len(all)-1], ", ") + ", or " + all[len(all)-1]
}

// isTransient reports whether the history has no events of a type.
func isTransient(noun string) bool { return noun == Scope || noun == Request }

// Remembered reports whether the history keeps the events on a channel of [Filter.Channels].
func Remembered(channel string) bool { return !isTransient(nounOf(channel)) }

// Filter selects the events that match one entry of each non-empty list. The zero value selects the whole history.
//
// An event without a field does not match a list for that field: only verdicts have an outcome, deltas have no strategy, scopes
// of nodes have no namespace, and requests, receipts, and types without a constant here have none of these fields. Events about a
// maintenance have the strategy Maintenance, its nodes, and the pods that cannot move.
type Filter struct {
	// Types are the words above. Empty means all types in the history: all but scope and request.
	Types []string
	// Outcomes are outcomes of verdicts.
	Outcomes []string
	// Strategies are the names of strategies.
	Strategies []string
	// Namespaces, Pods, and Nodes are places: of the changed node or pod, of the scope, or of a pod that should move. One place of
	// the event must match all three lists.
	Namespaces []string
	Pods       []Pod
	Nodes      []string
	// Maintenances are the names of node maintenances.
	Maintenances []string
	// Correlations are correlation IDs, one for each chain of events.
	Correlations []string
}

// Pod is the name of a pod.
type Pod struct{ Namespace, Name string }

// ParsePod parses NAMESPACE/NAME.
func ParsePod(text string) (Pod, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return Pod{}, fmt.Errorf("want NAMESPACE/NAME such as shop/api-0, got %q", text)
	}
	return Pod{Namespace: namespace, Name: name}, nil
}

// ErrNothing is wrapped by errors for filters that no event can match.
var ErrNothing = errors.New("no event can match the filter")

// Check returns an error that begins with the name of a wrong list, in the singular.
func (f Filter) Check() error {
	for _, t := range f.Types {
		if !slices.Contains(Nouns(), t) {
			return fmt.Errorf("type: want %s, scope or request, got %q", strings.Join(History(), ", "), t)
		}
	}
	for _, o := range f.Outcomes {
		if !slices.Contains(schemas.Outcomes(), schemas.Outcome(o)) {
			return fmt.Errorf("outcome: want one of %v, got %q", schemas.Outcomes(), o)
		}
	}
	for _, list := range []struct {
		name  string
		names []string
	}{
		{"strategy", f.Strategies}, {"namespace", f.Namespaces}, {"node", f.Nodes},
		{"maintenance", f.Maintenances}, {"correlation", f.Correlations},
	} {
		if slices.Contains(list.names, "") {
			return fmt.Errorf("%s: want a name, got none", list.name)
		}
	}
	if len(f.Channels()) == 0 {
		return fmt.Errorf("%w: only verdicts have an outcome, deltas have no strategy, and a pod is in its own namespace", ErrNothing)
	}
	return nil
}

// Wants reports whether events of a type can match.
func (f Filter) Wants(noun string) bool {
	if len(f.Types) == 0 {
		return !isTransient(noun)
	}
	return slices.Contains(f.Types, noun)
}

// Matches reports whether an event matches. Its channel has the type. Matches reads the data only if a list needs it.
func (f Filter) Matches(e schemas.Event) bool {
	noun := nounOf(e.Channel)
	if noun == "" || !f.Wants(noun) || !fits(f.Correlations, e.CorrelationID) {
		return false
	}
	if !f.asksOfData() {
		return true
	}
	s, ok := read(noun, e)
	return ok && fits(f.Outcomes, s.outcome) && fits(f.Strategies, s.strategy) && fits(f.Maintenances, s.maintenance) &&
		slices.ContainsFunc(s.about, f.fitsPlace)
}

// asksOfData reports whether a list needs the data of events.
func (f Filter) asksOfData() bool {
	return len(f.Outcomes)+len(f.Strategies)+len(f.Namespaces)+len(f.Pods)+len(f.Nodes)+len(f.Maintenances) > 0
}

// fitsPlace reports whether a place matches.
func (f Filter) fitsPlace(p place) bool {
	return fits(f.Namespaces, p.namespace) && fits(f.Pods, Pod{p.namespace, p.pod}) && fits(f.Nodes, p.node)
}

// fits reports whether a list is empty or has the entry.
func fits[T comparable](list []T, entry T) bool {
	return len(list) == 0 || slices.Contains(list, entry)
}

// nounOf returns the type of the events on a channel, or "" for an unknown channel.
func nounOf(channel string) string {
	tokens := strings.SplitN(channel, ".", 3)
	if len(tokens) < 3 || tokens[0] != schemas.Prefix || !slices.Contains(Nouns(), tokens[1]) {
		return ""
	}
	return tokens[1]
}
