package actuator

import (
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// pod is a pod that somebody wants to move.
type pod struct {
	claims []*claim // never empty; the first one is open
	at     position
	rank   rank   // of the open claim
	number uint64 // among those that wait
	index  int    // in its lane
	hold   hold   // what it is held by
}

// claimOf returns the claim that an answer of the key has on the pod. nil: none; a nil pod has none.
func (p *pod) claimOf(k key) *claim {
	if p == nil {
		return nil
	}
	for _, c := range p.claims {
		if c.key == k {
			return c
		}
	}
	return nil
}

// position is where a pod is.
type position int

const (
	inFlight position = iota // its open intent is worked on
	inLane                   // in table.waiting
	onHold                   // in table.held
)

// claim is one intent in the table.
type claim struct {
	open   Open
	key    key
	answer *answer // the newest that lists the pod; replaced when it is no longer the one in table.answers
	state  claimState
	index  int       // in table.expiry, while it waits
	since  time.Time // when it was held first; zero: it never was
}

type claimState int

const (
	claimWaiting claimState = iota
	claimInFlight
	claimSettled
)

// decided is a claim with its verdict, and with the move that it began.
type decided struct {
	claim   *claim
	verdict schemas.Verdict
	move    *moving // nil: none
}
