package cmdutil

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/app"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
)

// sources reads the policy, if there is one, and makes a client of the cluster. Only a wrong policy is an error.
func (o onBus) sources() (from explain.Sources, err error) {
	from.Bus = o.bus
	s := o.settings
	if s.Policy != "" {
		p, _, err := settings.ReadPolicy(s.Policy)
		if err != nil {
			return from, err
		}
		from.Policy = &p
	}
	client, err := settings.NewClient(s)
	if err == nil {
		from.Cluster = &apiServer{client, map[types.UID]*schemas.ObjectRef{}}
	}
	from.NoCluster = err
	return from, nil
}

// apiServer reads the cluster from the API server. It implements [explain.Cluster].
type apiServer struct {
	client     kubernetes.Interface
	deployment map[types.UID]*schemas.ObjectRef // of each ReplicaSet that was read
}

// podWithin limits the wait for the cluster, since the history is useful without it.
const podWithin = 5 * time.Second

func (a *apiServer) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	pod, err := a.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return pod, nil
}

func (a *apiServer) Workload(ctx context.Context, pod *corev1.Pod) (*schemas.ObjectRef, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	of := &schemas.ObjectRef{Kind: owner.Kind, Namespace: pod.Namespace, Name: owner.Name, UID: owner.UID}
	if owner.Kind != "ReplicaSet" {
		return of, nil
	}
	if known := a.deployment[owner.UID]; known != nil {
		return known, nil
	}
	set, err := a.client.AppsV1().ReplicaSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("replicaset %s/%s: %w", pod.Namespace, owner.Name, err)
	}
	if behind := metav1.GetControllerOf(set); err == nil && behind != nil {
		of.Kind, of.Name, of.UID = behind.Kind, behind.Name, behind.UID
	}
	a.deployment[owner.UID] = of
	return of, nil
}

func (a *apiServer) Pods(ctx context.Context, namespace string) (all []*corev1.Pod, err error) {
	list, err := a.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

func (a *apiServer) Budgets(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	list, err := a.client.PolicyV1().PodDisruptionBudgets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (a *apiServer) Round(ctx context.Context, p policy.Policy) (simulate.Config, []metav1.Object, error) {
	return app.ReadRound(ctx, a.client, p)
}
