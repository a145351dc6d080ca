package actuator

import (
	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/schemas"
)

// Open is one intent that has no verdict yet.
type Open struct {
	Profile  string
	Strategy string
	Scope    schemas.ScopeRef
	Intent   schemas.Intent
	// Answer is the event that brought the intent, without its data: the cause of the verdict.
	Answer schemas.Event
}

// openOf is an intent of an answer that came with the event e.
func openOf(a schemas.Intents, i schemas.Intent, e schemas.Event) Open {
	return Open{Profile: a.Profile, Strategy: a.Strategy, Scope: a.Scope, Intent: i, Answer: e}
}

// Verdict is the verdict on the intent, with everything filled in but Blockers and DryRun.
func (o Open) Verdict(outcome schemas.Outcome, reason schemas.ReasonCode, message string) schemas.Verdict {
	return schemas.Verdict{
		Outcome: outcome, Reason: reason, Message: message,
		Profile: o.Profile, Strategy: o.Strategy, Scope: o.Scope, Intent: o.Intent,
	}
}

// renewed is the intent when a newer answer lists its pod again: the same wish in newer words.
func (o Open) renewed(i schemas.Intent) Open {
	o.Intent.Reason, o.Intent.Node, o.Intent.Expires, o.Intent.Asked = i.Reason, i.Node, i.Expires, i.Asked
	return o
}

// originOf is what a move of the intent's pod counts against.
func originOf(o Open) limit.Origin {
	return limit.Origin{Node: o.Intent.Node, Namespace: o.Intent.Pod.Namespace}
}
