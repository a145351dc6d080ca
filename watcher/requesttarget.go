package watcher

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// requestSkew is how far the clocks of the cluster and of the bus may differ.
const requestSkew = 10 * time.Second

// targeted finds the pods of a target that run on a node, in the order of namespaces and names, and those that it names and
// that do not. Pods that were made after the request was stored are not meant: taken up late, a request must not move the
// replacements of what was moved by it before.
func targeted(c *cluster.Cache, t schemas.Target, s policy.Sender, stored time.Time) (
	found []*corev1.Pod, missing []schemas.PodTarget, no *objection,
) {
	switch {
	case len(t.Pods) > 0:
		found, missing = podsNamed(c, t.Pods)
		if len(found) == 0 {
			return nil, nil, refuse(schemas.ReceiptUnknownTarget, "none of the pods is there")
		}
	case t.Workload != nil:
		found = podsMatching(c, t.Workload.Namespace, func(p *corev1.Pod) bool { return belongs(p, t.Workload) })
		if len(found) == 0 {
			return nil, nil, refuse(schemas.ReceiptUnknownTarget, "no pod of %s %s/%s runs anywhere", t.Workload.Kind,
				t.Workload.Namespace, t.Workload.Name)
		}
	case t.Selector != nil:
		selector, err := labels.Parse(t.Selector.Labels)
		if err != nil {
			return nil, nil, malformed("target.selector.labels: %v", err)
		}
		found = podsMatching(c, t.Selector.Namespace, func(p *corev1.Pod) bool { return selector.Matches(labels.Set(p.Labels)) })
	default:
		if c.Node(t.Node) == nil {
			return nil, nil, refuse(schemas.ReceiptUnknownTarget, "there is no node %s", t.Node)
		}
		found = slices.DeleteFunc(c.PodsOnNode(t.Node), schemas.Ended)
	}
	found = slices.DeleteFunc(found, func(p *corev1.Pod) bool {
		return !s.MayIn(p.Namespace) || p.CreationTimestamp.After(stored.Add(requestSkew))
	})
	slices.SortFunc(found, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found, missing, nil
}

// podsNamed finds pods by their names, each once.
func podsNamed(c *cluster.Cache, targets []schemas.PodTarget) (found []*corev1.Pod, missing []schemas.PodTarget) {
	seen := map[string]bool{}
	for _, t := range targets {
		key := t.Namespace + "/" + t.Name
		if seen[key] {
			continue
		}
		seen[key] = true
		p := boundPod(c, key)
		if p == nil || t.UID != "" && t.UID != p.UID {
			missing = append(missing, t)
			continue
		}
		found = append(found, p)
	}
	return found, missing
}

// podsMatching lists the pods of a namespace, or of all of them, that run on a node, have not ended and match.
func podsMatching(c *cluster.Cache, namespace string, matches func(*corev1.Pod) bool) []*corev1.Pod {
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

// belongs says whether a pod is of a workload. A Deployment's pods are those of the ReplicaSets that it names after itself
// and the hash of its template.
func belongs(p *corev1.Pod, w *schemas.WorkloadTarget) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil {
		return false
	}
	if owner.Kind == w.Kind && owner.Name == w.Name {
		return true
	}
	hash := p.Labels["pod-template-hash"]
	return w.Kind == "Deployment" && owner.Kind == "ReplicaSet" && hash != "" && owner.Name == w.Name+"-"+hash
}

// protectsAsked lists what forbids to move a pod of a request, without the rules that the request overrides.
func (s scopes) protectsAsked(e enabled, p *corev1.Pod, override []string, now time.Time) []schemas.Protection {
	found := e.profile.Evictor.ProtectsBut(override, p, now, s.cluster)
	var b built
	if protection, is := disrupted(p, now, &b); is {
		found = append(found, protection)
	}
	if slices.Contains(override, notUsable) {
		return found
	}
	why := fmt.Sprintf("there is no node %s", p.Spec.NodeName)
	if node := s.cluster.Node(p.Spec.NodeName); node != nil {
		why = s.unmovable(node)
	}
	if why != "" {
		found = append(found, schemas.Protection{Rule: notUsable, Detail: why})
	}
	return found
}
