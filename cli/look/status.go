package look

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func StatusCommand() *cobra.Command {
	return command.TableOrJSON(&cobra.Command{
		Use:   "status",
		Short: "Show what is on the move, what is deferred and why, who leads, and how far the work has come",
		Long: "Show what the actuator remembers: the moves in flight and what they wait for, the moves that count against\n" +
			"limits, the loop breakers and the storm brake; who leads; what is deferred, by the last verdicts of the past hour;\n" +
			"open requests; the maintenances of nodes that were asked for on the bus; dead letters; and the streams, with how\n" +
			"many scopes of each strategy wait, and how many handlers wait for one. It is read from the bus; only who\n" +
			"leads is asked of the cluster, and left out when that cannot be reached. With a policy, moves are counted over its\n" +
			"window, beside its limits, else they are shown by age.",
		Example: "  rehome status\n" +
			"  rehome status --policy policy.yaml    # moves are counted over the window of the policy\n" +
			"  rehome status -o json                 # the same as one object",
		Args: command.NoArguments,
	}, showStatus)
}

func showStatus(c *cobra.Command, s settings.Settings, asJSON bool) error {
	var limits *policy.Limits
	if s.Policy != "" {
		p, _, err := settings.ReadPolicy(s.Policy)
		if err != nil {
			return err
		}
		limits = &p.Limits
	}
	b, err := command.Connect(s, "rehome-status")
	if err != nil {
		return err
	}
	defer b.Close()
	remembered, unreadable, err := readLedger(c.Context(), b.Ledger())
	if err != nil {
		return err
	}
	now := time.Now()
	st := StatusOf(remembered, limits, now)
	for _, err := range unreadable {
		st.Unreadable = append(st.Unreadable, err.Error())
	}
	if err := st.readBus(c.Context(), b); err != nil {
		return command.NoBus(err)
	}
	if st.Leaders, err = readLeaders(c.Context(), s); err != nil {
		st.NoLeaders = err.Error()
	}
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(st)
	}
	return st.Write(c.OutOrStdout())
}

// readLedger reads what the actuator remembers.
func readLedger(ctx context.Context, l bus.Ledger) (actuator.Remembered, []error, error) {
	entries, err := l.Entries(ctx)
	if err != nil {
		return actuator.Remembered{}, nil, command.NoBus(err)
	}
	remembered, unreadable := actuator.ReadLedger(entries)
	return remembered, unreadable, nil
}

// Status is what `rehome status` shows, and its JSON.
type Status struct {
	Time          time.Time                 `json:"time"`
	MovesInFlight []actuator.Move           `json:"movesInFlight"`
	Counted       moveCount                 `json:"counted"`
	LoopBreakers  []LoopBreaker             `json:"loopBreakers"`
	Storm         []actuator.StormCondition `json:"storm"` // empty: the storm brake is closed
	Leaders       []LeaderStatus            `json:"leaders,omitempty"`
	NoLeaders     string                    `json:"leadersUnknown,omitempty"` // why Leaders are not known
	Deferred      []DeferredPod             `json:"deferred"`
	Requests      []OpenRequest             `json:"requests"`
	Maintenances  []MaintenanceStatus       `json:"maintenances"`
	DeadLetters   map[string]uint64         `json:"deadLetters"` // by the stream that they were in
	Streams       []bus.StreamStatus        `json:"streams"`
	Unreadable    []string                  `json:"unreadable,omitempty"`
}

// moveCount is how many moves count against limits. Those that are not accepted yet do.
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

// moveLimits are how many pods a policy lets be moved in its window. nil: any number.
type moveLimits struct {
	Total        *uint `json:"total,omitempty"`
	PerNode      *uint `json:"perNode,omitempty"`
	PerNamespace *uint `json:"perNamespace,omitempty"`
}

// ages are the steps of [moveCount.Ages]: up to a minute, up to five, up to an hour, and older.
func ages() []time.Duration { return []time.Duration{time.Minute, 5 * time.Minute, time.Hour} }

// LoopBreaker is a loop breaker, and whether it holds now.
type LoopBreaker struct {
	actuator.LoopBreaker
	Holds bool `json:"holds"`
}

// StatusOf is the status at the time now. Without limits, moves are counted by age.
func StatusOf(r actuator.Remembered, limits *policy.Limits, now time.Time) Status {
	st := Status{
		Time: now.UTC(), MovesInFlight: []actuator.Move{}, Counted: countMoves(r.Moves, limits, now),
		LoopBreakers: breakersOf(r, now), Storm: []actuator.StormCondition{}, Deferred: []DeferredPod{}, Requests: []OpenRequest{},
		Maintenances: []MaintenanceStatus{},
		DeadLetters:  map[string]uint64{}, Streams: []bus.StreamStatus{},
	}
	st.Storm = append(st.Storm, r.Storm...)
	for _, m := range r.Moves {
		if m.InFlight() {
			st.MovesInFlight = append(st.MovesInFlight, m)
		}
	}
	return st
}

func breakersOf(r actuator.Remembered, now time.Time) []LoopBreaker {
	out := []LoopBreaker{}
	for _, l := range r.Loops {
		out = append(out, LoopBreaker{l, l.Until.After(now)})
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

// step is the place of an age among the ages.
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

// readLeaders asks the cluster who leads, for three seconds at most.
func readLeaders(ctx context.Context, s settings.Settings) ([]LeaderStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client, err := settings.NewClient(s)
	if err != nil {
		return nil, err
	}
	var out []LeaderStatus
	for _, name := range []string{settings.WatcherLease, settings.ActuatorLease, settings.MaintenanceLease} {
		l := LeaderStatus{Lease: name}
		lease, err := client.CoordinationV1().Leases(s.LeaseNamespace()).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("lease %s/%s: %w", s.LeaseNamespace(), name, err)
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

// brief is the line that says the most important thing.
func (st Status) brief() string {
	holding := 0
	for _, l := range st.LoopBreakers {
		if l.Holds {
			holding++
		}
	}
	brakes, verb := command.Count(holding, "loop breaker"), "holds"
	if holding > 1 {
		verb = "hold"
	}
	storm := "storm brake closed"
	if len(st.Storm) > 0 {
		storm = "storm brake OPEN since " + st.Storm[0].Since.Local().Format(time.TimeOnly) + ": nothing is moved"
	}
	return fmt.Sprintf("%s in flight, %s %s, %s", command.Count(len(st.MovesInFlight), "move"), brakes, verb, storm)
}

// nameOfWorkload is a workload as people write it: its UID where the name is not known, none where there is none.
func nameOfWorkload(ref *schemas.ObjectRef, uid string) string {
	switch {
	case ref != nil:
		return ref.String()
	case uid != "":
		return "UID " + uid
	}
	return "none"
}
