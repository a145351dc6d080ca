package policy

import "time"

// Brakes stop moving what does not get better by being moved.
type Brakes struct {
	Loop  Loop
	Storm Storm
}

// Loop is the loop breaker: a workload whose pods come back to a node that a strategy moved them from is left alone there,
// for Delay after the first return, doubled with each further one, at most MaxDelay. Delay 0 switches it off.
type Loop struct {
	Delay, MaxDelay time.Duration
}

// Storm is the storm brake: nothing is moved while one of its conditions holds. 0 switches a condition off.
type Storm struct {
	// Nodes is the share of all nodes, in percent, that went bad within [StormMemory]: they are not ready, or got a taint
	// that keeps pods away, and still have it. Below [StormLeast] nodes it never holds. Those that a maintenance holds are none of
	// them.
	Nodes int
	// Pending is how many replacements have been waiting for PendingFor or longer to become ready.
	Pending    int
	PendingFor time.Duration
	// Failures is the share of the latest [StormCalls] eviction calls, in percent, that failed for other reasons than a
	// budget.
	Failures int
}

// What the storm brake goes by that no file says.
const (
	// StormMemory is how long a node that is ready counts as gone bad after it got a taint. A taint that was put there for
	// good, such as that of a pool, stops nothing for longer.
	StormMemory = 10 * time.Minute
	// StormLeast is how many nodes have to be bad at least: one of three is not a storm.
	StormLeast = 3
	// StormCalls is how many calls are looked at, and StormPause how long nothing is tried when too many of them failed.
	StormCalls = 20
	StormPause = 30 * time.Second
)

// DefaultBrakes is what a file that says nothing gets. A pod that always comes back is moved five times in the first hour:
// after 0, 2, 6, 14 and 30 minutes.
func DefaultBrakes() Brakes {
	return Brakes{
		Loop:  Loop{Delay: 2 * time.Minute, MaxDelay: 4 * time.Hour},
		Storm: Storm{Nodes: 30, Pending: 10, PendingFor: 2 * time.Minute, Failures: 50},
	}
}
