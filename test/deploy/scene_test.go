package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
)

// root is where the files of the repository are.
const root = "../.."

// namespace is where the manifests put Rehome.
const namespace = "rehome"

// dir is a directory of all tests. It goes when the tests are over.
var dir string

// shared has three nodes and the kinds of others that the manifests use. Tests that install something do so one after the other:
// there is one namespace rehome.
var shared = clustertest.Shared{Start: start}

func TestMain(m *testing.M) { os.Exit(perform(m)) }

func perform(m *testing.M) int {
	var err error
	if dir, err = os.MkdirTemp("", "rehome-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	return shared.Main(m)
}

// admission makes the API server as strict as GKE's: pods of the two critical classes are taken only where a quota allows them.
const admission = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - scopeName: PriorityClass
        operator: In
        values: [system-node-critical, system-cluster-critical]
`

func start(ctx context.Context) (*cluster.Cluster, error) {
	config := filepath.Join(dir, "admission.yaml")
	if err := os.WriteFile(config, []byte(admission), 0o600); err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{APIServerFlags: []string{"--admission-control-config-file=" + config}})
	if err != nil {
		return nil, err
	}
	if _, err := c.AddNodes(ctx, 3); err != nil {
		return c, err
	}
	return c, errors.Join(addForeign(ctx, c), addVolumes(ctx, c))
}

// addVolumes makes volumes of a default class, as nothing here provides any. One is used once.
func addVolumes(ctx context.Context, c *cluster.Cluster) error {
	storage := c.Client().StorageV1()
	late := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "local", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &late,
	}
	if _, err := storage.StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.AddVolumes(ctx, 60, class.Name)
}

// definitions are files in the modules that test/tools/kinds pins.
var definitions = map[string][]string{
	"knative.dev/serving":         {"config/core/300-resources/service.yaml"},
	"github.com/kedacore/keda/v2": {"config/crd/bases/keda.sh_scaledobjects.yaml", "config/crd/bases/keda.sh_triggerauthentications.yaml"},
}

// addForeign makes the API server know the kinds of others.
func addForeign(ctx context.Context, c *cluster.Cluster) error {
	if err := c.AddForeignKinds(ctx, definitions); err != nil {
		return err
	}
	apply := c.KubectlCommand(ctx, "apply", "--server-side", "-f", "testdata/foreign.yaml")
	if out, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("kinds of others: %w\n%s", err, out)
	}
	return nil
}

// kubectlPath is the path of kubectl. Rendering needs no cluster.
var kubectlPath = sync.OnceValues(func() (string, error) {
	set, err := binaries.Build(context.Background(), binaries.Options{})
	return set.Path(binaries.Kubectl), err
})

// kubectl runs kubectl as the administrator of the cluster, and returns its standard output and standard error.
func kubectl(t *testing.T, arguments ...string) (out, complaint string, err error) {
	t.Helper()
	c := shared.Cluster(t).KubectlCommand(t.Context(), arguments...)
	c.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(dir, "cache"))
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err = c.Run()
	return stdout.String(), stderr.String(), err
}

// must runs kubectl, which must succeed without output on standard error, such as warnings of the API server.
func must(t *testing.T, arguments ...string) string {
	t.Helper()
	out, complaint, err := kubectl(t, arguments...)
	if err != nil || withoutLog(complaint) != "" {
		t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(arguments, " "), err, complaint, out)
	}
	return out
}

// logged is a line of the log of kubectl itself, such as that a watch ended as it was to.
var logged = regexp.MustCompile(`(?m)^[IW]\d{4} [^\n]*\n?`)

// withoutLog is what kubectl said without the lines of its log.
func withoutLog(said string) string { return logged.ReplaceAllString(said, "") }
