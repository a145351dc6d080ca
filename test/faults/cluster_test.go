package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster"
)

// mark protects a pod from being moved.
const mark = "karpenter.sh/do-not-disrupt"

func clusterSituations() []situation {
	return []situation{
		{"node deleted", 3 * time.Second, (*run).deleteNode},
		{"namespace deleted", 8 * time.Second, (*run).deleteNamespace},
		{"pods recreated under their names", time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			return nothing, r.insist(func(ctx context.Context) error {
				return r.cluster.Client().CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))},
					metav1.ListOptions{LabelSelector: "app=" + stateful})
			})
		}},
		{"large annotations", 5 * time.Second, func(r *run, random *rand.Rand) (func() error, error) {
			return r.annotate(random, "large", strings.Repeat("x", 250<<10))
		}},
		{"late protection", 10 * time.Second, (*run).protect},
		{"overlapping budgets", 8 * time.Second, func(r *run, random *rand.Rand) (func() error, error) {
			workload, name := fmt.Sprint("workload-", 2*random.IntN(workloads/2)), "overlapping"
			err := r.insist(func(ctx context.Context) error { return r.budget(ctx, workload, name) })
			return func() error {
				return r.insist(func(ctx context.Context) error {
					return r.cluster.Client().PolicyV1().PodDisruptionBudgets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
				})
			}, err
		}},
		{"evictions refused in one namespace", 8 * time.Second, func(r *run, _ *rand.Rand) (func() error, error) {
			end := func() error {
				return r.insist(func(ctx context.Context) error { return r.cluster.AllowEvictions(ctx, refusing) })
			}
			return end, r.insist(func(ctx context.Context) error { return r.cluster.RefuseEvictions(ctx, refusing) })
		}},
		{"absurd metrics", 8 * time.Second, func(r *run, random *rand.Rand) (func() error, error) {
			cpu := []string{"-5", "1000000000000", "0", "1n"}[random.IntN(4)]
			return func() error { return r.measure("8") }, r.measure(cpu)
		}},
	}
}

// insist calls f until it has no error, or the object is as it should be already.
func (r *run) insist(f func(context.Context) error) error {
	return insist(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := f(ctx); !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

// deleteNode deletes a node with its pods on it, and adds it again under its name.
func (r *run) deleteNode(random *rand.Rand) (end func() error, err error) {
	nodes, name := r.cluster.Client().CoreV1().Nodes(), r.nodes[random.IntN(len(r.nodes))]
	var node *corev1.Node
	err = r.insist(func(ctx context.Context) (err error) {
		if node, err = nodes.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return nodes.Delete(ctx, name, metav1.DeleteOptions{})
	})
	return func() error {
		node.ResourceVersion, node.UID, node.Spec.Taints = "", "", nil
		return r.insist(func(ctx context.Context) error {
			_, err := nodes.Create(ctx, node, metav1.CreateOptions{})
			return err
		})
	}, err
}

// deleteNamespace makes a namespace with pods, and deletes it in the end, whatever became of its pods until then.
func (r *run) deleteNamespace(random *rand.Rand) (end func() error, err error) {
	name := fmt.Sprintf("%s-%d", namespace, random.Uint32())
	err = r.insist(func(ctx context.Context) error {
		if err := r.cluster.AddNamespace(ctx, name); err != nil {
			return err
		}
		_, err := r.cluster.AddDeployment(ctx, name, name, replicas)
		return err
	})
	return func() error {
		return r.insist(func(ctx context.Context) error {
			return r.cluster.Client().CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		})
	}, err
}

// annotate gives some pods an annotation, and takes it away.
func (r *run) annotate(random *rand.Rand, key, value string) (end func() error, err error) {
	pods := r.some(random, 4)
	set := func(value string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, value)
		for _, p := range pods {
			err := r.insist(func(ctx context.Context) error {
				_, err := r.cluster.Client().CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	return func() error { return set("null") }, set(`"` + value + `"`)
}

// some are random pods of the Deployments.
func (r *run) some(random *rand.Rand, n int) []corev1.Pod {
	var list *corev1.PodList
	err := r.insist(func(ctx context.Context) (err error) {
		list, err = r.cluster.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app notin (" + stateful + "," + kept + ")"})
		return err
	})
	if err != nil {
		r.fail("%v", err)
		return nil
	}
	random.Shuffle(len(list.Items), func(i, k int) { list.Items[i], list.Items[k] = list.Items[k], list.Items[i] })
	return list.Items[:min(n, len(list.Items))]
}

// protect protects some pods after the fact. No eviction of them may arrive until the protection ends.
func (r *run) protect(random *rand.Rand) (end func() error, err error) {
	type one struct {
		p    corev1.Pod
		from time.Time
	}
	var all []one
	set := func(p corev1.Pod, value string) error {
		return r.insist(func(ctx context.Context) error {
			patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%s}}}`, p.UID, mark, value)
			_, err := r.cluster.Client().CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			if apierrors.IsConflict(err) {
				return nil
			}
			return err
		})
	}
	for _, p := range r.some(random, 4) {
		if err := set(p, `"true"`); err != nil {
			return nil, err
		}
		all = append(all, one{p, time.Now()})
	}
	return func() error {
		for _, x := range all {
			r.mu.Lock()
			r.protected[x.p.UID] = append(r.protected[x.p.UID], interval{x.from, time.Now()})
			r.mu.Unlock()
			if err := set(x.p, "null"); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// statefulSet makes one, whose pods keep their names.
func (r *run) statefulSet(ctx context.Context) error {
	labels := map[string]string{"app": stateful}
	_, err := r.cluster.Client().AppsV1().StatefulSets(namespace).Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: stateful},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(4)), Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

// measure says of the first node what it uses, and of the others something else.
func (r *run) measure(cpu string) error {
	for i, n := range r.nodes {
		uses := cpu
		if i > 0 {
			uses = "8"
		}
		err := r.insist(func(ctx context.Context) error {
			return r.cluster.SetNodeMetrics(ctx, cluster.NodeMetrics{Name: n, Timestamp: time.Now(), Window: time.Minute,
				Usage: corev1.ResourceList{"cpu": resource.MustParse(uses), "memory": resource.MustParse("8Gi")}})
		})
		if err != nil {
			return err
		}
	}
	return nil
}
