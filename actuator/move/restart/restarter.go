package restart

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// callTimeout bounds the calls of one look or one step together. The API server tries for up to ten seconds to hold an
// eviction against a budget that others write too.
const callTimeout = 15 * time.Second

// Room knows which nodes have room.
type Room interface {
	// Elsewhere says whether a node other than the pod's own would take a second pod like it, and if not, why. It must not
	// change the pod.
	Elsewhere(pod *corev1.Pod) (ok bool, why string)
}

// Config is what a [Method] works with. Client and Policy are needed.
type Config struct {
	// Client may get and patch Deployments; get ReplicaSets, namespaces and PersistentVolumeClaims; get and list pods; and
	// list budgets and quotas. For surges it may also patch pods, create evictions, and get, list and patch autoscalers.
	Client kubernetes.Interface
	// Policy returns the newest policy. A move that was planned keeps to the one of its plan.
	Policy func() policy.Restart
	// GracePeriodSeconds returns how long a pod that goes by a surge may take to stop, where that is less than its own
	// grace period. nil: it returns nil. nil returned: the pod's own. A rollout never changes it.
	GracePeriodSeconds func() *int64
	// DryRun: every change is sent as a dry run, and nothing comes of it.
	DryRun bool
	// Room is asked before a move is planned. nil: the scheduler will say, and the move is taken back if it finds no node.
	Room Room
}

// Method lets Deployments make a replacement first. It is a [move.Method].
type Method struct {
	cfg Config
	// policy is the one that a move is planned by.
	policy func() policy.Restart
	dryRun bool
}

var _ move.Method = (*Method)(nil)

// New makes a method.
func New(c Config) *Method { return &Method{cfg: c, policy: c.Policy, dryRun: c.DryRun} }

// With returns the method with another policy for the moves that it starts. A dry run stays one.
func (r *Method) With(p policy.Restart, dryRun bool) *Method {
	return &Method{cfg: r.cfg, policy: func() policy.Restart { return p }, dryRun: r.dryRun || dryRun}
}

// refTo names a Deployment.
func refTo(d *appsv1.Deployment) *schemas.ObjectRef {
	return &schemas.ObjectRef{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, UID: d.UID}
}

// find returns the pod with its Deployment, or nil if it is not moved by it.
func (r *Method) find(ctx context.Context, pod *corev1.Pod, p policy.Restart) (*candidate, error) {
	if p.Workloads == "" || schemas.Ended(pod) {
		return nil, nil
	}
	d, err := r.deploymentOf(ctx, pod)
	if d == nil || err != nil {
		return nil, err
	}
	namespace := ""
	if !known(d.Annotations[policy.RestartMark]) {
		if namespace, err = r.namespaceMark(ctx, pod.Namespace); err != nil {
			return nil, err
		}
	}
	name, takes := takesPart(p, d.Annotations[policy.RestartMark], namespace)
	if !takes {
		return nil, nil
	}
	return r.withBudgets(ctx, candidate{Pod: pod, Deployment: d, Method: name, Policy: p})
}

// withBudgets adds the budgets of the pod where they matter. nil: the number of replicas, or that no budget holds them,
// speaks against it.
func (r *Method) withBudgets(ctx context.Context, c candidate) (*candidate, error) {
	n := replicasOf(c.Deployment)
	switch {
	case n < 1:
		return nil, nil
	case n > 1 && restarting(c.Deployment): // whatever its budgets allow now that there is a pod more
		return &c, nil
	case n > 1 && !c.Policy.BlockedByBudget:
		return nil, nil
	case n == 1 && c.Method == schemas.MethodRestart:
		return &c, nil
	}
	budgets, err := r.cfg.Client.PolicyV1().PodDisruptionBudgets(c.Pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list budgets of namespace %s: %w", c.Pod.Namespace, err)
	}
	c.Budgets = matching(c.Pod, budgets.Items)
	if n > 1 && !blocked(c.Budgets) {
		return nil, nil
	}
	return &c, nil
}

// deploymentOf returns the Deployment that controls the ReplicaSet that controls the pod, or nil.
func (r *Method) deploymentOf(ctx context.Context, pod *corev1.Pod) (*appsv1.Deployment, error) {
	owner, owned := ownedBy(pod, "ReplicaSet")
	if !owned {
		return nil, nil
	}
	set, err := r.cfg.Client.AppsV1().ReplicaSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at replicaset %s/%s: %w", pod.Namespace, owner.Name, err)
	}
	above, owned := ownedBy(set, "Deployment")
	if !owned || set.UID != owner.UID {
		return nil, nil
	}
	d, err := r.deployment(ctx, pod.Namespace, above.Name)
	if d == nil || err != nil || d.UID != above.UID {
		return nil, err
	}
	return d, nil
}

// deployment returns the Deployment of that name, or nil.
func (r *Method) deployment(ctx context.Context, namespace, name string) (*appsv1.Deployment, error) {
	d, err := r.cfg.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at deployment %s/%s: %w", namespace, name, err)
	}
	return d, nil
}

// pod returns the pod of that name, or nil.
func (r *Method) pod(ctx context.Context, ref schemas.PodRef) (*corev1.Pod, error) {
	pod, err := r.cfg.Client.CoreV1().Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at pod %s: %w", ref, err)
	}
	return pod, nil
}

// namespaceMark returns the mark of the namespace, empty if it has none.
func (r *Method) namespaceMark(ctx context.Context, name string) (string, error) {
	namespace, err := r.cfg.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at namespace %s: %w", name, err)
	}
	return namespace.Annotations[policy.RestartMark], nil
}

// complement reads the rest of what the checks look at.
func (r *Method) complement(ctx context.Context, c candidate, now time.Time) (candidate, error) {
	c.Now = now
	if r.cfg.Room != nil {
		c.Elsewhere = r.cfg.Room.Elsewhere
	}
	namespace := c.Pod.Namespace
	for _, name := range claimNames(c.Pod) {
		claim, err := r.cfg.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			claim = nil
		case err != nil:
			return c, fmt.Errorf("look at persistentvolumeclaim %s/%s: %w", namespace, name, err)
		}
		c.Claims = append(c.Claims, claim)
	}
	quotas, err := r.cfg.Client.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return c, fmt.Errorf("list quotas of namespace %s: %w", namespace, err)
	}
	c.Quotas = quotas.Items
	if c.Method != schemas.MethodSurge {
		return c, nil
	}
	scalers, err := r.cfg.Client.AutoscalingV2().HorizontalPodAutoscalers(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return c, fmt.Errorf("list autoscalers of namespace %s: %w", namespace, err)
	}
	c.Autoscalers = scaling(c.Deployment, scalers.Items)
	return c, nil
}
