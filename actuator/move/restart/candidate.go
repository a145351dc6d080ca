package restart

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// candidate is a pod that may be moved by its Deployment, with everything that the checks look at.
type candidate struct {
	Pod        *corev1.Pod
	Deployment *appsv1.Deployment
	Method     schemas.Method
	Policy     policy.Restart
	Now        time.Time
	// Budgets are those that select the pod.
	Budgets []policyv1.PodDisruptionBudget
	// Autoscalers are those that scale the Deployment.
	Autoscalers []autoscalingv2.HorizontalPodAutoscaler
	// Claims are those that the pod's volumes name, in that order. nil: there is none of that name.
	Claims []*corev1.PersistentVolumeClaim
	// Quotas are those of the namespace.
	Quotas []corev1.ResourceQuota
	// Elsewhere says whether another node has room for the pod, and why not. nil: not known.
	Elsewhere func(*corev1.Pod) (bool, string)
}

// ownedBy returns the controller of an object when it is of that kind in the group apps.
func ownedBy(object metav1.Object, kind string) (metav1.OwnerReference, bool) {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind != kind {
		return metav1.OwnerReference{}, false
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return *owner, err == nil && version.Group == appsv1.GroupName
}

// takesPart says whether a Deployment takes part, by its own mark and that of its namespace, and by which method. A
// mark with a value that is not known counts as none.
func takesPart(p policy.Restart, deployment, namespace string) (schemas.Method, bool) {
	method := schemas.MethodRestart
	if p.Method == policy.Surge {
		method = schemas.MethodSurge
	}
	mark := deployment
	if !known(mark) {
		mark = namespace
	}
	switch mark {
	case "false":
		return "", false
	case "true":
		return method, p.Workloads != ""
	case "restart":
		return schemas.MethodRestart, p.Workloads != ""
	case "surge":
		return schemas.MethodSurge, p.Workloads != ""
	default:
		return method, p.Workloads == policy.RestartAll
	}
}

// known says whether a mark has a value that means something.
func known(mark string) bool {
	return mark == "true" || mark == "restart" || mark == "surge" || mark == "false"
}

// replicasOf is how many pods a Deployment is to have.
func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// matching returns the budgets that select the pod. A selector that cannot be read matches nothing, as in the API
// server.
func matching(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) []policyv1.PodDisruptionBudget {
	var out []policyv1.PodDisruptionBudget
	for _, b := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, b)
		}
	}
	return out
}

// blocked says whether one of the budgets allows no disruption now. One that was not counted yet allows none.
func blocked(budgets []policyv1.PodDisruptionBudget) bool {
	for _, b := range budgets {
		if b.Status.DisruptionsAllowed <= 0 || b.Status.ObservedGeneration < b.Generation {
			return true
		}
	}
	return false
}

// scaling returns the autoscalers that scale the Deployment.
func scaling(
	d *appsv1.Deployment, all []autoscalingv2.HorizontalPodAutoscaler,
) []autoscalingv2.HorizontalPodAutoscaler {
	var out []autoscalingv2.HorizontalPodAutoscaler
	for _, a := range all {
		target := a.Spec.ScaleTargetRef
		version, err := schema.ParseGroupVersion(target.APIVersion)
		if err == nil && version.Group == appsv1.GroupName && target.Kind == "Deployment" && target.Name == d.Name {
			out = append(out, a)
		}
	}
	return out
}

// claimNames lists the claims that the pod's volumes name. A claim that is made for each pod anew is not among them.
func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}
