// Package words says in plain words what a policy does.
//
//	words.go     Text: profiles, strategies, protections, presets
//	sections.go  the sections that hold for all profiles
package words

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// Text says in words, for a person, what the policy does: for each profile and strategy what it moves, what wakes it
// and how it is set, then what protects a pod of the profile. The same policy always gives the same text. The text is no
// interface for programs and may change.
func Text(p policy.Policy) string {
	var t text
	t.line(0, "%s", nodes(p))
	t.rate(p.Rate)
	t.limits(p.Limits)
	t.brakes(p.Brakes)
	t.restart(p.Restart)
	if wait := p.EvictionRequests.Wait; wait != 0 {
		t.line(0, "Asks with an EvictionRequest first. One that has no answer for %v is withdrawn, and the pod is evicted.", wait)
	}
	t.asking(p.Requests)
	t.maintenance(p.Maintenance)
	t.line(0, "%s", grace(p))
	if p.FailureEvents {
		t.line(0, "An eviction that fails or is refused is a Kubernetes Event EvictionFailed on the pod.")
	}
	t.metrics(p.Metrics)
	t.nodeSignals(p.Signals)
	if p.Deltas == policy.DeltasAll {
		t.line(0, "Every change of a pod is published, whether or not it wakes a strategy.")
	}
	t.modifiers(p.Presets)
	t.unasked(p)
	if len(p.Profiles) == 0 {
		t.line(0, "There is no profile, so no pod is moved.")
	}
	for _, profile := range p.Profiles {
		t.profile(profile, p)
	}
	return t.String()
}

// nodeSignals says which nodes and taints are left alone.
func (t *text) nodeSignals(s policy.Signals) {
	for _, effect := range []struct {
		effect policy.SignalEffect
		words  string
	}{
		{policy.IgnoreNode, "Moves no pod from a node, and does not count on it for others, that"},
		{policy.IgnoreTaint, "The strategies do not see the taint when a node"},
	} {
		rules := s.Rules(effect.effect)
		if len(rules) > 0 {
			t.line(0, "%s", effect.words)
		}
		for _, r := range rules {
			t.item(1, r.Words)
		}
	}
}

// metrics says where real usage is read.
func (t *text) metrics(m policy.Metrics) {
	if m.Kubernetes() {
		t.line(0, "Real usage can be read from the metrics API of the cluster.")
	}
	if p := m.Prometheus(); p != nil {
		token := "the token of its service account"
		if secret := p.TokenSecret(); secret != nil {
			token = fmt.Sprintf("the token in the Secret %s/%s", secret.Namespace, secret.Name)
		}
		t.line(0, "Real usage can be read from Prometheus at %s, with %s.", p.URL, token)
	}
}

func nodes(p policy.Policy) string {
	if p.NodeSelector == "" {
		return "Looks at the pods of every node."
	}
	return fmt.Sprintf("Looks at the pods of nodes whose labels match %q, and at no others.", p.NodeSelector)
}

func grace(p policy.Policy) string {
	switch s := p.GracePeriodSeconds; {
	case s == nil:
		return "A pod that is moved gets the grace period that it asks for itself."
	case *s == 0:
		return "A pod that is moved is killed at once, whatever grace period it asks for."
	default:
		return fmt.Sprintf("A pod that is moved gets %d seconds to end, whatever grace period it asks for.", *s)
	}
}

// text is lines that are indented by steps of two.
type text struct{ strings.Builder }

func (t *text) line(depth int, format string, values ...any) {
	t.WriteString(strings.Repeat("  ", depth))
	fmt.Fprintf(t, format, values...)
	t.WriteByte('\n')
}

// item is a line of a list.
func (t *text) item(depth int, words string) { t.line(depth, "- %s", words) }

func (t *text) profile(p policy.Profile, of policy.Policy) {
	t.line(0, "")
	t.line(0, "Profile %s", p.Name)
	for _, preset := range of.Presets {
		if preset.Profile == p.Name {
			t.preset(preset)
		}
	}
	if len(p.Strategies) == 0 {
		t.line(1, "No strategy is enabled, so no pod is moved.")
	}
	for _, s := range p.Strategies {
		t.strategy(s)
		t.outside(of.OutsideOf(s.Name))
		t.arguments(s)
	}
	t.protections(p.Evictor)
}

// modifiers says which presets changed the profiles of others.
func (t *text) modifiers(presets []policy.Preset) {
	for _, p := range presets {
		switch p.Name {
		case "EvictPodsWithLocalStorage":
			t.line(0, "The preset %s lifts the protection of pods with local storage in the profiles of presets.", p.Name)
		case "EvictPodsWithPVC":
			t.line(0, "The preset %s lifts the protection of pods with a PersistentVolumeClaim in the profiles of presets.", p.Name)
		}
	}
}

// preset says where a profile comes from, and what it lacks.
func (t *text) preset(p policy.Preset) {
	if p.Name == p.Profile {
		t.line(1, "This is the preset %s, a profile of OpenShift.", p.Name)
	} else {
		t.line(1, "This is the preset %s, an older name of a profile of OpenShift.", p.Name)
	}
	if len(p.Lacks) > 0 {
		t.line(1, "What differs there, or has no effect here:")
	}
	for _, words := range p.Lacks {
		t.item(2, words)
	}
}

