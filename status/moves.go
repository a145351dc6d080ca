package status

import (
	"time"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/policy"
)

// MoveCount is a number of moves, including moves that the API server has not accepted yet.
type MoveCount struct {
	// Window is the window of the policy's limits. Without a limit over a window it is empty, and the count has only the moves that
	// the ledger still has: it forgets a completed move that no limit counts.
	Window     string         `json:"window,omitempty"`
	Total      int            `json:"total"`
	Nodes      map[string]int `json:"nodes"`
	Namespaces map[string]int `json:"namespaces"`
	// Limits are the limits of the policy over the window, and InFlight its limits on moves in flight. nil means none.
	Limits   *MoveLimits      `json:"limits,omitempty"`
	InFlight *policy.InFlight `json:"inFlightLimits,omitempty"`
	// Ages are the moves by age, in the steps of ages, if the policy is unknown.
	Ages []int `json:"ages,omitempty"`
}

// MoveLimits are the limits of the policy; nil means no limit.
type MoveLimits struct {
	Total        *uint `json:"total,omitempty"`
	PerNode      *uint `json:"perNode,omitempty"`
	PerNamespace *uint `json:"perNamespace,omitempty"`
}

// ages returns the steps of [MoveCount.Ages]. After the last step, one more number counts older moves.
func ages() []time.Duration { return []time.Duration{time.Minute, 5 * time.Minute, time.Hour} }

func countMoves(moves []actuator.Move, limits *policy.Limits, now time.Time) MoveCount {
	c := MoveCount{Nodes: map[string]int{}, Namespaces: map[string]int{}}
	if limits != nil {
		if limits.Any() {
			c.Window = limits.Over().String()
			c.Limits = &MoveLimits{limits.Total, limits.PerNode, limits.PerNamespace}
		}
		if limits.InFlight != (policy.InFlight{}) {
			c.InFlight = &limits.InFlight
		}
	} else {
		c.Ages = make([]int, len(ages())+1)
	}
	for _, m := range moves {
		age := now.Sub(m.Moved)
		if m.Moved.IsZero() {
			age = 0
		}
		if limits != nil && age >= limits.Over() {
			continue
		}
		c.Total++
		c.Nodes[m.Node]++
		c.Namespaces[m.Pod.Namespace]++
		if limits == nil {
			c.Ages[step(age)]++
		}
	}
	return c
}

func step(age time.Duration) int {
	for i, limit := range ages() {
		if age < limit {
			return i
		}
	}
	return len(ages())
}

// InFlight returns the moves of the ledger that are in flight.
func InFlight(ledger actuator.Remembered) []actuator.Move {
	all := []actuator.Move{}
	for _, m := range ledger.Moves {
		if m.InFlight() {
			all = append(all, m)
		}
	}
	return all
}
