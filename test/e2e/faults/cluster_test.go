package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster"
)

// mark protects a pod from being moved.
const mark = "karpenter.sh/do-not-disrupt"

// leases is the namespace with the leases of Rehome.
const leases = "kube-system"

// request repeats a request until it succeeds, because the API server can be away. An object that exists or is gone already
// is a success.
func (r *run) request(what string, f func(context.Context) error) error {
	return r.await(what, waitLimit, func(ctx context.Context) error {
		if err := f(ctx); !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

// restartAPIServer stops the scheduler meanwhile, which ends on its own when a pod that it binds has another node afterwards.
func (r *run) restartAPIServer(*rand.Rand) (end func() error, err error) {
	r.mu.Lock()
	r.restarts = append(r.restarts, time.Now())
	r.mu.Unlock()
	return func() error {
		return errors.Join(r.cluster.StartAPIServer(r.t.Context()), r.cluster.StartControllers(), r.cluster.StartScheduler())
	}, errors.Join(r.cluster.StopScheduler(), r.cluster.StopControllers(), r.cluster.StopAPIServer())
}

// taintKey is the key of the taint that pods have to leave for.
const taintKey = "faults"

var leave = corev1.Taint{Key: taintKey, Effect: corev1.TaintEffectNoSchedule}

// changeTaints adds taints to nodes and removes them. Sometimes the taint is gone before the pods of the node have their turn.
func (r *run) changeTaints(ctx context.Context, random *rand.Rand) {
	var list []string
	for pause(ctx, between(random, 100*time.Millisecond, 1200*time.Millisecond)) {
		node := r.nodes[random.IntN(len(r.nodes))]
		if at := slices.Index(list, node); at >= 0 || len(list) >= tainted {
			at = max(at, 0)
			r.setTaints(list[at])
			list = slices.Delete(list, at, at+1)
		} else {
			r.setTaints(node, leave)
			list = append(list, node)
		}
		r.count("changes of taints")
	}
}

// setTaints sets the taints of a node, when there is an API server. One that failed could leave too many nodes with a taint.
func (r *run) setTaints(node string, taints ...corev1.Taint) {
	err := r.await("the taints of "+node+" are set", waitLimit, func(ctx context.Context) error { return r.change(ctx, node, taints) })
	if err != nil {
		r.fail("%v", err)
	}
}

// change sets the taints of a node.
func (r *run) change(ctx context.Context, node string, taints []corev1.Taint) error {
	return r.cluster.ChangeNode(ctx, node, func(n *corev1.Node) { n.Spec.Taints = taints })
}

// deleteLease has a role elect another leader.
func (r *run) deleteLease(random *rand.Rand) (end func() error, err error) {
	lease := someLease(random)
	return nil, r.request("delete the lease "+lease, func(ctx context.Context) error {
		return r.cluster.Client().CoordinationV1().Leases(leases).Delete(ctx, lease, metav1.DeleteOptions{})
	})
}

// takeLease gives a lease to a holder that does not exist, until the lease expires.
func (r *run) takeLease(random *rand.Rand) (end func() error, err error) {
	lease := someLease(random)
	return nil, r.request("take the lease "+lease, func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q,"renewTime":%q}}`, namespace+"/nobody", time.Now().UTC().Format(metav1.RFC3339Micro))
		_, err := r.cluster.Client().CoordinationV1().Leases(leases).Patch(ctx, lease, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

func someLease(random *rand.Rand) string {
	return []string{"rehome-actuator", "rehome-watcher", "rehome-maintenance"}[random.IntN(3)]
}

// recreatePods deletes the pods of the StatefulSet. Their successors have the same names.
func (r *run) recreatePods(*rand.Rand) (end func() error, err error) {
	return nil, r.request("delete the pods of the StatefulSet", func(ctx context.Context) error {
		pods := r.cluster.Client().CoreV1().Pods(namespace)
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + stateful})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.DeletionTimestamp == nil {
				r.noteRecreated(p.UID)
			}
			options := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))}
			if err := pods.Delete(ctx, p.Name, options); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
		return nil
	})
}

func (r *run) noteRecreated(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recreated == nil {
		r.recreated = map[types.UID]bool{}
	}
	r.recreated[uid] = true
}

// overlapBudgets adds a second budget for one workload, so the API server refuses its evictions.
func (r *run) overlapBudgets(random *rand.Rand) (end func() error, err error) {
	workload, name := fmt.Sprint("workload-", 2*random.IntN(workloads/2)), "overlapping"
	return func() error {
		return r.request("delete the budget "+name, func(ctx context.Context) error {
			return r.cluster.Client().PolicyV1().PodDisruptionBudgets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		})
	}, r.request("create the budget "+name, func(ctx context.Context) error { return r.budget(ctx, workload, name) })
}

func (r *run) refuseEvictions(*rand.Rand) (end func() error, err error) {
	return func() error {
		return r.request("allow evictions", func(ctx context.Context) error { return r.cluster.AllowEvictions(ctx, refusing) })
	}, r.request("refuse evictions", func(ctx context.Context) error { return r.cluster.RefuseEvictions(ctx, refusing) })
}

// deleteNode deletes a node with its pods on it, and adds it again under its name.
func (r *run) deleteNode(random *rand.Rand) (end func() error, err error) {
	nodes, name := r.cluster.Client().CoreV1().Nodes(), r.nodes[random.IntN(len(r.nodes))]
	var node *corev1.Node
	err = r.request("delete node "+name, func(ctx context.Context) (err error) {
		if node, err = nodes.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return nodes.Delete(ctx, name, metav1.DeleteOptions{})
	})
	return func() error {
		node.ResourceVersion, node.UID, node.Spec.Taints = "", "", nil
		return r.request("create node "+name, func(ctx context.Context) error {
			_, err := nodes.Create(ctx, node, metav1.CreateOptions{})
			return err
		})
	}, err
}

// deleteNamespace makes a namespace with pods, and deletes it in the end, whatever became of its pods until then.
func (r *run) deleteNamespace(random *rand.Rand) (end func() error, err error) {
	name := fmt.Sprintf("%s-%d", namespace, random.Uint32())
	err = r.request("create namespace "+name, func(ctx context.Context) error {
		if err := r.cluster.AddNamespace(ctx, name); err != nil {
			return err
		}
		_, err := r.cluster.AddDeployment(ctx, name, name, replicas)
		return err
	})
	return func() error {
		r.mu.Lock()
		if r.dropped == nil {
			r.dropped = map[string]bool{}
		}
		r.dropped[name] = true
		r.mu.Unlock()
		return r.request("delete namespace "+name, func(ctx context.Context) error {
			return r.cluster.Client().CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		})
	}, err
}

// annotate gives some pods an annotation, and takes it away.
func (r *run) annotate(random *rand.Rand) (end func() error, err error) {
	pods, err := r.some(random, 4)
	set := func(value string) error {
		for _, p := range pods {
			if err := r.setAnnotation(p, "large", value); err != nil {
				return err
			}
		}
		return nil
	}
	return func() error { return set("null") }, errors.Join(err, set(`"`+strings.Repeat("x", 250<<10)+`"`))
}

// setAnnotation sets an annotation to a value in JSON, unless the pod is gone.
func (r *run) setAnnotation(p corev1.Pod, key, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%s}}}`, p.UID, key, value)
	return r.request("annotate pod "+p.Name, func(ctx context.Context) error {
		_, err := r.cluster.Client().CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsConflict(err) { // its name has another pod now
			return nil
		}
		return err
	})
}

// some returns random pods of the Deployments that Rehome may move.
func (r *run) some(random *rand.Rand, n int) ([]corev1.Pod, error) {
	var list *corev1.PodList
	err := r.request("list pods", func(ctx context.Context) (err error) {
		list, err = r.cluster.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app notin (" + stateful + "," + kept + ")"})
		return err
	})
	if err != nil {
		return nil, err
	}
	random.Shuffle(len(list.Items), func(i, k int) { list.Items[i], list.Items[k] = list.Items[k], list.Items[i] })
	return list.Items[:min(n, len(list.Items))], nil
}

// protect protects some pods that may be about to move. No eviction of them may arrive until the protection ends.
func (r *run) protect(random *rand.Rand) (end func() error, err error) {
	pods, err := r.some(random, 4)
	if err != nil {
		return nil, err
	}
	from := map[types.UID]time.Time{}
	end = func() error {
		for _, p := range pods {
			if began := from[p.UID]; !began.IsZero() {
				r.mu.Lock()
				r.protected[p.UID] = append(r.protected[p.UID], interval{began, time.Now()})
				r.mu.Unlock()
			}
			if err := r.setAnnotation(p, mark, "null"); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range pods {
		if err := r.setAnnotation(p, mark, `"true"`); err != nil {
			return end, err
		}
		from[p.UID] = time.Now()
	}
	return end, nil
}

// usage is what a node uses of its 32 CPUs and 256 GiB.
type usage struct{ cpu, memory string }

// usual is a usage at which a node neither loses nor receives pods because of memory.
var usual = usage{"8", "80Gi"}

// reportAbsurdUsage reports a usage of the first node for which it would lose pods or take pods of the second node. Rehome smooths
// the usage: a tenth of ten times the capacity is plausible.
func (r *run) reportAbsurdUsage(random *rand.Rand) (end func() error, err error) {
	absurd := []usage{{"320", usual.memory}, {"1000000000000", usual.memory}, {"0", "-1000000000000"}, {"-5", "-1000000000000"}}
	return func() error { return r.measure(usual) }, r.measure(absurd[random.IntN(len(absurd))])
}

// measure sets the usage of the first node. The second one always uses too much memory, and the others have the usual usage.
func (r *run) measure(first usage) error {
	for i, n := range r.nodes {
		uses := usual
		switch i {
		case 0:
			uses = first
		case 1:
			uses.memory = "160Gi"
		}
		err := r.request("set the metrics of node "+n, func(ctx context.Context) error {
			return r.cluster.SetNodeMetrics(ctx, cluster.NodeMetrics{Name: n, Timestamp: time.Now(), Window: 10 * time.Minute, Usage: uses.list()})
		})
		if err != nil {
			return err
		}
	}
	return r.request("set the metrics of the pods of two nodes", func(ctx context.Context) error { return r.measurePods(ctx, r.nodes[:2]) })
}

// measurePods sets the usage of all pods of the nodes. A strategy by load moves only pods whose usage it knows.
func (r *run) measurePods(ctx context.Context, nodes []string) error {
	list, err := r.cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	uses := []corev1.ResourceList{usage{"1", "10Gi"}.list()}
	for _, p := range list.Items {
		if !slices.Contains(nodes, p.Spec.NodeName) {
			continue
		}
		if err := r.cluster.SetPodMetrics(ctx, cluster.PodMetrics{Namespace: p.Namespace, Name: p.Name, Containers: uses}); err != nil {
			return err
		}
	}
	return nil
}

func (u usage) list() corev1.ResourceList {
	return corev1.ResourceList{"cpu": resource.MustParse(u.cpu), "memory": resource.MustParse(u.memory)}
}
