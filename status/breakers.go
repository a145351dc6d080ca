package status

import (
	"time"

	"github.com/rehome-dev/rehome/actuator"
)

// WorkloadBreaker is a circuit breaker of a workload, and whether it is open now.
type WorkloadBreaker struct {
	actuator.WorkloadBreaker
	Holds bool `json:"holds"`
}

// WorkloadBreakers returns the circuit breakers of workloads in the ledger.
func WorkloadBreakers(ledger actuator.Remembered, now time.Time) []WorkloadBreaker {
	all := []WorkloadBreaker{}
	for _, l := range ledger.Loops {
		all = append(all, WorkloadBreaker{l, l.Until.After(now)})
	}
	return all
}
