package chart

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReleaseLifecycle has helm do it, with upgrades among them that change how pods are replaced, and
// the pods of a Job, which cannot be changed. What runs is kwok's word, for the Job of helm test too: that
// /readyz is asked is not seen here.
func TestReleaseLifecycle(t *testing.T) {
	clean(t)
	in := namespace(t, "lifecycle")
	must(t, inCluster(t, "install", "rehome-crds", chart+"-crds", "-n", in))
	must(t, inCluster(t, "upgrade", "rehome-crds", chart+"-crds", "-n", in))
	install(t, "install", in, "--values", combinations(t)["standby"])
	names := func() (names []string) {
		for line := range strings.Lines(must(t, kubectl(t, "get", "deployments,statefulsets,jobs", "-n", in, "-o", "name"))) {
			names = append(names, strings.TrimSpace(line))
		}
		return names
	}
	if got, want := names(), []string{"deployment.apps/rehome"}; !slices.Equal(got, want) {
		t.Errorf("installed: got %q, want %q", got, want)
	}
	must(t, inCluster(t, "test", "rehome", "-n", in, "--timeout", "1m"))
	install(t, "upgrade", in, "--values", combinations(t)["persistent"], "--reset-values")
	install(t, "upgrade", in, "--values", combinations(t)["standby"], "--reset-values")
	for _, label := range []string{"one", "another"} {
		install(t, "upgrade", in, "--values", combinations(t)["distributed"], "--reset-values",
			"--set", "metrics.tls=off,metrics.auth=false,podLabels.team="+label)
	}
	got := names()
	if want := []string{
		"deployment.apps/rehome-actuator", "deployment.apps/rehome-api", "deployment.apps/rehome-dispatcher", "deployment.apps/rehome-functions",
		"deployment.apps/rehome-maintenance", "deployment.apps/rehome-watcher", "statefulset.apps/rehome-nats",
		"job.batch/rehome-setup-", "job.batch/rehome-test",
	}; len(got) != len(want) || !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("upgraded: got %q, want %q", got, want)
	}
	must(t, inCluster(t, "test", "rehome", "-n", in, "--timeout", "1m"))
	must(t, inCluster(t, "uninstall", "rehome", "-n", in, "--wait", "--timeout", "1m"))
	must(t, inCluster(t, "uninstall", "rehome-crds", "-n", in))
	if got, want := names(), []string{"job.batch/rehome-test"}; !slices.Equal(got, want) {
		t.Errorf("uninstalled: got %q, want %q", got, want)
	}
	_, err := shared.Cluster(t).Client().RbacV1().ClusterRoles().Get(t.Context(), "rehome-watcher", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the ClusterRole is still there: %v", err)
	}
	kept := must(t, kubectl(t, "get", "crd,validatingadmissionpolicy,validatingadmissionpolicybinding", "nodemaintenances.rehome.dev", "-o", "name"))
	want := "customresourcedefinition.apiextensions.k8s.io/nodemaintenances.rehome.dev\n" +
		"validatingadmissionpolicy.admissionregistration.k8s.io/nodemaintenances.rehome.dev\n" +
		"validatingadmissionpolicybinding.admissionregistration.k8s.io/nodemaintenances.rehome.dev\n"
	if kept != want {
		t.Errorf("kept: got %q, want %q", kept, want)
	}
}

// install installs or upgrades the release rehome and waits until it is ready.
func install(t *testing.T, verb, in string, args ...string) {
	t.Helper()
	must(t, inCluster(t, append([]string{verb, "rehome", chart, "-n", in, "--wait", "--timeout", "1m"}, args...)...))
}

// inCluster is a call of helm that talks to the cluster.
func inCluster(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return helm(t, append(args, "--kubeconfig", shared.Cluster(t).Kubeconfig())...)
}

// clean removes what the tests before have left in the whole cluster, so that a release finds none of it.
func clean(t *testing.T) {
	t.Helper()
	must(t, kubectl(t, "delete", "--ignore-not-found", "crd",
		"nodemaintenances.rehome.dev", "drainrules.rehome.dev", "clusterdrainrules.rehome.dev"))
	must(t, kubectl(t, "delete", "--ignore-not-found", "validatingadmissionpolicy,validatingadmissionpolicybinding",
		"nodemaintenances.rehome.dev"))
	must(t, kubectl(t, "delete", "--ignore-not-found", "clusterrole", "rehome.dev:edit", "rehome.dev:view"))
	must(t, kubectl(t, "delete", "--ignore-not-found", "namespace", "rehome"))
}
