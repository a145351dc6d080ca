// Package look holds the commands that show something, and change nothing.
//
//	get.go         get: one table for each noun; tables.go has their columns
//	status.go      status: reads the ledger, the bus, and the leases; statustext.go writes it
//	deadletters.go get deadletters
//	events.go      events: filters, and one line of text for each event; ShowJSON and DescribeRequest, also for package act
//	explain.go     explain: asks the bus and the cluster; explaintext.go writes the page; node.go explains nodes
package look

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Commands are the commands that show something.
func Commands() []*cobra.Command {
	return []*cobra.Command{getCommand(), statusCommand(), explainCommand(), eventsCommand()}
}

func statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show moves in flight, deferred pods with their reasons, leaders, and queues",
		Long: "Show everything that `rehome get` lists but dead letters, which are counted, and besides: moves that count against\n" +
			"limits, the leaders, and the streams with the waiting scopes of each strategy. With a policy, moves are counted over\n" +
			"its window, beside its limits; else they are grouped by age. Without an answer of the cluster there are no leaders.",
		Example: "  rehome status --policy policy.yaml",
		Args:    cobra.NoArgs,
	}
	s := cmdutil.Settings(c).Policy().Cluster().Bus()
	format := cmdutil.OutputFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		st, err := readStatus(c.Context(), s.Settings)
		if err != nil {
			return err
		}
		return cmdutil.Show(c.OutOrStdout(), *format, "Status", st)
	}
	return c
}

func readStatus(ctx context.Context, s settings.Settings) (st Status, err error) {
	var limits *policy.Limits
	if s.Policy != "" {
		p, _, err := settings.ReadPolicy(s.Policy)
		if err != nil {
			return st, err
		}
		limits = &p.Limits
	}
	err = withReader(s, func(b *bus.Bus) error {
		remembered, unreadable, err := ReadLedger(ctx, b.Ledger())
		if err != nil {
			return err
		}
		st = StatusOf(remembered, limits, time.Now())
		for _, err := range unreadable {
			st.Unreadable = append(st.Unreadable, err.Error())
		}
		return st.readBus(ctx, b)
	})
	if err != nil {
		return st, err
	}
	if st.Leaders, err = readLeaders(ctx, s); err != nil {
		st.NoLeaders = err.Error()
	}
	return st, nil
}

// ReadLedger reads the ledger of the actuator, and names the records that it cannot read.
func ReadLedger(ctx context.Context, l bus.Ledger) (actuator.Remembered, []error, error) {
	entries, err := l.Entries(ctx)
	if err != nil {
		return actuator.Remembered{}, nil, err
	}
	remembered, unreadable := actuator.ReadLedger(entries)
	return remembered, unreadable, nil
}

// Status is what `rehome status` shows, and its JSON.
type Status struct {
	Time             time.Time                 `json:"time"`
	MovesInFlight    []actuator.Move           `json:"movesInFlight"`
	Counted          moveCount                 `json:"counted"`
	WorkloadBreakers []WorkloadBreaker         `json:"workloadBreakers"`
	Storm            []actuator.StormCondition `json:"storm"` // empty: the cluster circuit breaker is closed
	Leaders          []LeaderStatus            `json:"leaders,omitempty"`
	NoLeaders        string                    `json:"leadersUnknown,omitempty"` // why Leaders are not known
	Deferred         []DeferredPod             `json:"deferred"`
	Requests         []OpenRequest             `json:"requests"`
	Maintenances     []MaintenanceStatus       `json:"maintenances"`
	DeadLetters      map[string]uint64         `json:"deadLetters"` // by the stream that they were in
	Streams          []bus.StreamStatus        `json:"streams"`
	Unreadable       []string                  `json:"unreadable,omitempty"`
	LimitsReached    []string                  `json:"limitsReached,omitempty"` // those of [Status.Reached]
	BusWarning       string                    `json:"busWarning,omitempty"`    // the bus takes no events
	ClockWarning     string                    `json:"clockWarning,omitempty"`  // the clocks of this machine and of the bus differ
}

// moveCount counts moves against limits, including those that are not accepted yet.
type moveCount struct {
	// Window is over which they are counted. Empty: over all that is remembered.
	Window     string         `json:"window,omitempty"`
	Total      int            `json:"total"`
	Nodes      map[string]int `json:"nodes"`
	Namespaces map[string]int `json:"namespaces"`
	// Limits are those of the policy, in the window, and InFlight those on what is in flight at once. nil: there are none.
	Limits   *moveLimits      `json:"limits,omitempty"`
	InFlight *policy.InFlight `json:"inFlightLimits,omitempty"`
	// Ages are the moves by how long ago they were accepted, where there is no window. The steps are those of ages.
	Ages []int `json:"ages,omitempty"`
}

