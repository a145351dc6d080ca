package cluster_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/expect"
)

// visitor is a user without rights.
const visitor = "visitor"

// TestControlPlane runs its tests on one cluster of four nodes, each in its own namespace.
func TestControlPlane(t *testing.T) {
	c := clustertest.New(t, cluster.Options{Users: []cluster.User{{Name: visitor}}})
	nodes, err := c.AddNodes(t.Context(), 4)
	expect.Must(t, err)
	if want := []string{"node-000", "node-001", "node-002", "node-003"}; fmt.Sprint(nodes) != fmt.Sprint(want) {
		t.Fatalf("names of the nodes: %v, want %v", nodes, want)
	}
	tests := []struct {
		name string
		run  func(*testing.T, *cluster.Cluster)
	}{
		{"a deployment becomes Ready on the nodes", deploymentBecomesReady},
		{"a deployment that has just lost a pod is not Ready before it has another one", lostPodIsReplaced},
		{"a bare pod becomes Ready", barePodBecomesReady},
		{"a mirror pod becomes Ready and can be deleted", mirrorPodLives},
		{"a DaemonSet runs on every node", daemonSetRuns},
		{"a pod with a long grace period is gone soon after its deletion", deletionFinishes},
		{"an eviction is in the audit log with its body and user", evictionIsAudited},
		{"an exhausted disruption budget answers 429", budgetRefuses},
		{"a user without rights is forbidden to evict", visitorIsForbidden},
		{"a held node stays NotReady", heldNodeStays},
		{"the API server restarts on its port with its data", apiServerRestarts},
		{"etcd returns to its copy, and deletions finish", etcdReturns},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
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

func none(pods []*corev1.Pod) bool { return len(pods) == 0 }

func deploymentBecomesReady(t *testing.T, c *cluster.Cluster) {
	for _, pod := range deploy(t, c, "deployment", 8) {
		if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is %s on node %q", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
		}
	}
}

// lostPodIsReplaced checks right after the deletion, when the status of the Deployment still counts the pod.
func lostPodIsReplaced(t *testing.T, c *cluster.Cluster) {
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

// addPod creates a bare pod "one" in a new namespace.
func addPod(t *testing.T, c *cluster.Cluster, namespace string, mutate func(*corev1.Pod)) {
	t.Helper()
	if err := c.AddNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	mutate(pod)
	if _, err := c.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitPods(t, c, namespace, "one Ready pod", func(pods []*corev1.Pod) bool { return len(pods) == 1 && allReady(pods) })
}

func barePodBecomesReady(t *testing.T, c *cluster.Cluster) {
	addPod(t, c, "bare", func(*corev1.Pod) {})
}

func mirrorPodLives(t *testing.T, c *cluster.Cluster) {
	addPod(t, c, "mirror", func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
		pod.Spec.NodeName = "node-000"
	})
	if err := c.Client().CoreV1().Pods("mirror").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitPods(t, c, "mirror", "no pods", none)
}

func daemonSetRuns(t *testing.T, c *cluster.Cluster) {
	if err := c.AddNamespace(t.Context(), "daemon"); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "agent"}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
			},
		},
	}
	if _, err := c.Client().AppsV1().DaemonSets("daemon").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitPods(t, c, "daemon", "a Ready pod on each of four nodes", func(pods []*corev1.Pod) bool {
		nodes := map[string]bool{}
		for _, pod := range pods {
			nodes[pod.Spec.NodeName] = true
		}
		return len(nodes) == 4 && allReady(pods)
	})
}

func deletionFinishes(t *testing.T, c *cluster.Cluster) {
	addPod(t, c, "deletion", func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = new(int64(3600)) })
	if err := c.Client().CoreV1().Pods("deletion").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitPods(t, c, "deletion", "no pods", none)
}

// evict evicts a pod as the user of client.
func evict(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) error {
	t.Helper()
	return client.PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
}

