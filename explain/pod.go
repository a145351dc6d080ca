package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/status"
)

// Explanation describes a pod: its history, the strategies that would move it, and the rules that protect it.
type Explanation struct {
	Time time.Time `json:"time"`
	Pod  Subject   `json:"pod"`
	// History has every pod with this name, oldest first. nil means that the history is unknown.
	History []Life `json:"history,omitzero"`
	// Since is the start of the history that was read. Zero means the start of the stored history.
	Since time.Time `json:"since,omitzero"`
	// Opinions are the opinions of the strategies of the policy, in its order. Guards are the rules of each profile that protect
	// the pod.
	Opinions []simulate.Opinion `json:"opinions,omitempty"`
	Guards   []simulate.Guard   `json:"guards,omitempty"`
	// Replacement is where the replacement of the pod would run now.
	Replacement string       `json:"replacement,omitempty"`
	Budgets     []BudgetOver `json:"budgets,omitempty"`
	Held        Held         `json:"held"`
	// Unknown lists the missing parts and the reasons.
	Unknown []Unknown `json:"unknown,omitempty"`
}

// Subject is the current pod.
type Subject struct {
	schemas.PodRef
	// There reports that the pod is in the cluster. Absent means that this is unknown.
	There    *bool              `json:"there,omitempty"`
	Node     string             `json:"node,omitempty"`
	Phase    string             `json:"phase,omitempty"`
	Created  time.Time          `json:"created,omitzero"`
	Deleted  bool               `json:"deleted,omitempty"` // it is terminating
	Workload *schemas.ObjectRef `json:"workload,omitempty"`
}

func (x *Explanation) unknown(what string, err error) {
	x.Unknown = append(x.Unknown, Unknown{what, err.Error()})
}

// The parts of an explanation that can be missing.
const (
	PartHistory  = "history"
	PartPod      = "current pod"
	PartOpinions = "strategies and protections"
	PartWorkload = "workload"
	PartBudgets  = "disruption budgets"
	PartHeld     = "moves, breakers, and maintenances"
)

// ErrNothing is wrapped by the error about a pod, a node, or a workload that neither the bus nor the cluster knows.
var ErrNothing = errors.New("not found")

// Pod explains a pod from all sources. It fails if neither the bus nor the cluster is available, and with [ErrNothing] if neither
// knows the pod. since limits the history; the zero time means all of it.
func Pod(ctx context.Context, s Sources, namespace, name string, since time.Time) (Explanation, error) {
	x := Explanation{Time: time.Now().UTC(), Pod: Subject{PodRef: schemas.PodRef{Namespace: namespace, Name: name}}}
	if !since.IsZero() {
		x.Since = since.UTC()
	}
	noCluster := x.askCluster(ctx, s)
	noHistory := x.askBus(ctx, s)
	switch {
	case noCluster != nil && noHistory != nil:
		return x, errors.Join(noHistory, noCluster)
	case len(x.History) == 0 && (x.Pod.There == nil || !*x.Pod.There):
		return x, fmt.Errorf("pod %s/%s: %w: %s", namespace, name, ErrNothing, x.nothing())
	}
	return x, nil
}

// nothing returns the error about an unknown pod. It names the sources that were read.
func (x *Explanation) nothing() string {
	words := []string{}
	for _, u := range x.Unknown {
		if u.What == PartHistory || u.What == PartPod {
			words = append(words, u.Why)
		}
	}
	if x.Pod.There != nil {
		words = append(words, "it is not in the cluster")
	}
	if x.History != nil {
		words = append(words, "the history has no events about it")
	}
	return strings.Join(words, "; ")
}

// askBus reads the history and the ledger. Its error is the reason why there is no history.
func (x *Explanation) askBus(ctx context.Context, s Sources) error {
	query := Query{Namespace: x.Pod.Namespace, Name: x.Pod.Name, Since: x.Since, Node: x.Pod.Node}
	var err error
	if x.History, err = Read(ctx, s.read, query); err != nil {
		x.unknown(PartHistory, err)
		return err
	}
	if x.Pod.Node != "" {
		query.Since = time.Time{} // a record that blocks the pod may be older than since
		if x.Held.Maintenances, err = Blocks(ctx, s.read, query); err != nil {
			x.unknown(PartHeld, err)
			return nil
		}
	}
	remembered, _, err := status.Ledger(ctx, s.Bus)
	if err != nil {
		x.unknown(PartHeld, err)
		return nil
	}
	x.hold(remembered)
	return nil
}

// hold selects the ledger records about the pod.
func (x *Explanation) hold(r actuator.Remembered) {
	if x.Pod.UID == "" {
		return // the pod is gone or unknown, so no record blocks it
	}
	x.Held.Storm = r.Storm
	of := x.Pod.Workload
	for _, l := range status.WorkloadBreakers(r, x.Time) {
		if of != nil && l.Workload == of.UID && l.Node == x.Pod.Node && l.Holds {
			x.Held.WorkloadBreakers = append(x.Held.WorkloadBreakers, l)
		}
	}
	for _, m := range r.Moves {
		sibling := of != nil && m.Workload != nil && m.Workload.UID == of.UID
		if m.InFlight() && (m.Pod.UID == x.Pod.UID || sibling) {
			x.Held.Moves = append(x.Held.Moves, m)
		}
	}
}

// askCluster reads the pod from the cluster, and evaluates the strategies of the policy for it, if there is a policy. Its error
// is the reason why the cluster is unavailable.
func (x *Explanation) askCluster(ctx context.Context, s Sources) error {
	if s.Cluster == nil {
		x.unknown(PartPod, s.NoCluster)
		return s.NoCluster
	}
	pod, err := s.Cluster.Pod(ctx, x.Pod.Namespace, x.Pod.Name)
	if err != nil {
		err = fmt.Errorf("the cluster: %w", err)
		x.unknown(PartPod, err)
		return err
	}
	x.Pod.There = new(pod != nil)
	if pod == nil {
		return nil
	}
	x.Pod.UID, x.Pod.Node, x.Pod.Phase = pod.UID, pod.Spec.NodeName, string(pod.Status.Phase)
	x.Pod.Created, x.Pod.Deleted = pod.CreationTimestamp.UTC(), pod.DeletionTimestamp != nil
	if x.Pod.Workload, err = s.Cluster.Workload(ctx, pod); err != nil {
		x.unknown(PartWorkload, err)
	}
	budgets, err := s.Cluster.Budgets(ctx, pod.Namespace)
	if err != nil {
		x.unknown(PartBudgets, fmt.Errorf("poddisruptionbudgets of %s: %w", pod.Namespace, err))
	} else {
		x.Budgets = budgetsOver(pod, budgets)
	}
	if err := x.askStrategies(ctx, s); err != nil {
		x.unknown(PartOpinions, err)
	}
	return nil
}

// askStrategies evaluates every strategy of the policy for the current pod.
func (x *Explanation) askStrategies(ctx context.Context, s Sources) error {
	round, objects, err := s.round(ctx, x.Time)
	if err != nil {
		return err
	}
	about, err := simulate.Opinions(round, objects, x.Pod.UID)
	x.Opinions, x.Guards, x.Replacement = about.Opinions, about.Guards, about.Replacement
	return err
}