// moveLimits are the limits of the policy; nil means no limit.
type moveLimits struct {
	Total        *uint `json:"total,omitempty"`
	PerNode      *uint `json:"perNode,omitempty"`
	PerNamespace *uint `json:"perNamespace,omitempty"`
}

// ages are the steps of [moveCount.Ages]; the last one is everything older.
func ages() []time.Duration { return []time.Duration{time.Minute, 5 * time.Minute, time.Hour} }

// WorkloadBreaker is a workload circuit breaker, and whether it holds now.
type WorkloadBreaker struct {
	actuator.WorkloadBreaker
	Holds bool `json:"holds"`
}

// StatusOf is the status at the time now. Without limits, moves are counted by age.
func StatusOf(r actuator.Remembered, limits *policy.Limits, now time.Time) Status {
	st := Status{
		Time: now.UTC(), MovesInFlight: inFlight(r.Moves), Counted: countMoves(r.Moves, limits, now),
		WorkloadBreakers: breakersOf(r, now), Storm: []actuator.StormCondition{}, Deferred: []DeferredPod{}, Requests: []OpenRequest{},
		Maintenances: []MaintenanceStatus{},
		DeadLetters:  map[string]uint64{}, Streams: []bus.StreamStatus{},
	}
	st.Storm = append(st.Storm, r.Storm...)
	return st
}

func inFlight(moves []actuator.Move) []actuator.Move {
	all := []actuator.Move{}
	for _, m := range moves {
		if m.InFlight() {
			all = append(all, m)
		}
	}
	return all
}

func breakersOf(r actuator.Remembered, now time.Time) []WorkloadBreaker {
	out := []WorkloadBreaker{}
	for _, l := range r.Loops {
		out = append(out, WorkloadBreaker{l, l.Until.After(now)})
	}
	return out
}

func countMoves(moves []actuator.Move, limits *policy.Limits, now time.Time) moveCount {
	c := moveCount{Nodes: map[string]int{}, Namespaces: map[string]int{}}
	if limits != nil {
		c.Window = limits.Over().String()
		if limits.Any() {
			c.Limits = &moveLimits{limits.Total, limits.PerNode, limits.PerNamespace}
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

// LeaderStatus is who has a role.
type LeaderStatus struct {
	Lease  string    `json:"lease"`
	Holder string    `json:"holder"` // empty: nobody
	Since  time.Time `json:"since,omitzero"`
}

// readLeaders reads the leases.
func readLeaders(ctx context.Context, s settings.Settings) ([]LeaderStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client, err := settings.NewClient(s)
	if err != nil {
		return nil, err
	}
	var out []LeaderStatus
	for _, role := range []string{settings.WatcherLease, settings.ActuatorLease, settings.MaintenanceLease} {
		l := LeaderStatus{Lease: s.LeaseName(role)}
		lease, err := client.CoordinationV1().Leases(s.LeaseNamespace).Get(ctx, l.Lease, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("lease %s/%s: %w", s.LeaseNamespace, l.Lease, err)
		}
		if err == nil {
			if l.Holder = settings.InTime(lease.Spec); l.Holder != "" && lease.Spec.AcquireTime != nil {
				l.Since = lease.Spec.AcquireTime.UTC()
			}
		}
		out = append(out, l)
	}
	return out, nil
}

func (st Status) brief() string {
	holding := 0
	for _, b := range st.WorkloadBreakers {
		if b.Holds {
			holding++
		}
	}
	breakers, verb := cmdutil.Count(holding, "workload circuit breaker"), "holds"
	if holding > 1 {
		verb = "hold"
	}
	storm := "cluster circuit breaker closed"
	if len(st.Storm) > 0 {
		storm = "cluster circuit breaker OPEN since " + st.Storm[0].Since.Local().Format(time.TimeOnly) + ": nothing is moved"
	}
	return fmt.Sprintf("%s in flight, %s %s, %s", cmdutil.Count(len(st.MovesInFlight), "move"), breakers, verb, storm)
}

// deferredWithin is how far back verdicts are read to find out what is deferred: twice the time in which everything is
// evaluated anew by default, when what is still to move gets another verdict.
const deferredWithin = time.Hour

// DeferredPod is a pod of which the last verdict is that it is not moved now.
type DeferredPod struct {
	Pod      schemas.PodRef     `json:"pod"`
	Node     string             `json:"node"`
	Profile  string             `json:"profile"`
	Strategy string             `json:"strategy"`
	Reason   schemas.ReasonCode `json:"reason"`
	Message  string             `json:"message"`
	// Since is the first of the verdicts in a row that say so, and Last the last one; Times is how many there are.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Times int       `json:"times"`
	// Again is when what holds it is over at the earliest. Zero: that is not known.
	Again time.Time `json:"again,omitzero"`
}

// intentKey tells the intents of strategies about pods apart.
type intentKey struct {
	pod               types.UID
	profile, strategy string
}

// Deferrals are the pods that are deferred, by the verdicts that it is told, oldest first.
type Deferrals map[intentKey]DeferredPod

// Verdict takes a verdict in.
func (d Deferrals) Verdict(v schemas.Verdict, at time.Time) {
	key := intentKey{v.Intent.Pod.UID, v.Profile, v.Strategy}
	switch {
	case v.Outcome == schemas.Deferred:
		p, before := d[key]
		if !before {
			p.Since = at
		}
		p.Pod, p.Node, p.Profile, p.Strategy = v.Intent.Pod, v.Intent.Node, v.Profile, v.Strategy
		p.Reason, p.Message, p.Last, p.Again = v.Reason, v.Message, at, v.Again
		p.Times++
		d[key] = p
	case v.Outcome.Moves() && !v.DryRun:
		for other := range d {
			if other.pod == key.pod {
				delete(d, other)
			}
		}
	default:
		delete(d, key)
	}
}

// List is all of them, those that have waited longest first.
func (d Deferrals) List() []DeferredPod {
	all := []DeferredPod{}
	for _, p := range d {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b DeferredPod) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Pod.String(), b.Pod.String()), cmp.Compare(a.Strategy, b.Strategy),
			cmp.Compare(a.Profile, b.Profile))
	})
	return all
}

