package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestOverlayInstallAndRemoval applies each way to the API server, sees that its controllers make all pods, and removes it.
func TestOverlayInstallAndRemoval(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			before := everything(t)
			objects := render(t, w)
			install(t, w)
			working(t, objects)
			remove(t, w.folderOf(t), before)
		})
	}
}

// install applies an overlay like the page, with the Secrets that the user creates.
func install(t *testing.T, w way) {
	t.Helper()
	must(t, "apply", "--server-side", "-k", w.folderOf(t))
	client := shared.Cluster(t).Client()
	for name := range secretsOf(t, render(t, w)) {
		data := map[string]string{}
		for _, key := range secretKeys(name) {
			data[key] = "secret"
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
		if _, err := client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// secretsOf are the names of the Secrets that pods mount.
func secretsOf(t *testing.T, objects []*unstructured.Unstructured) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, w := range workloads(t, objects) {
		for _, v := range w.pods.Spec.Volumes {
			if v.Secret != nil {
				found[v.Secret.SecretName] = true
			}
		}
	}
	return found
}

// working waits until everything that makes pods has made them, and everything that selects pods has found them.
func working(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, w := range workloads(t, objects) {
		switch w.kind {
		case "Deployment", "StatefulSet":
			must(t, "-n", namespace, "rollout", "status", "--timeout=2m", strings.ToLower(w.kind)+"/"+w.name)
		case "Job":
			must(t, "-n", namespace, "wait", "--for=condition=Complete", "--timeout=2m", "job/"+w.name)
		case "CronJob":
			must(t, "-n", namespace, "create", "job", "now", "--from=cronjob/"+w.name)
			must(t, "-n", namespace, "wait", "--for=condition=Complete", "--timeout=2m", "job/now")
		case "knative": // whose controller is not here: a pod as it would make it
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: w.name, Labels: w.pods.Labels}, Spec: w.pods.Spec}
			if _, err := shared.Cluster(t).Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				t.Errorf("a pod of %s: %v", w.name, err)
			}
		}
	}
	allCopies(t, objects)
	found(t, objects)
	for _, refused := range clustertest.FailedCreates(t, shared.Cluster(t), namespace) {
		t.Error(refused)
	}
}

// allCopies waits until every Deployment has its replicas, or the minimum of its autoscaler.
func allCopies(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	fewest := map[string]int32{}
	for _, a := range of[autoscalingv2.HorizontalPodAutoscaler](t, "HorizontalPodAutoscaler", objects) {
		fewest[a.Spec.ScaleTargetRef.Name] = *a.Spec.MinReplicas
	}
	want := map[string]int32{}
	for _, d := range of[appsv1.Deployment](t, "Deployment", objects) {
		want[d.Name] = max(fewest[d.Name], 1)
		if d.Spec.Replicas != nil {
			want[d.Name] = *d.Spec.Replicas
		}
	}
	expect.EventuallyWithState(t, fmt.Sprintf("Deployments have %v pods", want), func() (bool, string) {
		list, err := shared.Cluster(t).Client().AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
		expect.Must(t, err)
		got := map[string]int32{}
		for _, d := range list.Items {
			got[d.Name] = d.Status.AvailableReplicas
		}
		return reflect.DeepEqual(got, want), fmt.Sprint(got)
	})
}

// found waits until every budget and every Service has found pods.
func found(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	client := shared.Cluster(t).Client()
	for _, name := range names(t, "PodDisruptionBudget", objects) {
		expect.EventuallyWithState(t, "budget "+name+" allows one to be away", func() (bool, string) {
			b, err := client.PolicyV1().PodDisruptionBudgets(namespace).Get(t.Context(), name, metav1.GetOptions{})
			expect.Must(t, err)
			return b.Status.ExpectedPods > 0 && b.Status.DisruptionsAllowed == 1, fmt.Sprintf("%+v", b.Status)
		})
	}
	for _, s := range of[corev1.Service](t, "Service", objects) {
		if len(s.Spec.Selector) == 0 {
			continue
		}
		expect.EventuallyWithState(t, "Service "+s.Name+" has pods", func() (bool, string) { // which have no addresses here
			pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labels.FormatLabels(s.Spec.Selector)})
			expect.Must(t, err)
			return len(pods.Items) > 0, "none"
		})
	}
}

