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

// Status is what Rehome does at a time.
type Status struct {
	Time             time.Time                 `json:"time"`
	MovesInFlight    []actuator.Move           `json:"movesInFlight"`
	Counted          MoveCount                 `json:"counted"`
	WorkloadBreakers []WorkloadBreaker         `json:"workloadBreakers"`
	Storm            []actuator.StormCondition `json:"storm"` // empty means the cluster circuit breaker is closed
	Leaders          []Leader                  `json:"leaders,omitempty"`
	NoLeaders        string                    `json:"leadersUnknown,omitempty"` // why Leaders are not known
	Deferred         []DeferredPod             `json:"deferred"`
	Requests         []OpenRequest             `json:"requests"`
	Maintenances     []Maintenance             `json:"maintenances"`
	DeadLetters      map[string]uint64         `json:"deadLetters"` // by the stream that they were in
	Streams          []bus.StreamStatus        `json:"streams"`
	Unreadable       []string                  `json:"unreadable,omitempty"`    // records of the ledger that cannot be read
	LimitsReached    []string                  `json:"limitsReached,omitempty"` // as [Status.Reached] names them
	BusWarning       string                    `json:"busWarning,omitempty"`    // the bus takes no events
	ClockWarning     string                    `json:"clockWarning,omitempty"`  // the clocks of this machine and of the bus differ
}

// Source is where a status is read from.
type Source struct {
	Settings settings.Settings
	// Client reads the leases. nil: one from the settings.
	Client settings.Client
	Bus    *bus.Bus
	// Deferred returns the deferred pods. nil: they are read from the bus.
	Deferred func(now time.Time) []DeferredPod
	// Limits are the limits of the policy, over whose window moves are counted. nil: moves are counted by age.
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

// Of returns the status that follows from the ledger alone.
func Of(ledger actuator.Remembered, limits *policy.Limits, now time.Time) Status {
	return Status{
		Time: now.UTC(), MovesInFlight: InFlight(ledger), Counted: countMoves(ledger.Moves, limits, now),
		WorkloadBreakers: WorkloadBreakers(ledger, now), Storm: append([]actuator.StormCondition{}, ledger.Storm...),
		Deferred: []DeferredPod{}, Requests: []OpenRequest{}, Maintenances: []Maintenance{}, DeadLetters: map[string]uint64{},
		Streams: []bus.StreamStatus{},
	}
}

// Ledger reads the ledger of the actuator. Each record that cannot be read is one of the errors in the list.
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
