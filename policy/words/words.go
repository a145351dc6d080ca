// Package words explains a policy in sentences.
//
//	policy.tmpl  the sentences
//	words.go     Text, and functions of the template
package words

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

//go:embed policy.tmpl
var sentences string

// Text explains the policy to a user: its limits, then for each profile and strategy which pods it moves, which changes
// cause an evaluation, and its arguments, then the protections of the profile. The same policy always gives the same
// text. The text may change; programs must not parse it.
func Text(p policy.Policy) string {
	t := template.Must(template.New("policy").Funcs(template.FuncMap{
		"perSecond":      perSecond,
		"bounds":         bounds,
		"unavailable":    unavailable,
		"isShare":        func(count string) bool { return strings.HasSuffix(count, "%") },
		"clusterBreaker": clusterBreaker,
		"change":         change,
		"changed":        changed,
		"unused":         unused,
		"off":            off,
		"list":           func(words []string) string { return strict.Series(words, "and") },
		"and_":           and,
		"short":          strict.Short,
		"inFlight":       func(l policy.Limits) bool { return l.InFlight != (policy.InFlight{}) },
		"zero":           func(n *int64) bool { return *n == 0 },
		"needsFacts":     func(e policy.Evictor) bool { return e.Needs() != policy.Needs{} },
	}).Parse(sentences))
	var b strings.Builder
	if err := t.Execute(&b, p); err != nil {
		return err.Error() // an error in the template, which tests find
	}
	return strings.TrimPrefix(b.String(), "\n")
}

func perSecond(rate float64) string {
	if rate >= 1 {
		return fmt.Sprintf("%g pods per second", rate)
	}
	return "one pod in " + strict.Short(time.Duration(float64(time.Second)/rate).Round(time.Millisecond))
}

// clusterBreaker has the conditions of the circuit breaker of the cluster that no policy sets.
func clusterBreaker() map[string]any {
	return map[string]any{
		"Least": policy.ClusterBreakerLeast, "Memory": policy.ClusterBreakerMemory,
		"Calls": policy.ClusterBreakerCalls, "Pause": policy.ClusterBreakerPause,
	}
}

// bound is a limit of the policy.
type bound struct {
	Most     uint
	Of, When string
}

// bounds returns the limits over a window of time and in flight.
func bounds(l policy.Limits) (all []bound) {
	within, atOnce := "within "+strict.Short(l.Over()), "at the same time"
	for _, b := range []struct {
		most     *uint
		of, when string
	}{
		{l.PerNode, " off one node", within}, {l.PerNamespace, " out of one namespace", within}, {l.Total, "", within},
		{l.InFlight.PerNode, " off one node", atOnce}, {l.InFlight.PerNamespace, " out of one namespace", atOnce},
		{l.InFlight.PerWorkload, " of one workload", atOnce}, {l.InFlight.Total, "", atOnce},
	} {
		if b.most != nil {
			all = append(all, bound{*b.most, b.of, b.when})
		}
	}
	return all
}

// unavailable describes how many pods, or which percentage of them, of a workload without a budget may be unavailable
// at once.
func unavailable(l policy.Limits) string {
	most := policy.DefaultUnavailable()
	if l.Unavailable != nil {
		most = *l.Unavailable
	}
	return most.String()
}

// changed returns the arguments of a strategy that are not the defaults, by name.
func changed(s policy.Enabled) ([]string, error) {
	defaults, err := json.Marshal(s.NewArgs())
	if err != nil {
		return nil, err
	}
	was, is := strict.Object(defaults), strict.Object(s.Args)
	every := maps.Clone(was)
	maps.Copy(every, is)
	var all []string
	for _, name := range strict.Names(every) {
		before, after := was[name], is[name]
		switch {
		case bytes.Equal(before, after):
		case after == nil:
			all = append(all, fmt.Sprintf("%s is not set (by default %s)", name, before))
		case before == nil:
			all = append(all, fmt.Sprintf("%s: %s", name, after))
		default:
			all = append(all, fmt.Sprintf("%s: %s (by default %s)", name, after, before))
		}
	}
	return all, nil
}

// change describes a delta of that kind, as in "when a node joins".
func change(kind schemas.DeltaKind) string {
	text, known := map[schemas.DeltaKind]string{
		schemas.NodeAdded:         "a node joins",
		schemas.NodeRemoved:       "a node is deleted",
		schemas.NodeReady:         "a node becomes ready or not ready",
		schemas.NodeLabels:        "the labels of a node change",
		schemas.NodeTaints:        "the taints of a node change",
		schemas.NodeUnschedulable: "a node is cordoned or uncordoned",
		schemas.NodeAllocatable:   "the allocatable resources of a node change",
		schemas.NodeLoad:          "the measured load of a node crosses a threshold",
		schemas.PodScheduled:      "a pod is scheduled",
		schemas.PodDeleted:        "a pod is deleted",
		schemas.PodLabels:         "the labels of a pod change",
		schemas.PodRestarted:      "a container of a pod restarts",
		schemas.PodFailed:         "a pod fails",
		schemas.PodStatus:         "the phase, a condition, or the state of a container of a pod changes",
	}[kind]
	if !known {
		object, aspect, _ := strings.Cut(string(kind), ".")
		return fmt.Sprintf("the %s of a %s changes", aspect, object)
	}
	return text
}

// unused returns the functions that no profile enables.
func unused(p policy.Policy) []string {
	var names []string
	for _, o := range p.Outside {
		name := o.Strategy.Name
		if !slices.ContainsFunc(p.Profiles, func(profile policy.Profile) bool {
			return slices.ContainsFunc(profile.Strategies, func(e policy.Enabled) bool { return e.Name == name })
		}) {
			names = append(names, name)
		}
	}
	return names
}

// off returns the disabled default protections.
func off(e policy.Evictor) []string {
	var names []string
	for _, r := range e.Rules() {
		if !r.On && r.Usual {
			names = append(names, r.Name)
		}
	}
	return names
}

// and joins words, as in "a and b and c". It replaces the rule that stands for every rule with "every rule".
func and(words any) string {
	text := strings.Trim(fmt.Sprint(words), "[]")
	return strings.ReplaceAll(strings.ReplaceAll(text, " ", " and "), policy.AnyRule, "every rule")
}
