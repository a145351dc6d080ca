package chart

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// foreign are kinds of other projects that the API server does not validate: plural, kind, group and version.
var foreign = [][4]string{
	{"servicemonitors", "ServiceMonitor", "monitoring.coreos.com", "v1"},
	{"prometheusrules", "PrometheusRule", "monitoring.coreos.com", "v1"},
	{"scaledobjects", "ScaledObject", "keda.sh", "v1alpha1"},
	{"services", "Service", "serving.knative.dev", "v1"},
}

// shared has three nodes, the kinds of others, and volumes.
var shared = clustertest.Shared{Start: func(ctx context.Context) (*cluster.Cluster, error) {
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return nil, err
	}
	if _, err = c.AddNodes(ctx, 3); err != nil {
		return c, err
	}
	for _, f := range foreign {
		if err := apply(c, fmt.Sprintf(foreignKind, f[0], f[2], f[1], f[3])); err != nil {
			return c, err
		}
	}
	err = c.AddForeignKinds(ctx, map[string][]string{
		"github.com/cert-manager/cert-manager": {"deploy/crds/cert-manager.io_certificates.yaml"},
	})
	if err != nil {
		return c, err
	}
	return c, c.AddVolumes(ctx, 20, "") // for the claims of the chart, since nothing here provides any
}}

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

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// namespace creates a namespace with the Pod Security level restricted, and returns its name.
func namespace(t *testing.T, name string) string {
	t.Helper()
	const level = "restricted"
	_, err := shared.Cluster(t).Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": "latest",
			"pod-security.kubernetes.io/warn": level, "pod-security.kubernetes.io/audit": level,
		}},
	}, metav1.CreateOptions{})
	expect.Must(t, err)
	return name
}

// kubectl is a call of kubectl as the administrator of the cluster.
func kubectl(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return shared.Cluster(t).KubectlCommand(t.Context(), args...)
}

// apply applies manifests on the server's side.
func apply(c *cluster.Cluster, text string) error {
	k := c.KubectlCommand(context.Background(), "apply", "--server-side", "--validate=strict", "-f", "-")
	out, complaint, err := run(withInput(k, text))
	if err != nil || strings.Contains(complaint, "Warning") {
		return fmt.Errorf("apply: %w\n%s%s", err, out, complaint)
	}
	return nil
}