// remove deletes an overlay like the page, and compares the remaining objects with the ones before.
func remove(t *testing.T, folder string, before []string) {
	t.Helper()
	served(t)
	if _, complaint, err := kubectl(t, "delete", "-k", folder, "--ignore-not-found", "--timeout=2m"); err != nil {
		t.Fatalf("kubectl delete: %v\n%s", err, complaint)
	}
	expect.EventuallyWithState(t, "nothing is left", func() (bool, string) {
		more, less := difference(before, everything(t))
		return len(more)+len(less) == 0, fmt.Sprintf("left: %q\ngone: %q", more, less)
	})
}

// served lists the objects of every kind. If a new kind is listed for the first time during its deletion, the API server may
// never finish the deletion. In a real cluster, a watcher has listed them before.
func served(t *testing.T) {
	t.Helper()
	expect.EventuallyWithState(t, "every kind is served", func() (bool, string) {
		for _, o := range everything(t) {
			if strings.Contains(o, ": ") { // an error
				return false, o
			}
		}
		return true, ""
	})
}

// difference returns the entries that are only in the second list, and the entries that are only in the first.
func difference(before, after []string) (more, less []string) {
	for _, o := range after {
		if !slices.Contains(before, o) {
			more = append(more, o)
		}
	}
	for _, o := range before {
		if !slices.Contains(after, o) {
			less = append(less, o)
		}
	}
	return more, less
}

// everything returns the stored objects by kind, namespace, and name, except objects that the API server or its controllers
// create and update.
func everything(t *testing.T) []string {
	t.Helper()
	config := shared.Cluster(t).RESTConfig()
	config.ContentType = "application/json"
	client, err := kubernetes.NewForConfig(config)
	expect.Must(t, err)
	lists, err := client.Discovery().ServerPreferredResources()
	if err != nil {
		return []string{"not all kinds are known: " + err.Error()} // one that is being removed
	}
	var all []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(passing, r.Name) {
				continue
			}
			at := "/apis/" + list.GroupVersion
			if !strings.Contains(list.GroupVersion, "/") {
				at = "/api/" + list.GroupVersion
			}
			all = append(all, stored(t, client, at+"/"+r.Name, r.Kind)...)
		}
	}
	slices.Sort(all)
	return all
}

// passing are resources whose objects come and go by themselves.
var passing = []string{"events", "leases", "ipaddresses", "componentstatuses", "endpoints"}

func stored(t *testing.T, client kubernetes.Interface, path, kind string) (all []string) {
	t.Helper()
	text, err := client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(context.WithoutCancel(t.Context()))
	if err != nil {
		return []string{path + ": " + err.Error()}
	}
	var list struct {
		Items []metav1.PartialObjectMetadata `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, o := range list.Items {
		all = append(all, kind+" "+o.Namespace+"/"+o.Name)
	}
	return all
}

// badPod is one that the restricted level does not let run.
const badPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad", "namespace": "rehome"},
  "spec": {"containers": [{"name": "main", "image": "none:v1", "securityContext": {"privileged": true}}]}}`

// criticalPod is one of the class of Rehome, where there is no quota for it.
const criticalPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "critical", "namespace": "default"},
  "spec": {"priorityClassName": "system-cluster-critical", "containers": [{"name": "main", "image": "none:v1"}]}}`

func TestPodSecurityAndQuota(t *testing.T) {
	before := everything(t)
	install(t, ways[0])
	for name, c := range map[string]struct{ pod, want string }{
		"a privileged pod next to Rehome":      {badPod, `violates PodSecurity "restricted:latest"`},
		"a critical pod where no quota has it": {criticalPod, "insufficient quota to match these scopes"},
	} {
		file := filetest.New(t, "pod.json", c.pod)
		if _, complaint, err := kubectl(t, "apply", "-f", file); err == nil || !strings.Contains(complaint, c.want) {
			t.Errorf("%s: error %v, want one that has %q\n%s", name, err, c.want, complaint)
		}
	}
	remove(t, ways[0].folderOf(t), before)
}

// TestBusVolumeChange: the strategy of a rollout cannot keep what only another one may have.
func TestBusVolumeChange(t *testing.T) {
	before := everything(t)
	for _, i := range []int{0, 1, 0} {
		install(t, ways[i])
		working(t, render(t, ways[i]))
		d, err := shared.Cluster(t).Client().AppsV1().Deployments(namespace).Get(t.Context(), "rehome", metav1.GetOptions{})
		expect.Must(t, err)
		want := []appsv1.DeploymentStrategyType{appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType}[i]
		if d.Spec.Strategy.Type != want {
			t.Errorf("%s: the strategy is %s, want %s", ways[i].name, d.Spec.Strategy.Type, want)
		}
	}
	remove(t, ways[1].folderOf(t), before)
}
