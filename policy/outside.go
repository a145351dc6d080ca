package policy

import (
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// Outside is a strategy that is asked outside of this process, as the section functions of the file says. It is one that
// the file declares, or a built-in one that somebody else is to answer for.
type Outside struct {
	// Strategy is what profiles enable. For the name of a built-in strategy it is that strategy.
	Strategy Strategy
	// URL is where its scopes are posted. Empty: Subject.
	URL string
	// Subject is the NATS subject on which it is asked. Empty: URL.
	Subject string
	// Timeout is how long one question may take.
	Timeout time.Duration
	// Parallel is how many questions are asked at once.
	Parallel int
}

// What an entry of functions gets that says nothing about it.
const (
	DefaultOutsideTimeout  = 10 * time.Second
	DefaultOutsideParallel = 8
)

// The bounds of what an entry of functions may say. A shorter time is over before a busy network answers; in a longer one
// the cluster has moved on.
const (
	shortestQuestion = 100 * time.Millisecond
	longestQuestion  = 10 * time.Minute
	mostQuestions    = 256
)

// OutsideOf returns how the strategy of that name is asked outside of this process, and whether it is.
func (p Policy) OutsideOf(strategy string) (Outside, bool) {
	for _, o := range p.Outside {
		if o.Strategy.Name == strategy {
			return o, true
		}
	}
	return Outside{}, false
}

// Declared says whether the policy itself describes the strategy, which is then no built-in one.
func (o Outside) Declared() bool {
	_, own := o.arguments()
	return own
}

// arguments are the defaults of a strategy that the policy describes; ok is false for a built-in one.
func (o Outside) arguments() (args *ownArguments, ok bool) {
	described, ok := o.Strategy.NewArgs().(interface{ own() *ownArguments })
	if !ok {
		return nil, false
	}
	return described.own(), true
}

// ownKinds are the kinds of scopes that a strategy which the policy describes can decide on.
func ownKinds() []schemas.ScopeKind {
	return []schemas.ScopeKind{
		schemas.NodeKind, schemas.PodKind, schemas.WorkloadKind, schemas.DomainKind, schemas.SpreadKind, schemas.UsageKind,
	}
}