func readDeferred(ctx context.Context, b *bus.Bus, now time.Time) ([]DeferredPod, error) {
	d := Deferrals{}
	query := bus.Query{Channels: []string{bus.VerdictChannels}, Since: now.Add(-deferredWithin)}
	err := b.Events(ctx, query, func(e schemas.Event) error {
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			d.Verdict(v, e.Time)
		}
		return nil
	})
	return d.List(), err
}

// OpenRequest is a request that is not finished.
type OpenRequest struct {
	schemas.Request
	Since time.Time `json:"since"` // when the bus stored it
}

func readRequests(ctx context.Context, b *bus.Bus) ([]OpenRequest, error) {
	open, err := b.OpenRequests(ctx)
	all := []OpenRequest{}
	for _, o := range open {
		if r, err := schemas.Decode[schemas.Request](o.Event); err == nil {
			all = append(all, OpenRequest{r, o.Stored.UTC()})
		}
	}
	return all, err
}

func (st *Status) readBus(ctx context.Context, b *bus.Bus) error {
	var err error
	if st.Deferred, err = readDeferred(ctx, b, st.Time); err != nil {
		return err
	}
	if st.Requests, err = readRequests(ctx, b); err != nil {
		return err
	}
	if st.Maintenances, err = readMaintenances(ctx, b); err != nil {
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

// almostFull is the share of its space in percent from which a stream counts as full, as in the alert RehomeStreamFull.
const almostFull = 90

// Reached names each limit that is reached: limits on moves for which pods are deferred, and streams without space. The history is
// always full.
func (st Status) Reached() (limits []string) {
	waiting := map[schemas.ReasonCode]int{}
	for _, p := range st.Deferred {
		switch p.Reason {
		case schemas.ReasonLimitNode, schemas.ReasonLimitNamespace, schemas.ReasonLimitTotal, schemas.ReasonMovingNode,
			schemas.ReasonMovingNamespace, schemas.ReasonMovingWorkload, schemas.ReasonMovingTotal, schemas.ReasonWorkloadUnavailable,
			schemas.ReasonNamespaceRate:
			waiting[p.Reason]++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(waiting)) {
		limits = append(limits, fmt.Sprintf("%s defers %s", reason, cmdutil.Count(waiting[reason], "pod")))
	}
	for _, s := range st.Streams {
		isFull := func(used uint64, most int64) bool { return most > 0 && used*100 >= uint64(most)*almostFull }
		switch {
		case s.Name == bus.StreamEvents:
		case isFull(s.Bytes, s.MaxBytes):
			limits = append(limits, fmt.Sprintf("stream %s uses %s of %s", s.Name, cmdutil.SizeOf(s.Bytes), cmdutil.SizeOf(uint64(s.MaxBytes))))
		case isFull(s.Messages, s.MaxMessages):
			limits = append(limits, fmt.Sprintf("stream %s has %d of %d messages", s.Name, s.Messages, s.MaxMessages))
		}
	}
	return limits
}
