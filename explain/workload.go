package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/status"
)

// WorkloadExplanation describes a workload: the nodes of its pods, the nodes for their replacements, and the limits that apply.
type WorkloadExplanation struct {
	Time     time.Time         `json:"time"`
	Workload schemas.ObjectRef `json:"workload"`
	Pods     []WorkloadPod     `json:"pods"`
	// Limits are the limits of the policy that a move of a pod would count against.
	Limits []LimitUse `json:"limits"`
	Held   Held       `json:"held"`
	// Unknown lists the missing parts and the reasons.
	Unknown []Unknown `json:"unknown,omitempty"`
}

// WorkloadPod is a pod of a workload.
type WorkloadPod struct {
	Name  string `json:"name"`
	Node  string `json:"node,omitempty"`
	Phase string `json:"phase"`
	// Replacement is where the replacement would run now.
	Replacement string           `json:"replacement,omitempty"`
	Guards      []simulate.Guard `json:"guards,omitempty"`
	Budgets     []BudgetOver     `json:"budgets,omitempty"`
}

// LimitUse is a limit and its current use.
type LimitUse struct {
	Limit string `json:"limit"`
	Most  uint   `json:"most"`
	Used  int    `json:"used"`
}

// Workload explains a workload with pods in the cluster. It fails with [ErrNothing] if it has none.
func Workload(ctx context.Context, s Sources, kind, namespace, name string) (WorkloadExplanation, error) {
	x := WorkloadExplanation{Time: time.Now().UTC(), Pods: []WorkloadPod{}, Limits: []LimitUse{}}
	if s.Cluster == nil {
		return x, s.NoCluster
	}
	uids, err := x.findPods(ctx, s, kind, namespace, name)
	if err != nil {
		return x, err
	}
	if err := x.simulate(ctx, s, uids); err != nil {
		x.Unknown = append(x.Unknown, Unknown{PartOpinions, err.Error()})
	}
	if ledger, _, err := status.Ledger(ctx, s.Bus); err != nil {
		x.Unknown = append(x.Unknown, Unknown{PartHeld, err.Error()})
	} else {
		x.hold(ledger, s)
	}
	return x, nil
}

// findPods finds the workload of the pods.
func (x *WorkloadExplanation) findPods(ctx context.Context, s Sources, kind, namespace, name string) ([]types.UID, error) {
	pods, err := s.Cluster.Pods(ctx, namespace)
	if err != nil {
		return nil, err
	}
	budgets, err := s.Cluster.Budgets(ctx, namespace)
	if err != nil {
		x.Unknown = append(x.Unknown, Unknown{PartBudgets, err.Error()})
	}
	var uids []types.UID
	for _, p := range pods {
		of, err := s.Cluster.Workload(ctx, p)
		if err != nil {
			return nil, err
		}
		if of == nil || !strings.EqualFold(of.Kind, kind) || of.Name != name {
			continue
		}
		x.Workload = *of
		uids = append(uids, p.UID)
		x.Pods = append(x.Pods, WorkloadPod{
			Name: p.Name, Node: p.Spec.NodeName, Phase: string(p.Status.Phase), Budgets: budgetsOver(p, budgets),
		})
	}
	if uids == nil {
		return nil, fmt.Errorf("%s %s/%s: %w: it has no pods", kind, namespace, name, ErrNothing)
	}
	return uids, nil
}

// simulate evaluates the rules that protect the pods, and predicts where their replacements would run.
func (x *WorkloadExplanation) simulate(ctx context.Context, s Sources, uids []types.UID) error {
	round, objects, err := s.round(ctx, x.Time)
	if err != nil {
		return err
	}
	about, err := simulate.Places(round, objects, uids)
	for i, a := range about {
		x.Pods[i].Guards, x.Pods[i].Replacement = a.Guards, a.Replacement
	}
	return err
}

// hold selects the ledger records about the workload, and counts the moves that limits apply to.
func (x *WorkloadExplanation) hold(ledger actuator.Remembered, s Sources) {
	x.Held.Storm = ledger.Storm
	for _, b := range status.WorkloadBreakers(ledger, x.Time) {
		if b.Workload == x.Workload.UID && b.Holds {
			x.Held.WorkloadBreakers = append(x.Held.WorkloadBreakers, b)
		}
	}
	inFlight := status.InFlight(ledger)
	inNamespace := 0
	for _, m := range inFlight {
		if m.Pod.Namespace == x.Workload.Namespace {
			inNamespace++
		}
		if m.Workload != nil && m.Workload.UID == x.Workload.UID {
			x.Held.Moves = append(x.Held.Moves, m)
		}
	}
	if s.Policy == nil {
		return
	}
	limits := s.Policy.Limits
	counted := status.Of(ledger, &limits, x.Time).Counted
	for _, l := range []struct {
		text string
		most *uint
		used int
	}{
		{"moves of the workload in flight", limits.InFlight.PerWorkload, len(x.Held.Moves)},
		{"moves of the namespace in flight", limits.InFlight.PerNamespace, inNamespace},
		{"moves in flight", limits.InFlight.Total, len(inFlight)},
		{"moves of the namespace in " + limits.Over().String(), limits.PerNamespace, counted.Namespaces[x.Workload.Namespace]},
		{"moves in " + limits.Over().String(), limits.Total, counted.Total},
	} {
		if l.most != nil {
			x.Limits = append(x.Limits, LimitUse{l.text, *l.most, l.used})
		}
	}
}
