package explain

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/status"
)

// Cluster is what explanations read of the cluster.
type Cluster interface {
	// Pod returns nil if there is no such pod.
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Workload returns the controller of a pod, or the Deployment behind its ReplicaSet; nil: there is none.
	Workload(ctx context.Context, pod *corev1.Pod) (*schemas.ObjectRef, error)
	// Pods and Budgets list those of a namespace.
	Pods(ctx context.Context, namespace string) ([]*corev1.Pod, error)
	Budgets(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error)
	// Round returns what a simulation of the policy needs. The objects are the caller's.
	Round(ctx context.Context, p policy.Policy) (simulate.Config, []metav1.Object, error)
}

// Sources are where explanations come from.
type Sources struct {
	// Cluster may be nil. Then NoCluster says why.
	Cluster   Cluster
	NoCluster error
	// Policy may be nil: nothing evaluates the cluster.
	Policy *policy.Policy
	Bus    *bus.Bus
}

// ErrNoPolicy is the error of parts that need a policy.
var ErrNoPolicy = errors.New("no policy: name a file with --policy or REHOME_POLICY")

// Unknown is a part of an explanation that is missing, and why.
type Unknown struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Held is what the actuator remembers, and what it has told, that keeps a pod where it is.
type Held struct {
	WorkloadBreakers []status.WorkloadBreaker  `json:"workloadBreakers,omitempty"` // of its workload on its node
	Storm            []actuator.StormCondition `json:"storm,omitempty"`
	Moves            []actuator.Move           `json:"moves,omitempty"` // in flight, of its workload or its own
	// Maintenances want it off its node and cannot move it.
	Maintenances []Block `json:"maintenances,omitempty"`
}

// BudgetOver is a PodDisruptionBudget that selects the pod.
type BudgetOver struct {
	Name string `json:"name"`
	// Allowed is how many disruptions it allows now, and Message why it allows none.
	Allowed int32  `json:"allowed"`
	Message string `json:"message,omitempty"`
}

func budgetsOver(pod *corev1.Pod, all []policyv1.PodDisruptionBudget) (over []BudgetOver) {
	for _, b := range eviction.Matching(pod, all) {
		o := BudgetOver{Name: b.Name, Allowed: b.Status.DisruptionsAllowed}
		if b.Status.ObservedGeneration < b.Generation {
			o.Allowed = 0
		}
		if o.Allowed <= 0 {
			_, o.Message = eviction.Blockers([]policyv1.PodDisruptionBudget{b}, "")
		}
		over = append(over, o)
	}
	return over
}

// SeveralBudgets is why the API server evicts no pod with more than one budget.
const SeveralBudgets = "more than one budget is over it: the API server evicts no such pod"

// round returns what a simulation at a time needs.
func (s Sources) round(ctx context.Context, now time.Time) (simulate.Config, []metav1.Object, error) {
	if s.Policy == nil {
		return simulate.Config{}, nil, ErrNoPolicy
	}
	if s.Cluster == nil {
		return simulate.Config{}, nil, s.NoCluster
	}
	round, objects, err := s.Cluster.Round(ctx, *s.Policy)
	round.Now = func() time.Time { return now }
	return round, objects, err
}

func (s Sources) read(ctx context.Context, channels []string, since time.Time, handle func(schemas.Event) error) error {
	return s.Bus.Events(ctx, bus.Query{Channels: channels, Since: since}, handle)
}
