// Package filter says which events somebody wants to see: as NATS subjects, as far as subjects can say it, and as a
// question to each event that comes.
//
// [Filter.Channels] is for the server, so that little is sent that nobody wants; it leaves out nothing that is wanted.
// [Filter.Matches] decides. Both are pure functions.
package filter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// The types of events, as people and subjects name them.
const (
	Delta       = "delta"
	Receipt     = "receipt"
	Request     = "request"
	Scope       = "scope"
	Intents     = "intents"
	Verdict     = "verdict"
	Maintenance = "maintenance"
)

// nouns lists all types.
func nouns() []string { return []string{Delta, Scope, Intents, Verdict, Receipt, Maintenance, Request} }

// passes says whether events of a type have no history: they can only be looked on at.
func passes(noun string) bool { return noun == Scope || noun == Request }

// Remembered says whether there is a history of what comes on a channel of [Filter.Channels].
func Remembered(channel string) bool { return !passes(nounOf(channel)) }

// Filter is what somebody wants: of each list one has to fit, and all lists that are not empty have to. The zero value
// wants all of the history.
//
// An event that does not have what a list asks for does not fit: only verdicts have an outcome, deltas have no strategy,
// what a node is asked belongs to no namespace, and requests and their receipts have none of all this. What is said of a
// maintenance is of the strategy Maintenance, and about the nodes that it tells of and the pods that cannot move off them.
type Filter struct {
	// Types are the words above. Empty: those of which there is a history, all but scope and request.
	Types []string
	// Outcomes are those of verdicts.
	Outcomes []string
	// Strategies are their names.
	Strategies []string
	// Namespaces, Pods and Nodes are what an event is about: the node or pod that changed, the node, pod or group that was
	// asked about, or a pod that is to move and the node that it is to leave. One of them has to fit all three lists.
	Namespaces []string
	Pods       []Pod
	Nodes      []string
	// Maintenances are the names of node maintenances: what is asked, wanted and done for one of them, and how far it is.
	Maintenances []string
	// Correlations are correlation IDs: all that followed from one change.
	Correlations []string
}

// Pod names a pod, or pods that had this name one after the other.
type Pod struct{ Namespace, Name string }

// ParsePod reads NAMESPACE/NAME.
func ParsePod(text string) (Pod, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return Pod{}, fmt.Errorf("want NAMESPACE/NAME such as shop/api-0, got %q", text)
	}
	return Pod{Namespace: namespace, Name: name}, nil
}

// ErrNothing is wrapped by errors that say that no event can fit.
var ErrNothing = errors.New("no event can be all that")

// Check says what is wrong with the filter by the name of the list, in the singular.
func (f Filter) Check() error {
	for _, t := range f.Types {
		if !slices.Contains(nouns(), t) {
			return fmt.Errorf("type: want delta, intents, verdict, receipt, maintenance, scope or request, got %q", t)
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

// Wants says whether events of a type are wanted at all.
func (f Filter) Wants(noun string) bool {
	if len(f.Types) == 0 {
		return !passes(noun)
	}
	return slices.Contains(f.Types, noun)
}

// Matches says whether an event is wanted. Its type is that of its channel. One whose data cannot be read is wanted when
// nothing is asked of its data.
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
		slices.ContainsFunc(s.about, f.means)
}

// asksOfData says whether what an event says makes a difference.
func (f Filter) asksOfData() bool {
	return len(f.Outcomes)+len(f.Strategies)+len(f.Namespaces)+len(f.Pods)+len(f.Nodes)+len(f.Maintenances) > 0
}

// means says whether the filter means a place.
func (f Filter) means(p place) bool {
	return fits(f.Namespaces, p.namespace) && fits(f.Pods, Pod{p.namespace, p.pod}) && fits(f.Nodes, p.node)
}

// fits says whether a list has an entry, or has none at all.
func fits[T comparable](list []T, entry T) bool {
	return len(list) == 0 || slices.Contains(list, entry)
}

// nounOf is the type of event that a channel is for. Empty: none that is known.
func nounOf(channel string) string {
	tokens := strings.SplitN(channel, ".", 3)
	if len(tokens) < 3 || tokens[0] != schemas.Prefix || !slices.Contains(nouns(), tokens[1]) {
		return ""
	}
	return tokens[1]
}
