package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestAcceptedCombinations applies each documented combination on the server's side, in a namespace that
// takes restricted pods only, and waits until the controllers have made all pods and kwok runs them.
func TestAcceptedCombinations(t *testing.T) {
	if err := apply(shared.Cluster(t), must(t, helm(t, "template", "rehome-crds", chart+"-crds"))); err != nil {
		t.Fatal(err)
	}
	for name, file := range combinations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := namespace(t, "combination-"+name)
			text := must(t, helm(t, "template", "c-"+name, chart, "--values", file, "--namespace", in))
			all := parse(t, text)
			if name == "accounts" {
				account(t, in, "descheduler")
			}
			if err := apply(shared.Cluster(t), text); err != nil {
				t.Fatal(err)
			}
			runCronJobs(t, in, all)
			allRun(t, in, all)
			knativePodsAreTaken(t, in, all)
		})
	}
}

// account creates a ServiceAccount outside of the chart.
func account(t *testing.T, in, name string) {
	t.Helper()
	_, err := shared.Cluster(t).Client().CoreV1().ServiceAccounts(in).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	expect.Must(t, err)
}

// runCronJobs starts a Job of every CronJob.
func runCronJobs(t *testing.T, in string, all objects) {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == "CronJob" {
			must(t, kubectl(t, "create", "job", "-n", in, "now", "--from=cronjob/"+o.GetName()))
		}
	}
}

// allRun waits until there is every pod that the objects want, running or ended well, and fails when one was refused.
func allRun(t *testing.T, in string, all objects) {
	t.Helper()
	want := wanted(t, all)
	expect.EventuallyWithState(t, "pods of "+in, func() (bool, string) { // an autoscaler acts every 15 s
		if refused := clustertest.FailedCreates(t, shared.Cluster(t), in); len(refused) > 0 {
			t.Fatal(strings.Join(refused, "\n"))
		}
		got := present(t, in)
		return slices.Equal(got, want), fmt.Sprintf("got %q, want %q", got, want)
	})
}

// wanted are the components of all pods that the objects want, sorted. Where they leave the number of pods to an autoscaler,
// it is the fewest of that, for nothing here uses any CPU.
func wanted(t *testing.T, all objects) (components []string) {
	t.Helper()
	fewest := map[string]int64{}
	for _, o := range all {
		if o.GetKind() == "HorizontalPodAutoscaler" {
			of, _, _ := unstructured.NestedString(o.Object, "spec", "scaleTargetRef", "name")
			fewest[of], _, _ = unstructured.NestedInt64(o.Object, "spec", "minReplicas")
		}
	}
	for _, o := range all {
		if o.GetAnnotations()["helm.sh/hook"] != "" && o.GetKind() != "Job" {
			t.Fatalf("%s %s: a hook that is no Job", o.GetKind(), o.GetName())
		}
		n := int64(1)
		switch o.GetKind() {
		case "Deployment", "StatefulSet":
			n = max(n, fewest[o.GetName()])
			if replicas, set, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); set {
				n = replicas
			}
		case "Job", "CronJob":
		default:
			continue
		}
		for range n {
			components = append(components, o.GetLabels()["app.kubernetes.io/component"])
		}
	}
	slices.Sort(components)
	return components
}

// present are the components of the pods that run or have ended well.
func present(t *testing.T, in string) (components []string) {
	t.Helper()
	pods, err := shared.Cluster(t).Client().CoreV1().Pods(in).List(t.Context(), metav1.ListOptions{})
	expect.Must(t, err)
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded {
			components = append(components, p.Labels["app.kubernetes.io/component"])
		}
	}
	slices.Sort(components)
	return components
}

// knativePodsAreTaken asks for a pod as Knative would make it of each of its Services, since it is not there to do so.
func knativePodsAreTaken(t *testing.T, in string, all objects) {
	t.Helper()
	for _, o := range all {
		if !strings.HasPrefix(o.GetAPIVersion(), "serving.knative.dev/") {
			continue
		}
		spec, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		expect.Must(t, err)
		delete(spec, "containerConcurrency")
		delete(spec, "timeoutSeconds")
		pod := expect.ToJSON(t, map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": o.GetName(), "namespace": in}, "spec": spec,
		})
		must(t, withInput(kubectl(t, "create", "--dry-run=server", "--validate=strict", "-f", "-"), strings.ReplaceAll(string(pod),
			`"readinessProbe":{"httpGet":{"path":"/readyz"}}`, `"readinessProbe":{"httpGet":{"path":"/readyz","port":8080}}`)))
	}
}

// TestUnrestrictedPodRejection shows that the namespaces of the test refuse one.
func TestUnrestrictedPodRejection(t *testing.T) {
	in := namespace(t, "strict")
	text := must(t, helm(t, "template", "strict", chart, "--namespace", in, "--set", "securityContext.runAsNonRoot=false",
		"--set", "securityContext.allowPrivilegeEscalation=true"))
	k := kubectl(t, "apply", "--server-side", "-f", "-")
	if _, complaint, err := run(withInput(k, text)); err != nil || !strings.Contains(complaint, "would violate PodSecurity") {
		t.Errorf("complaint %q, error %v", complaint, err)
	}
	expect.Eventually(t, "the pod is refused", func() bool {
		return slices.ContainsFunc(clustertest.FailedCreates(t, shared.Cluster(t), in), func(refused string) bool {
			return strings.Contains(refused, `violates PodSecurity "restricted:latest"`)
		})
	})
}
