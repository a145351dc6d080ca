package filter

import (
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// mostChannels limits the subjects of one type of event. The server compares each message with each subject, so with more
// subjects it is cheaper to receive more events.
const mostChannels = 64

// Channels returns the NATS subjects of the events that match the filter. Subjects also match other events, because the
// namespaces, pods, and nodes of scopes and intents are in the data. No two subjects overlap. An empty list means that no event
// can match.
func (f Filter) Channels() []string {
	var all []string
	for _, noun := range Nouns() {
		if f.Wants(noun) {
			for _, tokens := range f.patterns(noun) {
				all = append(all, subjects(noun, tokens...)...)
			}
		}
	}
	return all
}

// patterns returns the subjects of a noun: for each subject a list of matching tokens for each position. Positions at the end may
// be missing. An empty result means that no event of the noun can match.
//
//nolint:gocyclo // a flat list: one case for each form of subject
func (f Filter) patterns(noun string) [][][]string {
	all, strategies := []string{"*"}, tokens(f.Strategies)
	if len(f.Maintenances) > 0 { // only one strategy works on maintenances
		if strategies = nil; fits(f.Strategies, schemas.MaintenanceStrategy) {
			strategies = []string{schemas.MaintenanceStrategy}
		}
	}
	places, some := f.places()
	switch {
	case noun == Verdict && some: // rehome.verdict.OUTCOME.STRATEGY.NAMESPACE.POD
		return [][][]string{{tokens(f.Outcomes), strategies, places}}
	case noun == Verdict:
		return [][][]string{{tokens(f.Outcomes), strategies, {"*.*"}}}
	case len(f.Outcomes) > 0:
		return nil
	case noun == Scope && len(f.Maintenances) > 0, noun == Intents && len(f.Maintenances) > 0:
		return [][][]string{{strategies, all, {string(schemas.MaintenanceKind)}, tokens(f.Maintenances)}}
	case noun == Scope, noun == Intents: // rehome.NOUN.STRATEGY.PROFILE.KIND.KEY
		return [][][]string{{strategies, all}}
	case noun == Maintenance && fits(f.Strategies, schemas.MaintenanceStrategy): // rehome.maintenance.NAME
		return [][][]string{{tokens(f.Maintenances)}}
	case noun == Delta && len(f.Strategies)+len(f.Maintenances) > 0:
		return nil
	case noun == Delta && some: // rehome.delta.pod.ASPECT.NAMESPACE.NAME
		return [][][]string{{{"pod"}, all, places}}
	case noun == Delta && len(f.Nodes) > 0: // rehome.delta.node.ASPECT.NAME; the node of a pod is in the data
		return [][][]string{{{"node"}, all, tokens(f.Nodes)}, {{"pod"}, all}}
	case noun == Delta, noun != Maintenance && !f.asksOfData(): // the other types have no field that a filter selects
		return [][][]string{{all}}
	}
	return nil
}

// places returns the tokens NAMESPACE.POD of the pods. some is false if any pod matches.
func (f Filter) places() (list []string, some bool) {
	if len(f.Pods) > 0 {
		for _, p := range f.Pods {
			if fits(f.Namespaces, p.Namespace) {
				list = append(list, schemas.Token(p.Namespace)+"."+schemas.Token(p.Name))
			}
		}
		return list, true
	}
	for _, n := range f.Namespaces {
		list = append(list, schemas.Token(n)+".*")
	}
	return list, len(list) > 0
}

// tokens returns names as subject tokens. Without names, any token matches.
func tokens(names []string) (list []string) {
	for _, n := range names {
		list = append(list, schemas.Token(n))
	}
	if len(list) == 0 {
		return []string{"*"}
	}
	return list
}

// subjects returns all combinations of one token of each list. If there are too many, the last list that has several tokens
// becomes a wildcard, and so on. An empty list leaves no subject. A subject that ends in a wildcard matches any number of tokens.
func subjects(noun string, lists ...[]string) []string {
	count := 1
	for i, l := range lists {
		lists[i] = slices.Compact(slices.Sorted(slices.Values(l)))
		count *= len(lists[i])
	}
	for i, l := range slices.Backward(lists) {
		if count > mostChannels && len(l) > 1 {
			lists[i] = []string{strings.Repeat("*.", strings.Count(l[0], ".")) + "*"}
			count /= len(l)
		}
	}
	all := []string{schemas.Prefix + "." + noun}
	for _, l := range lists {
		var longer []string
		for _, begin := range all {
			for _, token := range l {
				longer = append(longer, begin+"."+token)
			}
		}
		all = longer
	}
	for i, s := range all {
		for strings.HasSuffix(s, ".*") {
			s = strings.TrimSuffix(s, ".*")
		}
		if s != all[i] {
			all[i] = s + ".>"
		}
	}
	return all
}
