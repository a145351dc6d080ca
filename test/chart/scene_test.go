package chart

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/program"
)

// foreign are kinds of other projects that the API server does not validate: plural, kind, group and version.
var foreign = [][4]string{
	{"servicemonitors", "ServiceMonitor", "monitoring.coreos.com", "v1"},
	{"prometheusrules", "PrometheusRule", "monitoring.coreos.com", "v1"},
	{"scaledobjects", "ScaledObject", "keda.sh", "v1alpha1"},
	{"services", "Service", "serving.knative.dev", "v1"},
}

// started is the cluster of all tests, once one of them has asked for it.
var started *cluster.Cluster

var start = sync.OnceValue(func() (err error) {
	ctx := context.Background()
	if started, err = cluster.Start(ctx, cluster.Options{}); err != nil {
		return err
	}
	if _, err = started.AddNodes(ctx, 3); err != nil {
		return err
	}
	for _, f := range foreign {
		if err := apply(started, fmt.Sprintf(foreignKind, f[0], f[2], f[1], f[3])); err != nil {
			return err
		}
	}
	err = started.AddForeignKinds(ctx, map[string][]string{
		"github.com/cert-manager/cert-manager": {"deploy/crds/cert-manager.io_certificates.yaml"},
	})
	if err != nil {
		return err
	}
	return addVolumes(ctx)
})

// foreignKind is a kind whose objects have whatever fields they like.
const foreignKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[1]s.%[2]s
spec:
  group: %[2]s
  scope: Namespaced
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[1]s}
  versions:
  - name: %[4]s
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-preserve-unknown-fields: true
`

// addVolumes makes volumes for the claims of the chart, since nothing here provides any.
func addVolumes(ctx context.Context) error {
	for i := range 20 {
		_, err := started.Client().CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("volume-%d", i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

func TestMain(m *testing.M) { os.Exit(perform(m)) }

func perform(m *testing.M) int {
	defer func() {
		if started != nil {
			_ = started.Stop()
		}
	}()
	return m.Run()
}

// theCluster is a control plane with three nodes and the kinds of others.
func theCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	if err := start(); err != nil {
		t.Fatal(err)
	}
	return started
}

var build = sync.OnceValues(program.Build)

// rehome is the program.
func rehome(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// namespace creates a namespace with the Pod Security level restricted, and returns its name.
func namespace(t *testing.T, name string) string {
	t.Helper()
	const level = "restricted"
	_, err := theCluster(t).Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": "latest",
			"pod-security.kubernetes.io/warn": level, "pod-security.kubernetes.io/audit": level,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// kubectl is a call of kubectl as the administrator of the cluster.
func kubectl(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := theCluster(t)
	return exec.CommandContext(t.Context(), c.Kubectl(), append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...)
}

// apply applies manifests on the server's side.
func apply(c *cluster.Cluster, text string) error {
	k := exec.Command(c.Kubectl(), "--kubeconfig", c.Kubeconfig(), "apply", "--server-side", "--validate=strict", "-f", "-")
	out, complaint, err := run(withInput(k, text))
	if err != nil || strings.Contains(complaint, "Warning") {
		return fmt.Errorf("apply: %w\n%s%s", err, out, complaint)
	}
	return nil
}
