package policy

import (
	"fmt"
	"slices"
)

// outside says where a strategy is asked, if that is not in Rehome.
func (t *text) outside(o Outside, is bool) {
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
func (t *text) unasked(p Policy) {
	for _, o := range p.Outside {
		if !slices.ContainsFunc(p.Profiles, func(profile Profile) bool { return profile.enables(o.Strategy.Name) }) {
			t.line(0, "The function %s is enabled in no profile, so it is never asked.", o.Strategy.Name)
		}
	}
}

// enables says whether the strategy is one of the profile's.
func (p Profile) enables(strategy string) bool {
	return slices.ContainsFunc(p.Strategies, func(e Enabled) bool { return e.Name == strategy })
}
