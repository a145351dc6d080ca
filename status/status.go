// Package status reads what Rehome does now. The command line prints it, and the API returns it.
//
//	Read ▶ Status     status.go     from the ledger of the actuator, the bus, and the leases
//	moves             moves.go      counted against the limits of the policy, or by age
//	breakers          breakers.go   circuit breakers of workloads
//	deferred pods     deferred.go   from the verdicts of the last hour
//	requests          requests.go   and maintenances on the bus that are not finished
//	leaders           leaders.go    of the roles
//	limits reached    limits.go     by deferred pods and full streams
package status

import (
	"context"
	"errors"
	"time"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/policy"
)

// Status is the state of Rehome at one time.
type Status struct {
	Time             time.Time                 `json:"time"`
	MovesInFlight    []actuator.Move           `json:"movesInFlight"`
	Counted          MoveCount                 `json:"counted"`
	WorkloadBreakers []WorkloadBreaker         `json:"workloadBreakers"`
	Storm            []actuator.StormCondition `json:"storm"` // empty means the cluster circuit breaker is closed
	Leaders          []Leader                  `json:"leaders,omitempty"`
	NoLeaders        string                    `json:"leadersUnknown,omitempty"` // the reason why Leaders are unknown
	Deferred         []DeferredPod             `json:"deferred"`
	Requests         []OpenRequest             `json:"requests"`
	Maintenances     []Maintenance             `json:"maintenances"`
	DeadLetters      map[string]uint64         `json:"deadLetters"` // by stream
	Streams          []bus.StreamStatus        `json:"streams"`
	Unreadable       []string                  `json:"unreadable,omitempty"`    // errors of unreadable records of the ledger
	LimitsReached    []string                  `json:"limitsReached,omitempty"` // from [Status.Reached]
	BusWarning       string                    `json:"busWarning,omitempty"`    // the reason why the bus accepts no events
	ClockWarning     string                    `json:"clockWarning,omitempty"`  // the difference to the clock of the bus
}

// Source is the source of a status.
type Source struct {
	Settings settings.Settings
	// Client reads the leases. nil means a client from the settings.
	Client settings.Client
	Bus    *bus.Bus
	// Deferred returns the deferred pods. nil means that they are read from the bus.
	Deferred func(now time.Time) []DeferredPod
	// Limits are the limits of the policy, whose window is the period of the counted moves. nil means that moves are counted by
	// age.
	Limits *policy.Limits
}

// Read returns the status now. The error is an error of the bus. If the leases cannot be read, NoLeaders has the reason.
func Read(ctx context.Context, from Source) (Status, error) {
	ledger, unreadable, err := Ledger(ctx, from.Bus)
	if err != nil {
		return Status{}, err
	}
	st := Of(ledger, from.Limits, time.Now())
	for _, err := range unreadable {
		st.Unreadable = append(st.Unreadable, err.Error())
	}
	if err := st.readBus(ctx, from); err != nil {
		return st, err
	}
	if st.Leaders, err = readLeaders(ctx, from.Settings, from.Client); err != nil {
		st.NoLeaders = err.Error()
	}
	return st, nil
}

// Of returns the status from the ledger alone.
func Of(ledger actuator.Remembered, limits *policy.Limits, now time.Time) Status {
	return Status{
		Time: now.UTC(), MovesInFlight: InFlight(ledger), Counted: countMoves(ledger.Moves, limits, now),
		WorkloadBreakers: WorkloadBreakers(ledger, now), Storm: append([]actuator.StormCondition{}, ledger.Storm...),
		Deferred: []DeferredPod{}, Requests: []OpenRequest{}, Maintenances: []Maintenance{}, DeadLetters: map[string]uint64{},
		Streams: []bus.StreamStatus{},
	}
}

// Ledger reads the ledger of the actuator. The list has one error for each unreadable record.
func Ledger(ctx context.Context, b *bus.Bus) (actuator.Remembered, []error, error) {
	entries, err := b.Ledger().Entries(ctx)
	if err != nil {
		return actuator.Remembered{}, nil, err
	}
	ledger, unreadable := actuator.ReadLedger(entries)
	return ledger, unreadable, nil
}

func (st *Status) readBus(ctx context.Context, from Source) (err error) {
	b := from.Bus
	if from.Deferred != nil {
		st.Deferred = from.Deferred(st.Time)
	} else if st.Deferred, err = Deferred(ctx, b, st.Time); err != nil {
		return err
	}
	if st.Requests, err = Requests(ctx, b); err != nil {
		return err
	}
	if st.Maintenances, err = Maintenances(ctx, b); err != nil {
		return err
	}
	if st.DeadLetters, err = b.DeadCounts(ctx); err != nil {
		return err
	}
	if err = b.Space(ctx); errors.Is(err, bus.ErrNoSpace) {
		st.BusWarning = bus.ErrNoSpace.Error()
	} else if err != nil {
		return err
	}
	st.Streams, err = b.Status(ctx)
	if warning := b.ClockWarning(); warning != nil {
		st.ClockWarning = warning.Error()
	}
	st.LimitsReached = st.Reached()
	return err
}
