package cluster_test

import (
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// fourNodes starts a cluster with four nodes.
func fourNodes(t *testing.T) *cluster.Cluster {
	t.Helper()
	c := clustertest.New(t, cluster.Options{})
	nodes, err := c.AddNodes(t.Context(), 4)
	expect.Must(t, err)
	if want := []string{"node-000", "node-001", "node-002", "node-003"}; !slices.Equal(nodes, want) {
		t.Fatalf("names of the nodes: %v, want %v", nodes, want)
	}
	return c
}

// deploy runs a Deployment "app" in namespace and returns its pods.
func deploy(t *testing.T, c *cluster.Cluster, namespace string, replicas int, mutate ...func(*appsv1.Deployment)) []*corev1.Pod {
	t.Helper()
	if _, err := c.AddDeployment(t.Context(), namespace, "app", replicas, mutate...); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(t.Context(), namespace, "app"); err != nil {
		t.Fatal(err)
	}
	return waitPods(t, c, namespace, "as many Ready pods as replicas", func(pods []*corev1.Pod) bool {
		return len(pods) == replicas && allReady(pods)
	})
}

// waitPods waits for the pods of a namespace.
func waitPods(t *testing.T, c *cluster.Cluster, namespace, what string, done func([]*corev1.Pod) bool) []*corev1.Pod {
	t.Helper()
	pods, err := c.WaitPods(t.Context(), namespace, "", what, done)
	expect.Must(t, err)
	return pods
}

func allReady(pods []*corev1.Pod) bool {
	for _, pod := range pods {
		if !cluster.IsReady(pod) {
			return false
		}
	}
	return true
}

// TestReadyAfterLostPod checks right after the deletion, when the status of the Deployment still counts the pod.
func TestReadyAfterLostPod(t *testing.T) {
	c := fourNodes(t)
	pods := c.Client().CoreV1().Pods("lost")
	lost := deploy(t, c, "lost", 4)[0]
	for range 5 {
		if err := pods.Delete(t.Context(), lost.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitReady(t.Context(), "lost", "app"); err != nil {
			t.Fatal(err)
		}
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		expect.Must(t, err)
		ready := 0
		for i := range list.Items {
			if cluster.IsReady(&list.Items[i]) {
				ready++
			}
		}
		if len(list.Items) != 4 || ready != 4 {
			t.Fatalf("%d pods, %d of them Ready, want 4", len(list.Items), ready)
		}
		lost = &list.Items[0]
	}
}

// TestEtcdReturns also checks that deletions finish afterwards.
func TestEtcdReturns(t *testing.T) {
	c := fourNodes(t)
	graceful := func(d *appsv1.Deployment) { d.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(30)) }
	before := deploy(t, c, "restored", 1, graceful)[0]
	backup := filepath.Join(t.TempDir(), "etcd")
	if err := c.BackUpEtcd(backup); err != nil {
		t.Fatal(err)
	}
	isThere := func(pods []*corev1.Pod) bool {
		return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == before.UID })
	}
	remove := func() {
		t.Helper()
		if err := c.Client().CoreV1().Pods("restored").Delete(t.Context(), before.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitPods(t, c, "restored", "the deleted pod is gone", func(pods []*corev1.Pod) bool { return !isThere(pods) })
	}
	remove()
	if err := c.StopComponents(); err != nil {
		t.Fatal(err)
	}
	if err := c.RestoreEtcd(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	waitPods(t, c, "restored", "the deleted pod is back", isThere)
	deploy(t, c, "later", 8) // kwok can miss a deletion while it takes over the nodes
	remove()
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}