func evictionIsAudited(t *testing.T, c *cluster.Cluster) {
	pod := deploy(t, c, "eviction", 2)[0]
	if err := evict(t, c.Client(), pod); err != nil {
		t.Fatal(err)
	}
	var body policyv1.Eviction
	entry := findEviction(t, c, pod)
	if err := json.Unmarshal(entry.Object, &body); err != nil {
		t.Fatal(err)
	}
	type facts struct {
		user, verb, stage string
		code              int
		uid               types.UID
	}
	got := facts{entry.User, entry.Verb, entry.Stage, entry.Code, *body.DeleteOptions.Preconditions.UID}
	if want := (facts{"admin", "create", "ResponseComplete", 201, pod.UID}); got != want {
		t.Errorf("audited %+v, want %+v", got, want)
	}
	waitPods(t, c, "eviction", "two Ready pods, without the evicted one", func(pods []*corev1.Pod) bool {
		return len(pods) == 2 && allReady(pods) && pods[0].UID != pod.UID && pods[1].UID != pod.UID
	})
}

// findEviction returns the only eviction of pod in the audit log.
func findEviction(t *testing.T, c *cluster.Cluster, pod *corev1.Pod) cluster.AuditEntry {
	t.Helper()
	entries, err := c.Audit(t.Context())
	expect.Must(t, err)
	var found []cluster.AuditEntry
	for _, entry := range entries {
		if entry.Resource == "pods" && entry.Subresource == "eviction" && entry.Namespace == pod.Namespace && entry.Name == pod.Name {
			found = append(found, entry)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d evictions of %s in the audit log, want 1: %+v", len(found), pod.Name, found)
	}
	return found[0]
}

func budgetRefuses(t *testing.T, c *cluster.Cluster) {
	pod := deploy(t, c, "budget", 2)[0]
	// A budget that the controller has not counted yet also refuses, but with a delay after which the client retries: two
	// evictions.
	spec := policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(2))}
	if _, err := c.AddBudget(t.Context(), "budget", "app", pod.Labels["app"], spec); err != nil {
		t.Fatal(err)
	}
	if err := evict(t, c.Client(), pod); !apierrors.IsTooManyRequests(err) {
		t.Errorf("eviction against the budget: %v, want 429", err)
	}
	if entry := findEviction(t, c, pod); entry.Code != 429 {
		t.Errorf("audited code %d, want 429", entry.Code)
	}
}

func visitorIsForbidden(t *testing.T, c *cluster.Cluster) {
	pod := deploy(t, c, "forbidden", 1)[0]
	config, err := c.UserConfig(visitor)
	expect.Must(t, err)
	client, err := kubernetes.NewForConfig(config)
	expect.Must(t, err)
	if err := evict(t, client, pod); !apierrors.IsForbidden(err) {
		t.Errorf("eviction by %s: %v, want forbidden", visitor, err)
	}
	if entry := findEviction(t, c, pod); entry.User != visitor || entry.Code != 403 {
		t.Errorf("audited %d for %s, want 403 for %s", entry.Code, entry.User, visitor)
	}
}

// heldNodeStays waits for the taint of the node controller, which takes longer than kwok would need to make the node Ready again.
func heldNodeStays(t *testing.T, c *cluster.Cluster) {
	names, err := c.AddNodes(t.Context(), 1, func(node *corev1.Node) { node.Name = "broken" })
	expect.Must(t, err)
	if err := c.SetNodeReady(t.Context(), names[0], false); err != nil {
		t.Fatal(err)
	}
	node, err := c.Client().CoreV1().Nodes().Get(t.Context(), names[0], metav1.GetOptions{})
	expect.Must(t, err)
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionFalse {
			t.Errorf("Ready is %s, want False", condition.Status)
		}
	}
	if err := c.SetNodeReady(t.Context(), names[0], true); err != nil {
		t.Fatal(err)
	}
	if err := c.Client().CoreV1().Nodes().Delete(t.Context(), names[0], metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func apiServerRestarts(t *testing.T, c *cluster.Cluster) {
	before := deploy(t, c, "restart", 1)[0]
	if err := c.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := c.Client().CoreV1().Pods("restart").Get(t.Context(), before.Name, metav1.GetOptions{})
	expect.Must(t, err)
	if after.UID != before.UID {
		t.Errorf("after the restart the pod is %s, want %s", after.UID, before.UID)
	}
	deploy(t, c, "restarted", 2)
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

func etcdReturns(t *testing.T, c *cluster.Cluster) {
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
