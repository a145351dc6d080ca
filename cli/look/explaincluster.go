package look

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/watcher"
)

// podWithin is how long the cluster may take to say whether there is a pod: without a cluster the rest is still shown.
const podWithin = 5 * time.Second

// askCluster looks at the pod in the cluster, and asks the strategies of the policy, if there is one, about it. The error
// says why the cluster could not be asked.
func (x *Explanation) askCluster(ctx context.Context, s settings.Settings, p *policy.Policy) error {
	client, err := settings.NewClient(s)
	if err != nil {
		x.unknown(partPod, err)
		return err
	}
	pod, err := podIn(ctx, client, x.Pod.Namespace, x.Pod.Name)
	if err != nil {
		err = fmt.Errorf("the cluster: %w", err)
		x.unknown(partPod, err)
		return err
	}
	x.Pod.There = new(pod != nil)
	if pod == nil {
		return nil
	}
	x.Pod.UID, x.Pod.Node, x.Pod.Phase = pod.UID, pod.Spec.NodeName, string(pod.Status.Phase)
	x.Pod.Created, x.Pod.Deleted = pod.CreationTimestamp.UTC(), pod.DeletionTimestamp != nil
	if x.Pod.Workload, err = workloadOf(ctx, client, pod); err != nil {
		x.unknown(PartWorkload, err)
	}
	if x.Budgets, err = budgetsOver(ctx, client, pod); err != nil {
		x.unknown(partBudgets, err)
	}
	if err := x.askStrategies(ctx, client, p); err != nil {
		x.unknown(PartOpinions, err)
	}
	return nil
}

// podIn is the pod in the cluster, nil if there is none.
func podIn(ctx context.Context, client kubernetes.Interface, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return pod, nil
}

// workloadOf is what the pod belongs to: its controller, or the Deployment behind its ReplicaSet. nil: nothing.
func workloadOf(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (*schemas.ObjectRef, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	if owner.Kind == "ReplicaSet" {
		set, err := client.AppsV1().ReplicaSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("replicaset %s/%s: %w", pod.Namespace, owner.Name, err)
		}
		if behind := metav1.GetControllerOf(set); err == nil && behind != nil {
			owner = behind
		}
	}
	return &schemas.ObjectRef{Kind: owner.Kind, Namespace: pod.Namespace, Name: owner.Name, UID: owner.UID}, nil
}

// BudgetOver is a PodDisruptionBudget that selects the pod.
type BudgetOver struct {
	Name string `json:"name"`
	// Allowed is how many disruptions it allows now, and Message why it allows none.
	Allowed int32  `json:"allowed"`
	Message string `json:"message,omitempty"`
}

func budgetsOver(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) ([]BudgetOver, error) {
	all, err := client.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("poddisruptionbudgets of %s: %w", pod.Namespace, err)
	}
	var over []BudgetOver
	for _, b := range eviction.Matching(pod, all.Items) {
		o := BudgetOver{Name: b.Name, Allowed: b.Status.DisruptionsAllowed}
		if b.Status.ObservedGeneration < b.Generation {
			o.Allowed = 0
		}
		if o.Allowed <= 0 {
			_, o.Message = eviction.Blockers([]policyv1.PodDisruptionBudget{b}, "")
		}
		over = append(over, o)
	}
	return over, nil
}

// errNoPolicy says that nobody can be asked.
var errNoPolicy = errors.New("no policy: name a file with --policy or REHOME_POLICY")

// askStrategies asks every strategy of the policy about the pod as it is now.
func (x *Explanation) askStrategies(ctx context.Context, client kubernetes.Interface, p *policy.Policy) error {
	if p == nil {
		return errNoPolicy
	}
	objects, err := settings.ReadCluster(ctx, client)
	if err != nil {
		return err
	}
	var loads simulate.Loads
	if loads.Nodes, loads.Pods, err = watcher.Measure(ctx, client, *p); err != nil {
		return err
	}
	x.Opinions, x.Guards, err = simulate.Opinions(simulate.Config{
		Policy: *p, Functions: functions.All(), Now: func() time.Time { return x.Time }, TwoNodes: true, Loads: loads,
	}, objects, x.Pod.UID)
	return err
}
