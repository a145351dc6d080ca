package requests

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// clockSkew is the tolerated difference between the clocks of the cluster and the bus.
const clockSkew = 10 * time.Second

// targetPods returns the pods of a target that have a node, sorted by namespace and name, and the named pods that do not
// exist or have no node.
// It skips pods created after the request was stored, because they can be replacements of pods that the request has moved.
func targetPods(c *cluster.Cache, t schemas.Target, s policy.Sender, stored time.Time) (
	found []*corev1.Pod, missing []schemas.PodTarget, no *request.End,
) {
	unknown := func(format string, values ...any) ([]*corev1.Pod, []schemas.PodTarget, *request.End) {
		return nil, nil, request.NewEnd(schemas.ReceiptUnknownTarget, format, values...)
	}
	switch {
	case len(t.Pods) > 0:
		if found, missing = namedPods(c, t.Pods); len(found) == 0 {
			return unknown("none of the pods exists, has the UID in the request, and is bound to a node")
		}
	case t.Workload != nil:
		w := t.Workload
		if found = runningPods(c, w.Namespace, func(p *corev1.Pod) bool { return belongs(p, w) }); len(found) == 0 {
			return unknown("%s %s/%s has no running pod", w.Kind, w.Namespace, w.Name)
		}
	case t.Selector != nil:
		selector, err := labels.Parse(t.Selector.Labels)
		if err != nil {
			return nil, nil, request.Malformed("target.selector.labels: %v", err)
		}
		found = runningPods(c, t.Selector.Namespace, func(p *corev1.Pod) bool { return selector.Matches(labels.Set(p.Labels)) })
	default:
		if c.Node(t.Node) == nil {
			return unknown("there is no node %s", t.Node)
		}
		found = slices.DeleteFunc(c.PodsOnNode(t.Node), schemas.Ended)
	}
	found = slices.DeleteFunc(found, func(p *corev1.Pod) bool {
		return !s.MayIn(p.Namespace) || p.CreationTimestamp.After(stored.Add(clockSkew))
	})
	slices.SortFunc(found, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found, missing, nil
}

// namedPods returns the named pods without duplicates.
func namedPods(c *cluster.Cache, targets []schemas.PodTarget) (found []*corev1.Pod, missing []schemas.PodTarget) {
	seen := map[string]bool{}
	for _, t := range targets {
		key := t.Namespace + "/" + t.Name
		if seen[key] {
			continue
		}
		seen[key] = true
		p := c.Pod(t.Namespace, t.Name)
		if p == nil || p.Spec.NodeName == "" || t.UID != "" && t.UID != p.UID {
			missing = append(missing, t)
			continue
		}
		found = append(found, p)
	}
	return found, missing
}

// runningPods returns the matching pods of a namespace that have a node and have not ended. The empty namespace means all.
func runningPods(c *cluster.Cache, namespace string, matches func(*corev1.Pod) bool) []*corev1.Pod {
	var all []*corev1.Pod
	if namespace == "" {
		all = c.AllPods()
	} else {
		all = c.PodsInNamespace(namespace)
	}
	return slices.DeleteFunc(all, func(p *corev1.Pod) bool {
		return p.Spec.NodeName == "" || schemas.Ended(p) || !matches(p)
	})
}

// belongs reports whether a pod belongs to a workload. A ReplicaSet of a Deployment has its name and the hash of the pod
// template. Kinds match in any case, as in kubectl.
func belongs(p *corev1.Pod, w *schemas.WorkloadTarget) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil {
		return false
	}
	if strings.EqualFold(owner.Kind, w.Kind) && owner.Name == w.Name {
		return true
	}
	hash := p.Labels["pod-template-hash"]
	return strings.EqualFold(w.Kind, "Deployment") && owner.Kind == "ReplicaSet" && hash != "" && owner.Name == w.Name+"-"+hash
}
