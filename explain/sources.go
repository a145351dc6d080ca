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
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/status"
)

// Cluster is the access of explanations to the cluster.
type Cluster interface {
	// Pod returns a pod, or nil if it does not exist.
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// Workload returns the controller of a pod, or the Deployment that owns its ReplicaSet, or nil if there is none.
	Workload(ctx context.Context, pod *corev1.Pod) (*schemas.ObjectRef, error)
	// Pods and Budgets return the pods and the PodDisruptionBudgets of a namespace.
	Pods(ctx context.Context, namespace string) ([]*corev1.Pod, error)
	Budgets(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error)
	// Round returns the input of a simulation of the policy. The caller may change the objects.
	Round(ctx context.Context, p policy.Policy) (simulate.Config, []metav1.Object, error)
}

// Sources are the sources of an explanation.
type Sources struct {
	// Cluster may be nil, for the reason in NoCluster.
	Cluster   Cluster
	NoCluster error
	// Policy may be nil. Then no strategy is evaluated.
	Policy *policy.Policy
	Bus    *bus.Bus
}

// ErrNoPolicy is the error of parts that require a policy.
var ErrNoPolicy = errors.New("no policy: name a file with --policy or REHOME_POLICY")

// Unknown is a missing part of an explanation, and the reason.
type Unknown struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Held has the records of the actuator, and the events of maintenances, that keep the pod on its node.
type Held struct {
	WorkloadBreakers []status.WorkloadBreaker  `json:"workloadBreakers,omitempty"` // about its workload on its node
	Storm            []actuator.StormCondition `json:"storm,omitempty"`
	Moves            []actuator.Move           `json:"moves,omitempty"` // moves in flight of the pod or its workload
	// Maintenances lists maintenances that have to move the pod off its node and cannot.
	Maintenances []Block `json:"maintenances,omitempty"`
}

// BudgetOver is a PodDisruptionBudget that the API server checks before it evicts the pod.
type BudgetOver struct {
	Name string `json:"name"`
	// Allowed is the number of disruptions that the budget allows now. Message is the reason if it allows none.
	Allowed int32  `json:"allowed"`
	Message string `json:"message,omitempty"`
}

func budgetsOver(pod *corev1.Pod, all []policyv1.PodDisruptionBudget) (over []BudgetOver) {
	for _, b := range eviction.Checked(pod, all) {
		o := BudgetOver{Name: b.Name}
		if cluster.Allows(&b) {
			o.Allowed = b.Status.DisruptionsAllowed
		} else {
			_, o.Message = eviction.Blockers([]policyv1.PodDisruptionBudget{b}, "")
		}
		over = append(over, o)
	}
	return over
}

// SeveralBudgets is the reason why the API server does not evict a pod with more than one budget.
const SeveralBudgets = "more than one PodDisruptionBudget selects it, so the API server does not evict it"

// round returns the input of a simulation at a time.
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
