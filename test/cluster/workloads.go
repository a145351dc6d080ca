package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AddNamespace creates a namespace, unless it exists, and waits until pods can be created in it.
func (c *Cluster) AddNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		err = c.waitDefaultAccount(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("add namespace %s: %w", name, err)
	}
	return nil
}

// AddDeployment creates a Deployment, and its namespace if it is missing. Its pods have the label app=NAME, one container "main"
// without requests, and stop immediately. The mutate functions may change all of this before the creation. AddDeployment does not
// wait for the pods: see [Cluster.WaitReady].
func (c *Cluster) AddDeployment(ctx context.Context, namespace, name string, replicas int, mutate ...func(*appsv1.Deployment)) (*appsv1.Deployment, error) {
	deployment := newDeployment(namespace, name, int32(replicas))
	for _, change := range mutate {
		change(deployment)
	}
	if err := c.AddNamespace(ctx, namespace); err != nil {
		return nil, fmt.Errorf("add deployment %s/%s: %w", namespace, name, err)
	}
	made, err := c.client.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("add deployment %s/%s: %w", namespace, name, err)
	}
	return made, nil
}

func newDeployment(namespace, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers:                    []corev1.Container{{Name: "main", Image: "none"}},
					TerminationGracePeriodSeconds: new(int64(0)),
				},
			},
		},
	}
}

// WaitReady waits until the Deployment has exactly its desired replicas, all Ready and of the newest template. An error contains
// the scheduler's message about a pending pod. WaitReady also reads the pods, because the status of a Deployment lags behind
// them. It ignores pods that terminate or have ended.
func (c *Cluster) WaitReady(ctx context.Context, namespace, name string) error {
	if err := c.waitReady(ctx, namespace, name); err != nil {
		return fmt.Errorf("wait for deployment %s/%s: %w%s", namespace, name, err, c.schedulingTrouble(namespace))
	}
	return nil
}

func (c *Cluster) waitReady(ctx context.Context, namespace, name string) error {
	ctx, cancel := c.bound(ctx, waitTimeout)
	defer cancel()
	q := query{client: c.client.AppsV1().RESTClient(), resource: "deployments", namespace: namespace, name: name}
	var deployment *appsv1.Deployment
	for {
		err := until(ctx, c, q, func(found objects[*appsv1.Deployment]) string {
			for _, deployment = range found {
				return unready(deployment)
			}
			return "the Deployment itself"
		})
		if err != nil {
			return err
		}
		missing, err := c.unreadyPods(ctx, deployment)
		if err == nil && missing == "" {
			return nil
		}
		if err != nil { // For example while the API server restarts.
			missing = err.Error()
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return fmt.Errorf("%w; still missing: %s", context.Cause(ctx), missing)
		}
	}
}

// unreadyPods describes the pods of a Deployment that are not ready.
func (c *Cluster) unreadyPods(ctx context.Context, deployment *appsv1.Deployment) (missing string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return "", err
	}
	list, err := c.client.CoreV1().Pods(deployment.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return "", err
	}
	var there, ready int32
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		there++
		if pod.Spec.NodeName != "" && IsReady(pod) {
			ready++
		}
	}
	if want := *deployment.Spec.Replicas; there != want || ready != want {
		return fmt.Sprintf("%d Ready pods; there are %d, %d Ready", want, there, ready), nil
	}
	return "", nil
}

// unready describes why a Deployment is not ready.
func unready(deployment *appsv1.Deployment) string {
	want, status := *deployment.Spec.Replicas, deployment.Status
	observed := status.ObservedGeneration >= deployment.Generation
	if observed && status.Replicas == want && status.UpdatedReplicas == want && status.ReadyReplicas == want {
		return ""
	}
	return fmt.Sprintf("%d Ready replicas; there are %d, %d of them updated, %d Ready",
		want, status.Replicas, status.UpdatedReplicas, status.ReadyReplicas)
}

// schedulingTrouble describes an unschedulable pod of the namespace.
func (c *Cluster) schedulingTrouble(namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), troubleTimeout)
	defer cancel()
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		return ""
	}
	for _, pod := range pods.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return fmt.Sprintf("; pod %s: %s", pod.Name, condition.Message)
			}
		}
	}
	return ""
}

// WaitPods waits until done returns true for the pods in a namespace that match the selector, such as "app=cart,tier=web"; the
// empty selector matches all. It returns the pods by name. It calls done with the existing pods immediately and after every
// change, and with an empty slice if there are none. done must not change the pods. what ends the sentence of the error: "wait
// for pods in shop: WHAT".
func (c *Cluster) WaitPods(ctx context.Context, namespace, selector, what string, done func([]*corev1.Pod) bool) ([]*corev1.Pod, error) {
	q := query{client: c.client.CoreV1().RESTClient(), resource: "pods", namespace: namespace, labels: selector}
	var pods []*corev1.Pod
	err := until(ctx, c, q, func(found objects[*corev1.Pod]) string {
		pods = make([]*corev1.Pod, 0, len(found))
		for _, pod := range found {
			pods = append(pods, pod)
		}
		slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
		if done(pods) {
			return ""
		}
		return fmt.Sprintf("%s; there are %d pods", what, len(pods))
	})
	if err != nil {
		return nil, fmt.Errorf("wait for pods in %s: %w", namespace, err)
	}
	return pods, nil
}

// AddBudget creates a PodDisruptionBudget for the pods with the label app=APP, and waits until the controller has counted them. At
// least one of them must be Ready.
func (c *Cluster) AddBudget(
	ctx context.Context, namespace, name, app string, spec policyv1.PodDisruptionBudgetSpec,
) (budget *policyv1.PodDisruptionBudget, err error) {
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	budget = &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err = c.client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, budget, metav1.CreateOptions{}); err == nil {
		q := query{client: c.client.PolicyV1().RESTClient(), resource: "poddisruptionbudgets", namespace: namespace, name: name}
		err = until(ctx, c, q, func(found objects[*policyv1.PodDisruptionBudget]) string {
			for _, budget = range found {
				if budget.Status.ObservedGeneration == budget.Generation && budget.Status.CurrentHealthy > 0 {
					return ""
				}
			}
			return "the count of its pods"
		})
	}
	if err != nil {
		return nil, fmt.Errorf("add budget %s/%s: %w", namespace, name, err)
	}
	return budget, nil
}

// IsReady reports whether a pod is Ready and not terminating.
func IsReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
