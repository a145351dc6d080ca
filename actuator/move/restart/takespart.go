package restart

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// candidate is a pod that its Deployment may move, with the input of all checks.
type candidate struct {
	Pod        *corev1.Pod
	Deployment *appsv1.Deployment
	Method     schemas.Method
	Policy     policy.Restart
	Now        time.Time
	// Budgets select the pod.
	Budgets []policyv1.PodDisruptionBudget
	// Claims are the claims of the pod's volumes, in order. nil means that the claim does not exist.
	Claims []*corev1.PersistentVolumeClaim
	// Elsewhere reports whether another node has room for the pod, and why not. nil means unknown.
	Elsewhere func(*corev1.Pod) (bool, string)
}

// find returns the pod with its Deployment. It returns nil if the pod has none or has ended, or if the Deployment does
// not take part. Missing objects are no error; objects that were recreated under the same name do not count.
func (m *Method) find(ctx context.Context, pod *corev1.Pod, p policy.Restart, now time.Time) (*candidate, error) {
	if p.Workloads == "" || schemas.Ended(pod) {
		return nil, nil
	}
	d, err := m.deploymentOf(ctx, pod)
	if d == nil || err != nil {
		return nil, err
	}
	namespace := ""
	if !known(d.Annotations[policy.RestartMark]) {
		object, err := get(ctx, m.cfg.Client.CoreV1().Namespaces(), "namespace", "", pod.Namespace)
		if err != nil {
			return nil, err
		}
		if object != nil {
			namespace = object.Annotations[policy.RestartMark]
		}
	}
	method, takes := takesPart(p, d.Annotations[policy.RestartMark], namespace)
	if !takes || replicasOf(d) < 1 {
		return nil, nil
	}
	if method == schemas.MethodSurge {
		scaled, err := m.scaled(ctx, d)
		if err != nil {
			return nil, err
		}
		if scaled { // the autoscaler would remove the additional replica
			method = schemas.MethodRestart
		}
	}
	return m.singleOrBlocked(ctx, &candidate{Pod: pod, Deployment: d, Method: method, Policy: p, Now: now})
}

// singleOrBlocked returns the candidate, with its budgets if they matter, if its Deployment has one replica, or if a budget
// forbids a disruption. Otherwise it returns nil.
func (m *Method) singleOrBlocked(ctx context.Context, c *candidate) (*candidate, error) {
	several := replicasOf(c.Deployment) > 1
	switch {
	case several && restarting(c.Deployment): // regardless of the disruptions allowed now, with one pod more
		return c, nil
	case several && !c.Policy.BlockedByBudget:
		return nil, nil
	case !several && c.Method == schemas.MethodRestart:
		return c, nil
	}
	budgets, err := m.cfg.Client.PolicyV1().PodDisruptionBudgets(c.Pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list budgets of namespace %s: %w", c.Pod.Namespace, err)
	}
	c.Budgets = eviction.Matching(c.Pod, budgets.Items)
	if several && !slices.ContainsFunc(c.Budgets, func(b policyv1.PodDisruptionBudget) bool {
		return b.Status.DisruptionsAllowed <= 0 || b.Status.ObservedGeneration < b.Generation // not counted yet
	}) {
		return nil, nil
	}
	return c, nil
}

// deploymentOf returns the Deployment that controls the ReplicaSet that controls the pod, or nil.
func (m *Method) deploymentOf(ctx context.Context, pod *corev1.Pod) (*appsv1.Deployment, error) {
	owner, owned := ownedBy(pod, "ReplicaSet")
	if !owned {
		return nil, nil
	}
	set, err := get(ctx, m.cfg.Client.AppsV1().ReplicaSets(pod.Namespace), "replicaset", pod.Namespace, owner.Name)
	if set == nil || set.UID != owner.UID {
		return nil, err
	}
	above, owned := ownedBy(set, "Deployment")
	if !owned {
		return nil, nil
	}
	d, err := m.deployment(ctx, pod.Namespace, above.Name)
	if d == nil || d.UID != above.UID {
		return nil, err
	}
	return d, nil
}

// deployment returns the Deployment of that name, or nil.
func (m *Method) deployment(ctx context.Context, namespace, name string) (*appsv1.Deployment, error) {
	return get(ctx, m.cfg.Client.AppsV1().Deployments(namespace), "deployment", namespace, name)
}

// getter is a client of one kind.
type getter[T any] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*T, error)
}

// get reads an object, or returns nil if there is none. Users choose some of the names, and the API server does not check all of
// them: no object has an invalid name.
func get[T any](ctx context.Context, by getter[T], kind, namespace, name string) (*T, error) {
	if len(content.IsPathSegmentName(name)) > 0 || name == "" {
		return nil, nil
	}
	object, err := by.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s %s: %w", kind, path.Join(namespace, name), err)
	}
	return object, nil
}

// scaled reports whether a HorizontalPodAutoscaler scales the Deployment.
func (m *Method) scaled(ctx context.Context, d *appsv1.Deployment) (bool, error) {
	list, err := m.cfg.Client.AutoscalingV2().HorizontalPodAutoscalers(d.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list autoscalers of namespace %s: %w", d.Namespace, err)
	}
	for _, a := range list.Items {
		target := a.Spec.ScaleTargetRef
		if inApps(target.APIVersion) && target.Kind == "Deployment" && target.Name == d.Name {
			return true, nil
		}
	}
	return false, nil
}

// complement reads the other objects that the checks need.
func (m *Method) complement(ctx context.Context, c *candidate) error {
	c.Elsewhere = m.cfg.Elsewhere
	namespace := c.Pod.Namespace
	for _, name := range claimNames(c.Pod) {
		claim, err := get(ctx, m.cfg.Client.CoreV1().PersistentVolumeClaims(namespace), "persistentvolumeclaim", namespace, name)
		if err != nil {
			return err
		}
		c.Claims = append(c.Claims, claim)
	}
	return nil
}

// ownedBy returns the controller of an object if it is of that kind in the group apps.
func ownedBy(object metav1.Object, kind string) (metav1.OwnerReference, bool) {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != kind {
		return metav1.OwnerReference{}, false
	}
	return *owner, inApps(owner.APIVersion)
}

func inApps(apiVersion string) bool {
	version, err := schema.ParseGroupVersion(apiVersion)
	return err == nil && version.Group == appsv1.GroupName
}

// takesPart reports whether a Deployment takes part, and its method, from its own annotation and the annotation of its
// namespace. An unknown value counts as none.
func takesPart(p policy.Restart, deployment, namespace string) (schemas.Method, bool) {
	mark := deployment
	if !known(mark) {
		mark = namespace
	}
	switch mark {
	case "false":
		return "", false
	case "true":
		return methodOf(p), p.Workloads != ""
	case "restart":
		return schemas.MethodRestart, p.Workloads != ""
	case "surge":
		return schemas.MethodSurge, p.Workloads != ""
	default:
		return methodOf(p), p.Workloads == policy.RestartAll
	}
}

// methodOf returns the method of the policy.
func methodOf(p policy.Restart) schemas.Method {
	if p.Method == policy.Surge {
		return schemas.MethodSurge
	}
	return schemas.MethodRestart
}

// known reports whether an annotation has a valid value.
func known(mark string) bool {
	return slices.Contains([]string{"true", "restart", "surge", "false"}, mark)
}

// replicasOf returns the number of pods that a Deployment wants.
func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}