func (t *text) strategy(s policy.Enabled) {
	t.line(0, "")
	t.line(1, "%s", s.Name)
	if s.Summary != "" {
		t.line(2, "%s", s.Summary)
	}
	t.line(2, "Looks again at the %ss concerned when", s.Scope)
	for _, kind := range s.Wakes {
		t.item(3, inWords(kind))
	}
	t.item(3, "the policy changes, rehome starts, and every resync interval: at all of them")
	if s.Needs(policy.FactDue) {
		t.line(2, "The clock wakes it: at the second at which a pod reaches an age or a minimum time.")
	} else {
		t.line(2, "The clock does not wake it.")
	}
}

// arguments lists what differs from the defaults.
func (t *text) arguments(s policy.Enabled) {
	differing := differences(s)
	if len(differing) == 0 {
		t.line(2, "Its arguments are the defaults.")
		return
	}
	t.line(2, "Its arguments that differ from the defaults:")
	for _, words := range differing {
		t.item(3, words)
	}
}

// differences lists the arguments that are not the defaults, by name.
func differences(s policy.Enabled) []string {
	defaults, err := json.Marshal(s.NewArgs())
	if err != nil {
		return []string{err.Error()}
	}
	was, is := strict.Object(defaults), strict.Object(s.Args)
	every := maps.Clone(was)
	maps.Copy(every, is)
	var list []string
	for _, name := range strict.Names(every) {
		before, after := was[name], is[name]
		switch {
		case bytes.Equal(before, after):
		case after == nil:
			list = append(list, fmt.Sprintf("%s is not set (by default %s)", name, before))
		case before == nil:
			list = append(list, fmt.Sprintf("%s: %s", name, after))
		default:
			list = append(list, fmt.Sprintf("%s: %s (by default %s)", name, after, before))
		}
	}
	return list
}

// inWords says what happens when a delta of that kind is observed, as in "when a node joins".
func inWords(kind schemas.DeltaKind) string {
	switch kind {
	case schemas.NodeAdded:
		return "a node joins"
	case schemas.NodeRemoved:
		return "a node is gone"
	case schemas.NodeReady:
		return "a node becomes ready, or stops being so"
	case schemas.NodeLabels:
		return "labels of a node change"
	case schemas.NodeTaints:
		return "taints of a node change"
	case schemas.NodeUnschedulable:
		return "a node is cordoned or uncordoned"
	case schemas.NodeAllocatable:
		return "what a node offers to pods changes"
	case schemas.NodeLoad:
		return "the measured load of a node crosses a threshold"
	case schemas.PodScheduled:
		return "a pod gets its node"
	case schemas.PodDeleted:
		return "a pod is gone"
	case schemas.PodLabels:
		return "labels of a pod change"
	case schemas.PodRestarted:
		return "a container of a pod is restarted"
	case schemas.PodFailed:
		return "a pod fails"
	case schemas.PodStatus:
		return "the phase or a condition of a pod, or the state of one of its containers changes"
	}
	object, aspect, _ := strings.Cut(string(kind), ".")
	return fmt.Sprintf("the %s of a %s changes", aspect, object)
}

// listed joins words as in "a, b and c".
func listed(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// outside says where a strategy is asked, if that is not in Rehome.
func (t *text) outside(o policy.Outside, is bool) {
	if !is {
		return
	}
	where := "over NATS on the subject " + o.Subject
	if o.URL != "" {
		where = "over HTTP at " + o.URL
	}
	questions := "one question"
	if o.Parallel > 1 {
		questions = fmt.Sprintf("%d questions", o.Parallel)
	}
	t.line(2, "Is asked outside of Rehome, %s: at most %s at once, each for at most %v.", where, questions, o.Timeout)
}

// unasked says which functions the policy has and nobody enables.
func (t *text) unasked(p policy.Policy) {
	for _, o := range p.Outside {
		if !slices.ContainsFunc(p.Profiles, func(profile policy.Profile) bool { return enables(profile, o.Strategy.Name) }) {
			t.line(0, "The function %s is enabled in no profile, so it is never asked.", o.Strategy.Name)
		}
	}
}

// enables says whether the strategy is one of the profile's.
func enables(p policy.Profile, strategy string) bool {
	return slices.ContainsFunc(p.Strategies, func(e policy.Enabled) bool { return e.Name == strategy })
}

// protections says what protects a pod of the profile, rule by rule.
func (t *text) protections(e policy.Evictor) {
	t.line(0, "")
	t.line(1, "What protects a pod in this profile")
	for _, r := range e.Rules() {
		if r.On {
			t.item(2, fmt.Sprintf("%s: %s", r.Name, r.Words))
		}
	}
	t.item(2, "a PodDisruptionBudget, always: a pod that it holds is tried again when it allows a disruption")
	var off []string
	for _, r := range e.Rules() {
		if !r.On && r.Usual {
			off = append(off, r.Name)
		}
	}
	if len(off) > 0 {
		t.line(1, "Off, and on by default: %s.", listed(off))
	}
	t.line(1, "The annotation %s on a pod, with any value but \"false\", lifts all of", policy.EvictAnnotation)
	stay := []string{policy.MirrorPods, policy.StaticPods, policy.TerminatingPods}
	for _, r := range e.Rules() {
		if r.On && (r.Name == policy.NamespaceSelectorRule || r.Name == policy.NodeFitRule) {
			stay = append(stay, r.Name)
		}
	}
	t.line(1, "these except %s and budgets.", strings.Join(stay, ", "))
	if e.Needs() != (policy.Needs{}) {
		t.line(1, "When something around a pod changes that one of these looks at, the pod is looked at again.")
	}
}
