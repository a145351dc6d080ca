package filter

import (
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// mostChannels is how many subjects one type of event may take. The server compares each message with each; beyond that it
// is cheaper to look at more events.
const mostChannels = 64

// Channels are the NATS subjects on which everything comes that is wanted, and as little else as subjects can say: types,
// outcomes, strategies, maintenances, and of deltas and verdicts namespaces, pods and nodes, unless there are so many that
// naming all combinations costs more than it saves. No two of them match the same subject. Empty: nothing can be what is wanted.
func (f Filter) Channels() []string {
	var channels []string
	for _, noun := range nouns() {
		if !f.Wants(noun) {
			continue
		}
		switch noun {
		case Delta:
			channels = append(channels, f.deltas()...)
		case Verdict:
			channels = append(channels, f.verdicts()...)
		case Maintenance:
			if len(f.Outcomes) == 0 && fits(f.Strategies, schemas.MaintenanceStrategy) {
				channels = append(channels, subjects(noun, tokens(f.Maintenances))...)
			}
		case Receipt, Request:
			if !f.asksOfData() {
				channels = append(channels, subjects(noun, []string{"*"})...)
			}
		default:
			channels = append(channels, f.evaluations(noun)...)
		}
	}
	return channels
}

// evaluations are rehome.NOUN.STRATEGY.PROFILE.KIND.KEY, of scopes and answers. A pod can stand anywhere in the data.
func (f Filter) evaluations(noun string) []string {
	switch {
	case len(f.Outcomes) > 0:
		return nil
	case len(f.Maintenances) > 0:
		return subjects(noun, f.strategies(), []string{"*"}, []string{string(schemas.MaintenanceKind)}, tokens(f.Maintenances))
	}
	return subjects(noun, f.strategies(), []string{"*"})
}

// strategies are their tokens. What is done for a maintenance is of one alone.
func (f Filter) strategies() []string {
	switch {
	case len(f.Maintenances) == 0:
		return tokens(f.Strategies)
	case fits(f.Strategies, schemas.MaintenanceStrategy):
		return []string{schemas.MaintenanceStrategy}
	}
	return nil
}

// deltas are rehome.delta.node.ASPECT.NAME and rehome.delta.pod.ASPECT.NAMESPACE.NAME.
func (f Filter) deltas() []string {
	places, some := f.places()
	switch {
	case len(f.Outcomes)+len(f.Strategies)+len(f.Maintenances) > 0:
		return nil
	case some:
		return subjects(Delta, []string{"pod"}, []string{"*"}, places)
	case len(f.Nodes) > 0: // the node of a pod is in the data
		of := subjects(Delta, []string{"node"}, []string{"*"}, tokens(f.Nodes))
		return append(of, subjects(Delta, []string{"pod"}, []string{"*"})...)
	}
	return subjects(Delta, []string{"*"})
}

// verdicts are rehome.verdict.OUTCOME.STRATEGY.NAMESPACE.POD.
func (f Filter) verdicts() []string {
	places, some := f.places()
	if !some {
		places = []string{"*.*"}
	}
	return subjects(Verdict, tokens(f.Outcomes), f.strategies(), places)
}

// places are the tokens NAMESPACE.POD of the pods that are meant. some is false when any pod is.
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

// tokens are names as they stand in subjects; none is any.
func tokens(names []string) []string {
	if len(names) == 0 {
		return []string{"*"}
	}
	list := make([]string, 0, len(names))
	for _, n := range names {
		list = append(list, schemas.Token(n))
	}
	return list
}

// subjects combines one of each list after the other. When that would be too many, the last list that has several gives
// way, and so on. A list that is empty leaves nothing. What matches anything at the end matches however many tokens follow.
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
